"""Explain how a flow runs: subqueries, exchanges, hops and fan-out, as text or as a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from anabranch.errors import FlowError, name_alternatives
from anabranch.query.explain.mermaid import explain_mermaid
from anabranch.query.explain.svg import explain_svg
from anabranch.query.explain.text import explain_text
from anabranch.query.plan import Plan

ExplainFormat = Literal["text", "mermaid", "svg"]
_DRAWINGS: dict[str, Callable[[Plan], str]] = {"text": explain_text, "mermaid": explain_mermaid, "svg": explain_svg}


def explain(plan: Plan, format: ExplainFormat = "text") -> str:
    """Return the plan as text for a terminal, as Mermaid source or as an SVG document."""
    if format not in _DRAWINGS:
        msg = f"explain: unknown format {format!r}; {name_alternatives(str(format), _DRAWINGS)}"
        raise FlowError(msg)
    return _DRAWINGS[format](plan)
