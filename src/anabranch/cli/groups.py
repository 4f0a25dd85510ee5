"""Groups of commands that start fast."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup, TyperOption

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def add_command(app: typer.Typer, name: str | None = None) -> Callable[[CommandT], CommandT]:
    """Make a function a command, with its docstring as help; lines of a paragraph are one, whatever their breaks.

    Typer keeps the breaks of all paragraphs but the first, which are those of the source and none of the terminal.
    """

    def add(function: CommandT) -> CommandT:
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        words = [text if text.startswith(" ") else text.replace("\n", " ") for text in paragraphs]
        app.command(name, help="\n\n".join(words))(function)
        return function

    return add


class QuickGroup(TyperGroup):
    """Commands whose flags are off rather than unset.

    Those that Typer adds, for help and shell completion, are unset, and to look at an unset value it imports Pydantic,
    which takes as long as all the rest of ``anabranch doctor --help``.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's arguments and options."""
        params = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag and param.default is None:
                param.default = False
        return params
