"""Flows as graphs: written in Python or read from files, checked, cut into subqueries and explained."""

from anabranch.query.drawing import explain_mermaid, explain_svg, explain_text
from anabranch.query.explain import explain
from anabranch.query.flow_building import Constructors
from anabranch.query.flow_files import FlowFile, load_flow
from anabranch.query.graph import FlowGraph
from anabranch.query.plan import STRATEGIES, Plan, Strategy, Subquery, make_plan
from anabranch.query.streams import Stream

__all__ = [
    "STRATEGIES",
    "Constructors",
    "FlowFile",
    "FlowGraph",
    "Plan",
    "Strategy",
    "Stream",
    "Subquery",
    "explain",
    "explain_mermaid",
    "explain_svg",
    "explain_text",
    "load_flow",
    "make_plan",
]
