"""Flows as graphs: written in Python or read from files, checked, cut into subqueries and explained.

Flow files and pictures are imported when they are first used: every Python worker imports this room, and needs neither.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from anabranch.query.graph import FlowGraph
from anabranch.query.plan import PARALLELISMS, Parallelism, Plan, Subquery, make_plan
from anabranch.query.streams import Stream

if TYPE_CHECKING:
    from anabranch.query.explain.mermaid import explain_mermaid
    from anabranch.query.explain.svg import explain_svg
    from anabranch.query.explain.text import explain_text
    from anabranch.query.files.building import Constructors
    from anabranch.query.files.reading import FlowFile, load_flow

__all__ = [
    "PARALLELISMS",
    "Constructors",
    "FlowFile",
    "FlowGraph",
    "Parallelism",
    "Plan",
    "Stream",
    "Subquery",
    "explain_mermaid",
    "explain_svg",
    "explain_text",
    "load_flow",
    "make_plan",
]

_MODULE_OF = {
    "Constructors": "files.building",
    "FlowFile": "files.reading",
    "explain_mermaid": "explain.mermaid",
    "explain_svg": "explain.svg",
    "explain_text": "explain.text",
    "load_flow": "files.reading",
}

# Type checkers see the imports above, and say so if a name is none of them.
if not TYPE_CHECKING:

    def __getattr__(name):
        module = _MODULE_OF.get(name)
        if module is None:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        found = globals()[name] = getattr(_import_module(f"{__name__}.{module}"), name)
        return found
