"""How commands talk: what goes to which stream, and how an error ends the command."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FAILED = 1
BAD_USAGE = 2
INTERRUPTED = 130

DebugOption = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


def open_console() -> Console:
    """Return a console on standard output that other processes' output can be kept away from."""
    from rich.console import Console

    return Console(file=_own_stream(sys.stdout), highlight=False)


def error_console() -> Console:
    """Return a console on standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(console: Console, message: Text | str) -> None:
    """Print a sentence: in a terminal broken between words, never in one; elsewhere in one line, for programs."""
    from rich.text import Text

    text = message if isinstance(message, Text) else Text.from_markup(message)
    for line in text.split("\n", allow_blank=True):
        breaks = _find_breaks(line.plain, console.width) if console.is_terminal else []
        for part in line.divide(breaks):
            part.rstrip()
            console.print(part, soft_wrap=True)


def _find_breaks(line: str, width: int) -> list[int]:
    """Return where a line is broken so that no part is wider than the terminal, unless a word is."""
    breaks, start = [], 0
    for word in re.finditer(r"\S+", line):
        if word.end() - start > width and line[start : word.start()].strip():
            start = word.start()
            breaks.append(start)
    return breaks


def print_error(message: str) -> None:
    """Print an error; brackets in it are no markup."""
    from rich.text import Text

    say(error_console(), Text.assemble(("error: ", "bold red"), message))


def print_note(message: str) -> None:
    """Print a remark on standard error."""
    from rich.text import Text

    say(error_console(), Text(message, style="dim"))


def confirm(question: str) -> None:
    """Ask before something is done that cannot be taken back; end the command unless the answer is yes.

    Where nobody can answer, such as in a script, the command ends with the option that answers in advance.
    """
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        print_error("this asks before it is done, and there is nobody to answer here; say --yes to do it without")
        raise typer.Exit(BAD_USAGE) from None
    if not agreed:
        print_note("nothing was done")
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def explained_errors(debug: bool) -> Iterator[None]:
    """End the command with a sentence instead of a traceback: 1 for an error, 130 for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print_note("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except AnabranchError as error:
        if debug:
            raise
        print_error(str(error))
        _print_notes(error)
        raise typer.Exit(FAILED) from error
    except Exception as error:
        # Typer's own exceptions carry an exit code and are no failures of a flow.
        if debug or hasattr(error, "exit_code"):
            raise
        print_error(f"{type(error).__name__}: {error}")
        _print_notes(error)
        print_note("this error was not foreseen; --debug shows where it comes from")
        raise typer.Exit(FAILED) from error


def _print_notes(error: BaseException) -> None:
    for note in getattr(error, "__notes__", ()):
        print_note(note)


def _own_stream(stream: TextIO) -> TextIO:
    """Return a second way to a terminal, so that redirecting the first one for child processes leaves this alone."""
    try:
        is_terminal, descriptor = stream.isatty(), stream.fileno()
    except (OSError, ValueError):
        return stream
    if not is_terminal:
        return stream
    return os.fdopen(os.dup(descriptor), "w", encoding=stream.encoding, errors="replace")
