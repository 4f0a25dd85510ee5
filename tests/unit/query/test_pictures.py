"""In pictures of flows, edges run between boxes, and never behind one."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.operators.aggregates.functions import count
from anabranch.query import PARALLELISMS, FlowGraph, make_plan
from anabranch.query.explain.facts import gather_facts
from anabranch.query.explain.svg import explain_svg
from anabranch.query.explain.svg_layout import Box, Layout, Pill, PlacedNode, lay_out
from anabranch.query.explain.svg_routes import Point, Route, route_edges
from anabranch.query.streams import Stream
from property_tests import tries
from unit.query.fakes import FakeSink, FakeSource

WORDS = ("a", "filter that has many words, so that its box is higher than those beside it")


def low(stream: Stream, word: int) -> Stream:
    return (
        stream.filter(f"volts > {word}")
        if word % 2
        else stream.with_columns(text=f"'{WORDS[1]}'").select("sensor", "volts")
    )


def counted(stream: Stream) -> Stream:
    """Return a stream behind an exchange, with the columns of before."""
    return stream.key_by("sensor").agg(rows=count()).select("sensor", volts="CAST(rows AS DOUBLE)")


@st.composite
def flows(draw: st.DrawFn) -> FlowGraph:
    """Return any flow of steps, hops, unions and sinks."""
    flow = FlowGraph("drawn")
    sources = draw(st.integers(1, 3))
    streams = [flow.read(FakeSource(f"source {number}")).select("sensor", "volts") for number in range(sources)]
    for _ in range(draw(st.integers(1, 12))):
        one = draw(st.sampled_from(streams))
        match draw(st.sampled_from(["step", "hop", "union", "sink"])):
            case "step":
                streams.append(low(one, draw(st.integers(0, 3))))
            case "hop":
                streams.append(counted(one))
            case "union":
                streams.append(one.union(draw(st.sampled_from(streams))))
            case "sink":
                one.write(FakeSink("sink"))
    streams[-1].write(FakeSink("last"))
    return flow


def crosses(start: Point, end: Point, place: Box | PlacedNode | Pill) -> bool:
    """Say whether a stretch runs through the inside of a rectangle."""
    (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return left < place.x + place.width and right > place.x and top < place.y + place.height and bottom > place.y


def find_hidden(layout: Layout, routes: list[Route]) -> list[str]:
    """Return the stretches of edges that run behind something."""
    hidden = []
    places = [node for box in layout.boxes for node in box.nodes.values()] + list(layout.pills.values())
    for route in routes:
        for start, end in pairwise(route.points):
            assert start[0] == end[0] or start[1] == end[1], f"{start} to {end} is askew"
            hidden += [f"{start} to {end} behind {place}" for place in places if crosses(start, end, place)]
            for box in layout.boxes:
                ends_in_it = any(
                    box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height
                    for x, y in (route.points[0], route.points[-1])
                )
                if crosses(start, end, box) and not ends_in_it:
                    hidden.append(f"{start} to {end} behind the box {box.title}")
    return hidden


@tries(60)
@given(flows(), st.sampled_from(PARALLELISMS))
def test_no_edge_runs_behind_a_box(flow: FlowGraph, parallelism: str) -> None:
    facts = gather_facts(make_plan(flow, 4, parallelism))  # type: ignore[arg-type]
    layout = lay_out(facts, 100)
    routes, depth = route_edges(facts, layout)
    assert find_hidden(layout, routes) == []
    points = [point for route in routes for point in route.points]
    assert all(0 < x < layout.width and 100 < y <= layout.height + depth for x, y in points)


@tries(30)
@given(flows(), st.sampled_from(PARALLELISMS))
def test_every_edge_of_the_plan_is_drawn_from_its_node_to_its_node(flow: FlowGraph, parallelism: str) -> None:
    plan = make_plan(flow, 4, parallelism)  # type: ignore[arg-type]
    facts = gather_facts(plan)
    layout = lay_out(facts, 100)
    routes, _ = route_edges(facts, layout)
    steps = sum(len(facts.children_within(box.subquery, node)) for box in layout.boxes for node in box.nodes)
    exchanges = sum(len(facts.exchanges_behind(node)) for box in layout.boxes for node in box.nodes)
    assert len(routes) == steps + exchanges + len(layout.pills)
    drawn = ElementTree.fromstring(explain_svg(plan)).iter("{http://www.w3.org/2000/svg}path")
    assert sum(path.get("class") in ("step", "exchange") for path in drawn) == len(routes)


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_an_exchange_that_passes_levels_by_runs_below_their_boxes(parallelism: str) -> None:
    flow = FlowGraph("passing")
    rows = flow.read(FakeSource("source")).select("sensor", "volts")
    counted(counted(rows).union(rows)).write(FakeSink("sink"))
    facts = gather_facts(make_plan(flow, 4, parallelism))  # type: ignore[arg-type]
    layout = lay_out(facts, 100)
    routes, depth = route_edges(facts, layout)
    assert depth > 0
    assert any(y > layout.height for route in routes for _, y in route.points)
    assert find_hidden(layout, routes) == []


def test_edges_of_different_ends_do_not_run_in_one_track() -> None:
    flow = FlowGraph("tracks")
    rows = flow.read(FakeSource("source")).select("sensor", "volts")
    one, two = low(rows, 1), low(rows, 3)
    for stream in (one, two):
        counted(stream).write(FakeSink("sink"))
        stream.write(FakeSink("aside"))
    facts = gather_facts(make_plan(flow, 4, "operator-set"))
    layout = lay_out(facts, 100)
    routes, _ = route_edges(facts, layout)
    upright = {
        (start[0], route.points[-1])
        for route in routes
        if route.exchange
        for start, end in pairwise(route.points)
        if start[0] == end[0] and start[1] != end[1] and start[0] > layout.column_rights[0]
    }
    assert len({x for x, _ in upright}) == len(upright) == 2
