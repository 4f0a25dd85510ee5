"""A plan as a Mermaid flowchart, for Markdown that draws it."""

from __future__ import annotations

from anabranch.query.explain.facts import Facts, Kind, gather_facts, kind_of, title_of
from anabranch.query.plan import Plan, Subquery

_SHAPES: dict[Kind, tuple[str, str]] = {
    "source": ("([", "])"),
    "stateless": ("[", "]"),
    "stateful": ("[[", "]]"),
    "sink": ("[(", ")]"),
}
# Filled with mid tones and dark text: they read on a light page and on a dark one.
_CLASSES: dict[Kind, str] = {
    "source": "fill:#a7d8f0,stroke:#2b7fa8,color:#0b2533",
    "stateless": "fill:#dfe5ec,stroke:#7b8794,color:#1c2733",
    "stateful": "fill:#ffd38a,stroke:#b9770e,color:#3a2604",
    "sink": "fill:#b9e3c1,stroke:#3b8a55,color:#0d2b18",
}
# Mermaid reads '#' as the start of an entity, so it goes first.
_ENTITIES = {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\\": "#92;"}


def explain_mermaid(plan: Plan) -> str:
    """Return the plan as Mermaid source."""
    facts = gather_facts(plan)
    lines = ["flowchart LR"]
    for place, subquery in enumerate(facts.subqueries):
        lines += _draw_subquery(facts, subquery, place)
    for place, subquery in enumerate(facts.subqueries):
        lines += _draw_exchanges(facts, subquery, place)
    lines += [f"  classDef {kind} {style}" for kind, style in _CLASSES.items()]
    return "\n".join(lines)


def _draw_subquery(facts: Facts, subquery: Subquery, place: int) -> list[str]:
    lines = [f'  subgraph s{place}["{_escape(title_of(subquery, facts.plan))}"]', "    direction TB"]
    for member in subquery.members:
        node = facts.plan.nodes[member]
        opening, closing = _SHAPES[kind_of(node)]
        lines.append(f'    {_name(place, member)}{opening}"{_escape(node.label)}"{closing}:::{kind_of(node)}')
    lines += [
        f"    {_name(place, member)} --> {_name(place, child)}"
        for member in subquery.members
        for child in facts.children_within(subquery, member)
    ]
    return [*lines, "  end"]


def _draw_exchanges(facts: Facts, subquery: Subquery, place: int) -> list[str]:
    lines = []
    for member in subquery.members:
        for exchange in facts.exchanges_behind(member):
            target = facts.subqueries.index(facts.subquery_of(exchange.head))
            words = [exchange.route, f"fan-out {exchange.slots}", *([exchange.merge] if exchange.keys else [])]
            words += [side for side in (facts.sides_of(member, exchange.head),) if side]
            label = "<br/>".join(_escape(word) for word in words)
            lines.append(f'  {_name(place, member)} ==>|"{label}"| {_name(target, exchange.head)}')
    return lines


def _name(place: int, node: int) -> str:
    # A node behind a union runs in several subqueries, and Mermaid wants every name once.
    return f"s{place}n{node}"


def _escape(text: str) -> str:
    return "".join(_ENTITIES.get(letter, letter) for letter in " ".join(text.split()))
