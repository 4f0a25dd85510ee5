"""A plan as a tree of characters: subqueries as brackets, exchanges as arrows between them."""

from __future__ import annotations

from anabranch.query.explain.facts import Exchange, Facts, Kind, gather_facts, kind_of, name_of, title_of
from anabranch.query.plan import Plan, Subquery

_MARKS: dict[Kind, str] = {"source": "◆", "stateless": "○", "stateful": "●", "sink": "■"}
_LEGEND = "◆ source   ○ stateless   ● stateful   ■ sink   ⇒ exchange"


def explain_text(plan: Plan) -> str:
    """Return the plan as text for a terminal, without colours."""
    facts = gather_facts(plan)
    lines = [f"{plan.flow} · {plan.parallelism} parallelism", facts.headline, facts.network, ""]
    for subquery in facts.subqueries:
        lines += _draw_subquery(facts, subquery)
    lines += ["", *_draw_costs(facts), "", _LEGEND]
    return "\n".join(lines)


def _draw_subquery(facts: Facts, subquery: Subquery) -> list[str]:
    body = [line for head in subquery.heads if subquery.level for line in _exchange_lines(facts.exchanges[head])]
    drawn: set[int] = set()
    for head in subquery.heads:
        body += _draw_from(facts, subquery, head, drawn)
    return [f"╭─ {title_of(subquery, facts.plan)}", *(f"│  {line}" for line in body), "╰─"]


def _draw_from(facts: Facts, subquery: Subquery, node: int, drawn: set[int]) -> list[str]:
    """Draw a node and what follows: a chain goes straight down, only branches are indented."""
    here = facts.plan.nodes[node]
    if node in drawn:
        return [f"↪ {here.label}, as above"]
    drawn.add(node)
    lines = [f"{_MARKS[kind_of(here)]} {here.label}"]
    if node in facts.exchanges and (event_time := facts.exchanges[node].event_time):
        lines.append(f"    {event_time}")
    lines += [f"    {remark}" for remark in facts.remarks_on(node)]
    if facts.plan.is_global(node):
        lines.append(f"    global merge, no exchange ({facts.plan.exchanges[node].reason})")
    ways = [[_arrow(facts, node, way.head)] for way in facts.exchanges_behind(node)]
    ways += [_draw_from(facts, subquery, child, drawn) for child in facts.children_within(subquery, node)]
    if len(ways) == 1:
        return lines + ways[0]
    for position, way in enumerate(ways, start=1):
        last = position == len(ways)
        lines.append(f"{'└─' if last else '├─'} {way[0]}")
        lines += [f"{'  ' if last else '│ '} {line}" for line in way[1:]]
    return lines


def _arrow(facts: Facts, node: int, head: int) -> str:
    sides = facts.sides_of(node, head)
    return f"⇒ subquery {name_of(facts.subquery_of(head), facts.plan)}{', ' if sides else ''}{sides}"


def _exchange_lines(exchange: Exchange) -> list[str]:
    not_held = [f"    rows cannot be held back: {exchange.not_held}"] if exchange.not_held else []
    return [_exchange_words(exchange), *not_held]


def _exchange_words(exchange: Exchange) -> str:
    why = f" ({exchange.reason})" if exchange.reason else ""
    if exchange.ahead:
        return f"⇒ {exchange.route}{why}"
    merge = f" · {exchange.merge}{why}" if exchange.keys else ""
    return f"⇒ exchange {exchange.route} · fan-out {exchange.slots}{merge}"


def _draw_costs(facts: Facts) -> list[str]:
    lines = [f"the same flow on {facts.instances} instances:"]
    for cost in facts.costs:
        chosen = "▸" if cost.parallelism == facts.plan.parallelism else " "
        lines.append(f"  {chosen} {cost.parallelism:<13} {cost.words}")
    return lines
