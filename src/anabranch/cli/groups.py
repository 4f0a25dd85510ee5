"""Groups of commands that start fast."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup, TyperOption


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
