"""The ways of edges in the SVG picture of a plan: along the gaps between nodes, never behind one.

Every stretch of an edge has a place that is free by the layout: between the rows and lanes of a box, in the corridor
before a column, where exchanges turn to their heads, or below all boxes, for those that pass columns by. Edges that
share a gap without sharing an end have tracks of their own in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anabranch.query.explain.facts import Exchange, Facts
from anabranch.query.explain.svg_layout import (
    BOX_PADDING,
    CORRIDOR_WIDTH,
    LANE_GAP,
    ROW_GAP,
    Box,
    Layout,
    PlacedNode,
)

PASSING_GAP = 14
"""Between two edges that pass columns by, below all boxes."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Route:
    """The corners of an edge, its two ends among them."""

    points: tuple[Point, ...]
    exchange: bool
    ends_in_node: bool
    """Then it bears an arrow; else it leads to the words of its exchange."""


@dataclass
class _Tracks:
    """Who runs in one gap, in the order of first asking."""

    length: float
    start: float
    users: list[object] = field(default_factory=list)

    def enter(self, user: object) -> None:
        if user not in self.users:
            self.users.append(user)

    def place_of(self, user: object) -> float:
        """Return where a user's track is; to be asked when all have entered."""
        return self.start + self.length * (self.users.index(user) + 1) / (len(self.users) + 1)


class _Gaps:
    """The gaps of a layout, filled by a first round of asking and answered from in a second."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._tracks: dict[tuple[object, ...], _Tracks] = {}
        self.passing: list[object] = []
        """Who passes columns by, below all boxes."""

    def below_row(self, box: Box, row: int, user: object) -> float:
        last = row == len(box.rows) - 1
        bottom = box.rows[row][1]
        return self._place(("row", box.subquery.heads, row), bottom, BOX_PADDING if last else ROW_GAP, user)

    def right_of_lane(self, box: Box, lane: int, user: object) -> float:
        last = lane == box.lanes - 1
        right = box.right_of_lane(lane)
        return self._place(("lane", box.subquery.heads, lane), right, BOX_PADDING if last else LANE_GAP, user)

    def corridor(self, level: int, user: object) -> float:
        """Return an x between a column and the words of the exchanges that lead into the next one."""
        return self._place(("corridor", level), self._layout.column_rights[level - 1], CORRIDOR_WIDTH, user)

    def below_all(self, user: object) -> float:
        if user not in self.passing:
            self.passing.append(user)
        return self._layout.height + PASSING_GAP * (self.passing.index(user) + 1)

    def _place(self, gap: tuple[object, ...], start: float, length: float, user: object) -> float:
        tracks = self._tracks.setdefault(gap, _Tracks(length, start))
        tracks.enter(user)
        return tracks.place_of(user)


def route_edges(facts: Facts, layout: Layout) -> tuple[list[Route], float]:
    """Return every edge of the picture, and how far below the layout the lowest of them runs."""
    gaps = _Gaps(layout)
    for _ in _route(facts, layout, gaps):
        pass  # the first round tells gaps how many tracks they have
    return list(_route(facts, layout, gaps)), PASSING_GAP * len(gaps.passing)


def _route(facts: Facts, layout: Layout, gaps: _Gaps) -> Iterator[Route]:
    for box in layout.boxes:
        for member in box.nodes:
            for child in facts.children_within(box.subquery, member):
                yield Route(tuple(_route_step(box, member, child, gaps)), exchange=False, ends_in_node=True)
            for exchange in facts.exchanges_behind(member):
                points = tuple(_route_exchange(layout, box, member, exchange, gaps))
                yield Route(points, exchange=True, ends_in_node=False)
    for head, pill in layout.pills.items():
        end = layout.box_of(head).nodes[head]
        points = ((pill.x + pill.width, pill.middle_y), (end.x, pill.middle_y))
        yield Route(points, exchange=True, ends_in_node=True)


def _route_step(box: Box, member: int, child: int, gaps: _Gaps) -> list[Point]:
    """Go from the bottom of a node to the top of one further down in its box."""
    start, end = box.nodes[member], box.nodes[child]
    (row, lane), (end_row, end_lane) = box.cells[member], box.cells[child]
    first, last = (start.middle_x, start.y + start.height), (end.middle_x, end.y)
    if lane == end_lane and _is_free(box, lane, row, end_row):
        return [first, last]
    if _is_free(box, end_lane, row, end_row):
        # Edges of one node share the way out of it.
        turn = gaps.below_row(box, row, ("from", member))
        return [first, (first[0], turn), (last[0], turn), last]
    arrival = gaps.below_row(box, end_row - 1, ("to", child))
    if _is_free(box, lane, row, end_row):
        return [first, (first[0], arrival), (last[0], arrival), last]
    turn = gaps.below_row(box, row, ("from", member))
    x = gaps.right_of_lane(box, lane, ("to", child))
    return [first, (first[0], turn), (x, turn), (x, arrival), (last[0], arrival), last]


def _route_exchange(layout: Layout, box: Box, member: int, exchange: Exchange, gaps: _Gaps) -> list[Point]:
    """Go from the right side of a node to the words of an exchange."""
    start, pill = box.nodes[member], layout.pills[exchange.head]
    points: list[Point] = list(_leave_box(box, member, start, gaps))
    x, y = gaps.corridor(exchange.level, exchange.head), points[-1][1]
    if exchange.level > box.subquery.level + 1:
        away = gaps.corridor(box.subquery.level + 1, ("passing", exchange.head))
        y = gaps.below_all(exchange.head)
        points += [(away, points[-1][1]), (away, y)]
    return [*points, (x, y), (x, pill.middle_y), (pill.x, pill.middle_y)]


def _leave_box(box: Box, member: int, start: PlacedNode, gaps: _Gaps) -> Iterator[Point]:
    row, lane = box.cells[member]
    yield start.x + start.width, start.middle_y
    if any(other_row == row and other_lane > lane for other_row, other_lane in box.cells.values()):
        x = gaps.right_of_lane(box, lane, ("out of", member))
        y = gaps.below_row(box, row, ("out of", member))
        yield x, start.middle_y
        yield x, y


def _is_free(box: Box, lane: int, above: int, below: int) -> bool:
    """Say whether nothing lies in a lane between two rows."""
    return not any(other == lane and above < row < below for row, other in box.cells.values())
