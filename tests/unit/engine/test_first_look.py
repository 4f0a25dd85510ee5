"""The first look at keys: what it reads, what strategies make of it, and that a batch goes the same ways again."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.batches import first_look
from anabranch.engine.batches.batch_routes import count_slots, load_routes
from anabranch.engine.batches.first_look import FirstLook, choose_splits, look_file
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.eventtime.flow.operator_times import operator_times
from anabranch.model import RunRef
from anabranch.query.plan import make_plan
from anabranch.query.streams import Stream
from anabranch.routing import KeyBatch, RangeRoute
from anabranch.routing.phases import FlowRoutes, PhasedRoutes
from anabranch.state.manifest import LevelState, Manifest

SLOTS = 4


class Looked:
    """A flow, its first batch, and the look that is taken at it."""

    def __init__(self, folder: Path, routing: Any, frames: list[pl.DataFrame], steps: Any = None) -> None:
        flow = ab.Flow("test")
        source = ab.memory(*frames)
        stream: Stream = flow.read(source)
        self.first = (stream if steps is None else steps(stream)).key_by("key", routing=routing).agg(n=ab.count())
        self.first.key_by("n", routing=routing).agg(m=ab.count())
        self.program = FlowProgram(
            plan=make_plan(flow, SLOTS),
            sources=dict(enumerate(flow.sources)),
            sinks={},
            checkpoint=str(folder),
            local_merge=False,
        )
        planner, position, splits = source.planner(), None, []
        for _ in frames:
            planned = planner.plan(position, 0.0)
            position, splits = planned.position, [*splits, *planned.splits]
        self.packs = ([(ordinal, 0, split) for ordinal, split in enumerate(splits)],)
        self.head, self.behind = (node.id for node in self.program.plan.stateful)
        self.look = FirstLook(self.program, 64)

    def route(self, before: Manifest | None = None) -> FlowRoutes:
        given: Any = SimpleNamespace(batch=0, packs=self.packs, outer=None, waits=SimpleNamespace(told=nullcontext))
        routes = load_routes(self.program.plan, before, 64)
        return self.look.route(given, before, routes, self.spec)

    def spec(self, routes: FlowRoutes) -> BatchSpec:
        times = operator_times(self.program.plan, None, 0, routes, draining=False, now_us=0, since_us=0)
        return BatchSpec(0, 1, 0, "look", times, count_slots(self.program.plan, routes), routes, {})


def keys(*values: int) -> pl.DataFrame:
    return pl.DataFrame({"key": pl.Series(values, dtype=pl.Int64)})


SPREAD = [keys(*range(first, first + 100)) for first in range(0, 400, 100)]


def test_ranges_are_cut_before_the_first_row_by_keys_of_all_splits(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD)
    found = looked.route()[looked.head].routes
    assert isinstance(found.base, RangeRoute)
    held = found.storage_slots(KeyBatch.of(pl.concat(SPREAD), ["key"]))
    assert [int((held == slot).sum()) for slot in range(SLOTS)] == pytest.approx([100] * 4, abs=2)


def test_an_operator_behind_another_has_no_keys_yet(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD)
    before = load_routes(looked.program.plan, None, 64)[looked.behind]
    assert looked.route()[looked.behind] == before


def test_the_look_goes_through_the_steps_before_the_operator(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD, lambda stream: stream.filter("key < 40"))
    bounds = looked.route()[looked.head].routes.base
    assert isinstance(bounds, RangeRoute)
    assert max(bounds.bounds) < 40  # type: ignore[type-var]


def test_a_batch_tried_again_goes_the_same_ways_until_it_is_committed(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD)
    first = looked.route()
    # A later driver: the look would find other keys now.
    later = Looked(tmp_path, "ranges", [keys(*range(5_000, 5_100))])
    assert later.route() == first
    later.look.forget(0)
    assert not later.program.store.exists(look_file(0))
    assert later.route() != first


@pytest.mark.parametrize("routing", ["least-key", ab.NamedStrategy("ranges", powers=[2, 1, 1, 1])])
def test_what_was_kept_for_another_strategy_is_not_taken(tmp_path: Path, routing: Any) -> None:
    Looked(tmp_path, "ranges", SPREAD).route()
    other = Looked(tmp_path, routing, SPREAD)
    assert other.route()[other.head].routes.by == str(other.first.node.operation.routing.named)  # type: ignore[union-attr]


def test_a_damaged_file_of_a_look_is_looked_for_anew(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD)
    expected = looked.route()
    looked.program.store.write(look_file(0), b"{")
    assert Looked(tmp_path, "ranges", SPREAD).route() == expected


def test_a_look_ends_by_the_clock_and_has_seen_all_corners_by_then(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD)
    ticks = iter(range(0, 100, 1))
    looked.look.clock = lambda: float(next(ticks))
    found = looked.route()[looked.head].routes.base
    assert isinstance(found, RangeRoute)
    # Of four splits two or three were begun: the first, and one from the middle.
    assert min(found.bounds) < 200 <= max(found.bounds)  # type: ignore[type-var]


@pytest.mark.parametrize("splits", [1, 2, 5, 16, 17, 1_000])
def test_splits_are_from_all_over_the_batch_and_so_are_the_first_of_them(splits: int) -> None:
    packs = ([(number, 0, {"n": number}) for number in range(splits)],)
    chosen = [ordinal for ordinal, _, _ in choose_splits(packs)]
    assert len(chosen) == len(set(chosen)) == min(splits, first_look.MOST_SPLITS)
    assert choose_splits(packs) == choose_splits(packs)
    if splits in (16, 1_000):
        quarters = [chosen[number] * 4 // splits for number in range(4)]
        assert sorted(quarters) == [0, 1, 2, 3]


def test_few_rows_of_many_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_look, "MOST_ROWS", 40)
    looked = Looked(tmp_path, ab.NamedStrategy("least-key", sticky=True), SPREAD)
    table = looked.route()[looked.head].routes.table
    assert 4 <= len(table) <= 40


def test_an_operator_with_state_keeps_its_routes(tmp_path: Path) -> None:
    looked = Looked(tmp_path, "ranges", SPREAD)
    even = load_routes(looked.program.plan, None, 64)
    runs = ((RunRef("state/1/0", 1, 10, "0", 0),), (), (), ())
    held = Manifest("test", {}, 0, 1, "q", None, None, (LevelState("agg", even[looked.head].to_json(), runs),))
    assert looked.route(held)[looked.head] == even[looked.head]
    empty = replace(held, levels=(LevelState("agg", even[looked.head].to_json(), ((),) * 4),))
    assert looked.route(empty)[looked.head] != even[looked.head]


def test_a_step_that_fails_leaves_keys_to_their_hash_and_is_told_by_the_batch(tmp_path: Path) -> None:
    def fail(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            raise ValueError("no")
        return frame

    looked = Looked(tmp_path, "ranges", SPREAD, lambda stream: stream.map_batches(fail))
    assert looked.route() == load_routes(looked.program.plan, None, 64)
    assert not looked.program.store.exists(look_file(0))


def test_routes_say_in_the_manifest_which_strategy_made_them(tmp_path: Path) -> None:
    looked = Looked(tmp_path, ab.NamedStrategy("least-key", sticky=True), SPREAD)
    phases = looked.route()[looked.head]
    assert PhasedRoutes.from_json(phases.to_json()).routes.by == "least-key sticky=true"
    without = {name: value for name, value in phases.to_json().items() if name != "by"}
    assert PhasedRoutes.from_json(without) == phases
