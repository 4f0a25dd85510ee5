"""What options let choose from, as types of their own: those of the rooms would bring Polars along before any help."""

from __future__ import annotations

from typing import Literal

from anabranch.cli.reporting import print_note

Parallelism = Literal["operator-set", "operator", "query"]
PARALLELISM_HELP = "How the flow is cut: operator-set, operator or query."
Action = Literal["show", "set", "move", "split", "merge", "slots", "strategy", "home"]


def take_parallelism(parallelism: Parallelism | None, strategy: Parallelism | None) -> Parallelism | None:
    """Return what was chosen, be it by the option's name of before."""
    if strategy is not None:
        print_note("--strategy is called --parallelism now; the old name works in this version, and in no later one")
    return parallelism or strategy
