"""What options let choose from, as types of their own: those of the rooms would bring Polars along before any help."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["operator-set", "operator", "query"]
STRATEGY_HELP = "How the flow is cut: operator-set, operator or query."
Action = Literal["show", "set", "move", "split", "merge", "slots", "strategy"]
