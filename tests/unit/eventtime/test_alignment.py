"""Who waits for whom, by where watermarks stand."""

from __future__ import annotations

from typing import Any

import polars as pl

import anabranch as ab
from anabranch.eventtime.flow.alignment import PATIENCE_US, Alignment, held_sources
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import END_OF_TIME
from anabranch.query.nodes import Watermark
from anabranch.query.plan import Plan, make_plan

SECOND = 1_000_000


def source(flow: ab.Flow, name: str, **watermark: Any) -> Any:
    schema = {"key": pl.Int64, "ts": pl.Datetime("us")}
    stream = flow.read(ab.memory(schema=schema), name=name)
    return stream.watermark("ts", **watermark) if watermark.pop("timed", True) else stream


def plan_of(flow: ab.Flow, *streams: Any) -> Plan:
    for stream in streams:
        stream.write(ab.to_memory())
    return make_plan(flow, 2)


def held(plan: Plan, *seconds: float | None, now: int = 0, alignment: Alignment | None = None) -> dict[int, Any]:
    """Return source → (whom it waits for, by how many seconds it is ahead) with watermarks at these seconds."""
    nodes = [node.id for node in plan.nodes.values() if isinstance(node.operation, Watermark)]
    current = {node: int(second * SECOND) for node, second in zip(nodes, seconds, strict=True) if second is not None}
    alignment = alignment or Alignment(plan, ends=False)
    alignment.end_batch(FlowTime(current=current), now)
    return {hold.source: (hold.waits_for, hold.ahead_us / SECOND) for hold in alignment.holds}


def test_who_is_further_ahead_than_allowed_waits_for_the_other() -> None:
    flow = ab.Flow("two")
    left, right = source(flow, "left"), source(flow, "right")
    plan = plan_of(flow, left.join(right, on="key", within="1s", align="10s"))
    assert held(plan, 20, 10) == {}
    assert held(plan, 20.5, 10) == {0: ((1,), 10.5)}
    assert held(plan, 10, 30) == {1: ((0,), 20)}
    assert held_sources(plan) == {0, 1}


def test_of_whom_nothing_was_seen_nobody_waits_for() -> None:
    flow = ab.Flow("two")
    left, right = source(flow, "left"), source(flow, "right")
    plan = plan_of(flow, left.join(right, on="key", within="1s", align="10s"))
    assert held(plan, 1_000, None) == {}
    assert held(plan, None, None) == {}


def test_joins_without_align_hold_nobody_back() -> None:
    flow = ab.Flow("two")
    left, right = source(flow, "left"), source(flow, "right")
    plan = plan_of(flow, left.join(right, on="key", within="1s"))
    assert held(plan, 1_000, 0) == {}
    assert held_sources(plan) == frozenset()


def test_sources_are_found_behind_steps_hops_and_unions() -> None:
    flow = ab.Flow("hops")
    north, south = source(flow, "north", timed=False), source(flow, "south", timed=False)
    united = north.union(south).watermark("ts").key_by("key").window("1s").agg(rows=ab.count())
    right = source(flow, "right").filter("key > 0")
    plan = plan_of(flow, united.join(right, on="key", within="1s", align="10s"))
    assert held(plan, 100, 0) == {0: ((2,), 100), 1: ((2,), 100)}
    assert held(plan, 0, 100) == {2: ((0, 1), 100)}


def test_of_a_union_only_the_part_that_is_ahead_waits_and_the_slowest_is_waited_for() -> None:
    flow = ab.Flow("parts")
    north, south, right = (source(flow, name) for name in ("north", "south", "right"))
    plan = plan_of(flow, north.union(south).join(right, on="key", within="1s", align="10s"))
    assert held(plan, 100, 5, 0) == {0: ((2,), 100)}
    assert held(plan, 100, 0, 50) == {0: ((2,), 50), 2: ((1,), 50)}


def test_a_source_of_both_inputs_never_waits() -> None:
    flow = ab.Flow("both")
    shared, right = source(flow, "shared"), source(flow, "right")
    plan = plan_of(flow, shared.join(shared.union(right), on="key", within="1s", align="10s"))
    assert held(plan, 100, 0) == {}
    assert held(plan, 0, 100) == {1: ((0,), 100)}


def test_who_is_ahead_in_several_joins_waits_for_all() -> None:
    flow = ab.Flow("chain")
    first, second, third = (source(flow, name) for name in ("first", "second", "third"))
    pairs = first.join(second, on="key", within="1s", align="10s")
    plan = plan_of(flow, pairs.join(third, on="key", within="1s", suffix="_third", align="1m"))
    assert held(plan, 100, 0, 20) == {0: ((1, 2), 100)}
    assert held(plan, 0, 0, 100) == {2: ((0, 1), 100)}


def test_the_slowest_of_those_who_wait_comes_first() -> None:
    flow = ab.Flow("chain")
    first, second, third = (source(flow, name) for name in ("first", "second", "third"))
    pairs = first.join(second, on="key", within="1s", align="10s")
    plan = plan_of(flow, pairs, second.join(third, on="key", within="1s", align="10s"))
    assert list(held(plan, 100, 50, 0)) == [1, 0]


def test_patience_ends_when_the_other_stands_still_and_begins_anew_when_it_moves() -> None:
    flow = ab.Flow("two")
    left, right = source(flow, "left"), source(flow, "right")
    plan = plan_of(flow, left.join(right, on="key", within="1s", align="10s"))
    alignment = Alignment(plan, ends=False)
    assert held(plan, 100, 0, now=0, alignment=alignment)
    assert alignment.holds[0].until_us == PATIENCE_US
    assert held(plan, 120, 0, now=PATIENCE_US - 1, alignment=alignment)
    assert not held(plan, 120, 0, now=PATIENCE_US, alignment=alignment)
    assert held(plan, 120, 1, now=PATIENCE_US + 1, alignment=alignment)
    assert alignment.holds[0].until_us == 2 * PATIENCE_US + 1


def test_patience_is_no_longer_than_the_other_needs_to_be_idle() -> None:
    flow = ab.Flow("two")
    left, right = source(flow, "left", idle="3s"), source(flow, "right", idle="5s")
    plan = plan_of(flow, left.join(right, on="key", within="1s", align="10s"))
    alignment = Alignment(plan, ends=False)
    held(plan, 100, 0, now=7, alignment=alignment)
    assert alignment.holds[0].until_us == 7 + 5 * SECOND


def test_who_reads_to_an_end_has_all_patience() -> None:
    flow = ab.Flow("two")
    left, right = source(flow, "left"), source(flow, "right")
    plan = plan_of(flow, left.join(right, on="key", within="1s", align="10s"))
    alignment = Alignment(plan, ends=True)
    held(plan, 100, 0, alignment=alignment)
    assert held(plan, 100, 0, now=10 * PATIENCE_US, alignment=alignment)
    assert alignment.holds[0].until_us == END_OF_TIME
