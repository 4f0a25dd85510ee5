"""A plan as an SVG picture that reads on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import dist
from xml.sax.saxutils import escape, quoteattr

from anabranch.query.explain.facts import Facts, Kind, gather_facts
from anabranch.query.explain.svg_layout import LINE_HEIGHT, MARGIN, Box, Pill, PlacedNode, lay_out
from anabranch.query.explain.svg_routes import Route, route_edges
from anabranch.query.plan import Plan

# The page's colour is not known, so nothing is drawn in black or white on it: rectangles are filled and hold dark text,
# and what stands outside them is in mid tones that read on both.
_STYLE = """
    text { font: 11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1c2733 }
    .name { font: 600 17px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #6e7781 }
    .words { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #6e7781 }
    .chosen { font-weight: 600; fill: #b9770e }
    .box { fill: #7b8794; fill-opacity: .10; stroke: #7b8794; stroke-opacity: .55 }
    .source { fill: #a7d8f0; stroke: #2b7fa8 }
    .stateless { fill: #dfe5ec; stroke: #7b8794 }
    .stateful { fill: #ffd38a; stroke: #b9770e }
    .sink { fill: #b9e3c1; stroke: #3b8a55 }
    .pill { fill: #d9ccf5; stroke: #7a5cc2 }
    .step { fill: none; stroke: #7b8794; stroke-width: 1.5 }
    .exchange { fill: none; stroke: #7a5cc2; stroke-width: 2.5 }
"""
_HEADER_HEIGHT = 92
_CORNER_RADIUS = 9
_CORNERS: dict[Kind, int] = {"source": 18, "stateless": 6, "stateful": 6, "sink": 2}
_LEGEND: tuple[tuple[str, str], ...] = (
    ("source", "source"),
    ("stateless", "stateless"),
    ("stateful", "stateful"),
    ("sink", "sink"),
    ("pill", "exchange"),
)
_LEGEND_WIDTH = 96
_SMALLEST_WIDTH = 560


def explain_svg(plan: Plan) -> str:
    """Return the plan as an SVG document."""
    facts = gather_facts(plan)
    layout = lay_out(facts, _HEADER_HEIGHT)
    routes, depth = route_edges(facts, layout)
    footer_top = layout.height + depth + 34
    width = max(layout.width, _SMALLEST_WIDTH)
    height = footer_top + (len(facts.costs) + 2) * 18 + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-label={quoteattr(f"How the flow {plan.flow} runs")}>',
            f"<style>{_STYLE}</style>",
            "<defs>",
            _marker("step-end", "#7b8794"),
            _marker("exchange-end", "#7a5cc2"),
            "</defs>",
            *_draw_header(facts),
            *(line for box in layout.boxes for line in _draw_box(box)),
            *map(_draw_route, routes),
            *(line for box in layout.boxes for node in box.nodes.values() for line in _draw_node(node)),
            *(line for pill in layout.pills.values() for line in _draw_pill(pill)),
            *_draw_footer(facts, footer_top),
            "</svg>",
        ]
    )


def _marker(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
    )


def _draw_header(facts: Facts) -> list[str]:
    plan = facts.plan
    return [
        _text(MARGIN, 34, f"{plan.flow} · {plan.parallelism} parallelism", "name"),
        _text(MARGIN, 56, facts.headline, "words"),
        _text(MARGIN, 74, facts.network, "words"),
    ]


def _draw_box(box: Box) -> list[str]:
    return [
        f'<rect class="box" x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="16"/>',
        _text(box.x + 18, box.y + 22, box.title, "words"),
    ]


def _draw_node(node: PlacedNode) -> list[str]:
    return [
        f'<rect class="{node.kind}" x="{node.x:g}" y="{node.y:g}" width="{node.width:g}" height="{node.height:g}" '
        f'rx="{_CORNERS[node.kind]}"/>',
        *_centred(node.middle_x, node.y + 22, node.lines),
    ]


def _draw_pill(pill: Pill) -> list[str]:
    return [
        f'<rect class="pill" x="{pill.x:g}" y="{pill.y:g}" width="{pill.width:g}" height="{pill.height:g}" rx="12"/>',
        *_centred(pill.x + pill.width / 2, pill.y + 18, pill.lines),
    ]


def _draw_route(route: Route) -> str:
    style = "exchange" if route.exchange else "step"
    arrow = f' marker-end="url(#{style}-end)"' if route.ends_in_node else ""
    return f'<path class="{style}"{arrow} d="{_round_corners(route.points)}"/>'


def _round_corners(points: Sequence[tuple[float, float]]) -> str:
    """Return a path through the points, with an arc in place of each corner."""
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_CORNER_RADIUS, dist(before, corner) / 2, dist(corner, after) / 2)
        if radius:
            begin, end = _towards(corner, before, radius), _towards(corner, after, radius)
            path += f" L{begin[0]:g} {begin[1]:g} Q{corner[0]:g} {corner[1]:g} {end[0]:g} {end[1]:g}"
    return f"{path} L{points[-1][0]:g} {points[-1][1]:g}"


def _towards(start: tuple[float, float], end: tuple[float, float], distance: float) -> tuple[float, float]:
    share = distance / dist(start, end)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _draw_footer(facts: Facts, top: float) -> list[str]:
    lines = []
    for place, (style, words) in enumerate(_LEGEND):
        x = MARGIN + place * _LEGEND_WIDTH
        lines.append(f'<rect class="{style}" x="{x:g}" y="{top - 10:g}" width="14" height="12" rx="3"/>')
        lines.append(_text(x + 20, top, words, "words"))
    top += 26
    lines.append(_text(MARGIN, top, f"The same flow on {facts.instances} instances:", "words"))
    for cost in facts.costs:
        top += 18
        chosen = " chosen" if cost.parallelism == facts.plan.parallelism else ""
        lines.append(_text(MARGIN + 12, top, cost.parallelism, f"words{chosen}"))
        lines.append(_text(MARGIN + 112, top, cost.words, f"words{chosen}"))
    return lines


def _centred(x: float, y: float, lines: Iterable[str]) -> list[str]:
    return [
        f'<text x="{x:g}" y="{y + number * LINE_HEIGHT:g}" text-anchor="middle">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(words)}</text>'
