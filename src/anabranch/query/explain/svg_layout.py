"""Where everything lies in the SVG picture of a plan: levels are columns, subqueries are boxes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from textwrap import wrap

from anabranch.query.explain.facts import Exchange, Facts, Kind, kind_of, title_of
from anabranch.query.plan import Subquery

LINE_HEIGHT = 16
LABEL_LETTERS = 30
LETTER_WIDTH = 7.0
"""Of the 11.5 px monospace font, with a little room to spare."""

_NODE_WIDTH = LABEL_LETTERS * LETTER_WIDTH + 24
_NODE_PADDING = 10
LANE_GAP = 20
ROW_GAP = 28
BOX_PADDING = 18
_BOX_TITLE = 34
_BOX_GAP = 34
_PILL_LETTERS = 18
_PILL_WIDTH = _PILL_LETTERS * LETTER_WIDTH + 20
CORRIDOR_WIDTH = 52
"""Between a column and the words of the exchanges behind it."""
_ARROW_WIDTH = 34
_COLUMN_GAP = CORRIDOR_WIDTH + _PILL_WIDTH + _ARROW_WIDTH - BOX_PADDING
MARGIN = 24


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node's rectangle and the lines of its label."""

    x: float
    y: float
    width: float
    height: float
    kind: Kind
    lines: tuple[str, ...]

    @property
    def middle_x(self) -> float:
        return self.x + self.width / 2

    @property
    def middle_y(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Box:
    """A subquery's rectangle, with its nodes by id."""

    x: float
    y: float
    width: float
    height: float
    title: str
    subquery: Subquery
    nodes: Mapping[int, PlacedNode]
    cells: Mapping[int, tuple[int, int]]
    """The (row, lane) of each node."""
    rows: tuple[tuple[float, float], ...]
    """Top and bottom of each row; what stands in it may be less high."""

    @property
    def lanes(self) -> int:
        return 1 + max(lane for _, lane in self.cells.values())

    def right_of_lane(self, lane: int) -> float:
        """Return where the nodes of a lane end."""
        return self.x + BOX_PADDING + (lane + 1) * _NODE_WIDTH + lane * LANE_GAP


@dataclass(frozen=True, slots=True)
class Pill:
    """What an exchange says, right before the head that it feeds."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]

    @property
    def middle_y(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """The picture, ready to be drawn."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    pills: Mapping[int, Pill]
    """By head."""
    column_rights: tuple[float, ...]
    """Where the widest box of each level ends."""

    def box_of(self, head: int) -> Box:
        """Return the box that a head starts."""
        return next(box for box in self.boxes if head in box.subquery.heads)


def lay_out(facts: Facts, top: float) -> Layout:
    """Place every subquery, node and exchange below ``top``."""
    count = facts.plan.hops + 1
    columns = [[_shape(facts, s) for s in facts.subqueries if s.level == level] for level in range(count)]
    heights = [sum(box.height for box in column) + _BOX_GAP * (len(column) - 1) for column in columns]
    tallest = max(heights)
    boxes: list[Box] = []
    rights: list[float] = []
    x: float = MARGIN
    for column, height in zip(columns, heights, strict=True):
        y = top + (tallest - height) / 2
        for box in column:
            boxes.append(_shifted(box, x, y))
            y += box.height + _BOX_GAP
        rights.append(x + max(box.width for box in column))
        x = rights[-1] + _COLUMN_GAP
    pills = {
        head: _place_pill(exchange, next(box.nodes[head] for box in boxes if head in box.subquery.heads))
        for head, exchange in facts.exchanges.items()
    }
    return Layout(x - _COLUMN_GAP + MARGIN, top + tallest, tuple(boxes), pills, tuple(rights))


def _shape(facts: Facts, subquery: Subquery) -> Box:
    """Return a subquery's box as if it lay at the origin."""
    cells = _cells(facts, subquery)
    labels = {node: _wrapped(facts.plan.nodes[node].label, LABEL_LETTERS, most=4) for node in cells}
    row_heights = [0.0] * (1 + max(row for row, _ in cells.values()))
    for node, (row, _) in cells.items():
        row_heights[row] = max(row_heights[row], len(labels[node]) * LINE_HEIGHT + 2 * _NODE_PADDING)
    tops = [_BOX_TITLE + sum(row_heights[:row]) + row * ROW_GAP for row in range(len(row_heights))]
    nodes = {}
    for node, (row, lane) in cells.items():
        nodes[node] = PlacedNode(
            x=BOX_PADDING + lane * (_NODE_WIDTH + LANE_GAP),
            y=tops[row],
            width=_NODE_WIDTH,
            height=len(labels[node]) * LINE_HEIGHT + 2 * _NODE_PADDING,
            kind=kind_of(facts.plan.nodes[node]),
            lines=labels[node],
        )
    lanes = 1 + max(lane for _, lane in cells.values())
    width = 2 * BOX_PADDING + lanes * _NODE_WIDTH + (lanes - 1) * LANE_GAP
    height = _BOX_TITLE + sum(row_heights) + (len(row_heights) - 1) * ROW_GAP + BOX_PADDING
    rows = tuple((y, y + row_height) for y, row_height in zip(tops, row_heights, strict=True))
    return Box(0, 0, width, height, title_of(subquery, facts.plan), subquery, nodes, cells, rows)


def _cells(facts: Facts, subquery: Subquery) -> dict[int, tuple[int, int]]:
    """Return each member's (row, lane): below all it follows, under the first of them if that place is free."""
    cells: dict[int, tuple[int, int]] = {}
    taken: set[tuple[int, int]] = set()
    for node in subquery.members:
        followed = [] if node in subquery.heads else [n for n in facts.plan.nodes[node].inputs if n in cells]
        row = 1 + max((cells[n][0] for n in followed), default=-1)
        lane = cells[followed[0]][1] if followed else 0
        while (row, lane) in taken:
            lane += 1
        cells[node] = (row, lane)
        taken.add((row, lane))
    return cells


def _shifted(box: Box, x: float, y: float) -> Box:
    nodes = {node: replace(place, x=place.x + x, y=place.y + y) for node, place in box.nodes.items()}
    rows = tuple((top + y, bottom + y) for top, bottom in box.rows)
    return replace(box, x=x, y=y, nodes=nodes, rows=rows)


def _place_pill(exchange: Exchange, head: PlacedNode) -> Pill:
    lines = [*_wrapped(exchange.route, _PILL_LETTERS, most=3), f"fan-out {exchange.slots}"]
    if exchange.keys:
        lines.append(exchange.merge)
    height = len(lines) * LINE_HEIGHT + 12
    return Pill(head.x - _ARROW_WIDTH - _PILL_WIDTH, head.middle_y - height / 2, _PILL_WIDTH, height, tuple(lines))


def _wrapped(text: str, letters: int, most: int) -> tuple[str, ...]:
    lines = wrap(text, letters) or [""]
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: letters - 1] + "…"]
    return tuple(lines)
