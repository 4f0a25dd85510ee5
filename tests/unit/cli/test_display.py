from __future__ import annotations

import io
import logging
import os
import sys
import termios

import pytest
from rich.console import Console

from anabranch.cli.run.display import Display, silent_keys
from anabranch.connectors.retry import ServerAway, insist
from anabranch.connectors.waits import LOGGER
from unit.cli.builders import batch


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_a_terminal_does_not_echo_keys_while_a_panel_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower) as keyboard:
        monkeypatch.setattr(sys, "stdin", keyboard)
        assert echoes(follower)
        with pytest.raises(KeyboardInterrupt), silent_keys():
            assert not echoes(follower)
            raise KeyboardInterrupt
        assert echoes(follower)
    os.close(leader)


def test_input_that_is_no_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("text"))
    with silent_keys():
        assert sys.stdin.read() == "text"


def live_display(screen: io.StringIO) -> Display:
    return Display("low-voltage", Console(file=screen, force_terminal=True, width=80), live=True)


@pytest.mark.parametrize(
    ("error", "status"), [(None, "ended"), (ValueError(), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_the_last_panel_says_how_the_run_ended_and_gives_the_cursor_back(
    error: BaseException | None, status: str
) -> None:
    screen = io.StringIO()
    try:
        with live_display(screen) as display:
            display.begin()
            display.take(batch(3))
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    last_panel = screen.getvalue().rsplit("low-voltage", 1)[1]
    assert f" · {status} · " in last_panel and "Ctrl-C" not in last_panel
    assert screen.getvalue().rstrip("\n").endswith("\x1b[?25h")


def test_without_a_terminal_a_reader_that_went_away_fails_nothing() -> None:
    class ClosedPipe(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with Display("low-voltage", Console(file=ClosedPipe()), live=False) as display:
        display.take(batch(3))
    assert display.history.totals.batches == 1


def test_without_a_terminal_lines_tell_of_a_server_that_is_away_and_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = iter([ServerAway("refused"), None])

    def attempt() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    paper = io.StringIO()
    with Display("low-voltage", Console(file=paper), live=False):
        insist("redis://cache", 60.0, attempt, monotonic=iter([0.0, 12.0]).__next__, sleep=lambda seconds: None)
    first, second = paper.getvalue().splitlines()
    assert first.startswith("server: 2") and first.endswith("redis://cache is out of reach (refused): waiting for it")
    assert second.endswith("redis://cache is back after 12 s")
    assert not caplog.records, "it was said twice"
    assert logging.getLogger(LOGGER).propagate
