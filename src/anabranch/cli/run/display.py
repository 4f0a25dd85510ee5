"""A run as it is shown: a panel that moves in a terminal, a line a batch elsewhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import termios
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live

from anabranch.cli.reporting import print_note, say
from anabranch.cli.run.lines import describe_batch, describe_run, describe_wait
from anabranch.cli.run.screen import ProgressPanel
from anabranch.connectors.waits import LOGGER
from anabranch.metrics.history import RunHistory
from anabranch.model import BatchProgress
from anabranch.model.waits import Wait

REFRESHES_PER_SECOND = 5


class Display:
    """Takes batches in and shows them while it is entered; ``below`` stands under the panel."""

    def __init__(self, title: str, console: Console, *, live: bool, below: RenderableType | None = None) -> None:
        self.history = RunHistory(time.monotonic())
        self.live = live
        self._console = console
        self._panel = ProgressPanel(title, self.history, time.monotonic, time.time)
        self._below = below
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Display:
        self.say("starting Spark")
        if self.live:
            shown = Group(self._panel, self._below) if self._below is not None else self._panel
            self._open.enter_context(silent_keys())
            self._open.enter_context(Live(shown, console=self._console, refresh_per_second=REFRESHES_PER_SECOND))
        else:
            self._open.enter_context(_heard(LOGGER, self._print_wait))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._panel.hint = ""
        self._panel.status = "ended" if kind is None else "interrupted" if kind is KeyboardInterrupt else "failed"
        self._open.close()

    def begin(self) -> None:
        """Let the run's time start now: Spark is there."""
        self.history.started_seconds = time.monotonic()
        self.say("running")

    def say(self, status: str) -> None:
        """Name what is going on."""
        self._panel.status = status

    def take(self, progress: BatchProgress) -> None:
        """Show a batch that was committed; called by the thread that ran it."""
        self.history.add(progress, time.monotonic())
        if not self.live:
            self._print_lines(progress)

    def show_waits(self, waits: tuple[Wait, ...]) -> None:
        """Show the servers that the flow waits for now; without a panel, lines tell when a wait begins and ends."""
        self._panel.waits = waits

    def announce_end(self) -> None:
        """Say that the flow ends after the running batch."""
        self.say("ending after the running batch")
        self._panel.hint = "Ctrl-C again ends at once"
        if not self.live:
            print_note("ending after the running batch; Ctrl-C again ends at once")

    def print_summary(self) -> None:
        """Print the closing words; call it when the run is over."""
        say(self._console, describe_run(self.history, time.monotonic()))

    def _print_lines(self, progress: BatchProgress) -> None:
        self._write(describe_batch(progress, time.time()), *(f"problem: {problem}" for problem in progress.problems))

    def _print_wait(self, record: logging.LogRecord) -> None:
        self._write(describe_wait(record.getMessage(), record.created))

    def _write(self, *lines: str) -> None:
        # A reader that has gone away (`| head`) must not fail a flow.
        with contextlib.suppress(BrokenPipeError):
            self._console.file.write("".join(f"{line}\n" for line in lines))
            self._console.file.flush()


@contextlib.contextmanager
def _heard(name: str, take: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Let somebody take what a logger is told, in place of everybody else."""
    logger, handler = logging.getLogger(name), logging.Handler()
    handler.emit = take  # type: ignore[assignment,method-assign]
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


@contextlib.contextmanager
def silent_keys() -> Iterator[None]:
    """Keep the terminal from printing what is typed: a ``^C`` would push a live panel out of its place."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield
        return
    silent = before.copy()
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
