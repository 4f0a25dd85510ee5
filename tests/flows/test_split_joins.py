"""Split keys of joins: one side is copied to all slots of a key, and which one it is may change."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest

import anabranch as ab
from anabranch.control.decisions import Decision, ReconfigurationProtocol, RouteChange
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.observe.state_sizes import merge_sizes
from anabranch.control.reported import BatchReport
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import RoutingTable
from anabranch.model.loads import StateSizes
from anabranch.routing import KeyBatch, Routes, hash_keys
from anabranch.routing.phases import FlowRoutes, PhasedRoutes
from anabranch.state import Checkpoint, open_store
from anabranch.state.inspect import read_rows
from anabranch.state.manifest import Manifest
from anabranch.testing import FlowTester
from flows.running import FlowBench

START = datetime(2026, 1, 1)
SLOTS = 4
BATCHES = 9
HOT = int(hash_keys(pl.DataFrame({"key": [1]}), ["key"])[0])
Placement = tuple[tuple[int, ...], bool]
"""The slots of the hot key, and whether its left rows are copied instead of its right ones."""


class Script:
    """Places the hot key, batch by batch, as it is told."""

    def __init__(
        self, placements: Sequence[Placement], protocol: ReconfigurationProtocol = "state", slots: int | None = None
    ) -> None:
        self._placements = placements
        self._protocol = protocol
        self._slots = slots
        self.handed_bytes: list[int] = []
        self.waiting_batches = 0

    def __call__(self, program: FlowProgram) -> Script:
        return self

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        return {}

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        changes = {}
        for head, phases in routes.items():
            if phases.earlier is not None:
                self.waiting_batches += 1
                continue
            slots, swapped = self._placements[batch % len(self._placements)]
            table = RoutingTable.of({HOT: dict.fromkeys(slots, 1 / len(slots))})
            base = phases.routes.base
            if self._slots is not None and batch:
                base = base.resized(self._slots)
            following = replace(phases.routes, base=base, table=table, swapped=(HOT,) if swapped else ())
            if following != phases.routes:
                changes[head] = RouteChange(following, self._protocol)
        return Decision(batch, changes)

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        self.handed_bytes.append(sum(operator.handed_bytes for operator in report.operators.values()))


def make_side(chance: random.Random, column: str, rows: int, batches: int = BATCHES) -> list[pl.DataFrame]:
    """Return batches of rows of a hot key and two others."""
    frames = []
    for batch in range(batches):
        keys = [chance.choice((1, 1, 1, 2, 3)) for _ in range(rows)]
        times = [START + timedelta(seconds=10 * batch + chance.randrange(10)) for _ in range(rows)]
        # Some rows are equal in everything.
        values = [chance.randrange(rows) for _ in range(rows)]
        frames.append(pl.DataFrame({"key": keys, "ts": times, column: values}))
    return frames


def join_at_once(left: Sequence[pl.DataFrame], right: Sequence[pl.DataFrame]) -> list[Any]:
    pairs = pl.concat(left).join(pl.concat(right), on="key", suffix="_right")
    near = pairs.filter((pl.col("ts") - pl.col("ts_right")).abs() <= timedelta(seconds=25))
    return sorted(near.select("key", "ts", "a", "ts_right", "b").rows())


def run_join(
    bench: FlowBench, sides: Sequence[Sequence[pl.DataFrame]], steer: Any, delay: str = "1h", **settings: Any
) -> list[Any]:
    flow, sink = ab.Flow("joins"), ab.to_memory()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay=delay) for frames in sides)
    left.join(right, on="key", within="25s").write(sink)
    bench.run_steered(flow, [sink], steer, slots=SLOTS, buckets=16, **settings)
    return sorted(sink.frame().select("key", "ts", "a", "ts_right", "b").rows())


WAYS: Mapping[str, Sequence[Placement]] = {
    "the sides change places": [((0, 1, 2), False), ((0, 1, 2), True)],
    "the sides change places and slots change": [((0, 1), False), ((1, 2), True), ((0, 3), False), ((2,), False)],
    "a copied side comes together": [((0, 1, 3), True), ((2,), False)],
    "a copied side goes to other slots": [((0, 1), True), ((2, 3), True), ((2, 3), False)],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_found_once_whichever_side_of_a_key_is_copied(bench: FlowBench, way: str, seed: int) -> None:
    chance = random.Random(seed)
    sides = [make_side(chance, "a", 12), make_side(chance, "b", 12)]
    script = Script(WAYS[way])
    assert run_join(bench, sides, script) == join_at_once(*sides)
    assert sum(size > 0 for size in script.handed_bytes) > 3


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("seed", [1])
def test_rows_of_split_keys_that_met_nobody_come_out_once(bench: FlowBench, how: str, seed: int) -> None:
    chance = random.Random(seed)
    sides = [make_side(chance, column, 5, 20) for column in ("a", "b")]
    script = Script([((0, 1), False), ((0, 2, 3), False), ((1,), False), ((2, 3), False), ((1, 2), False)])
    flow, sink = ab.Flow("joins"), ab.to_memory()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay="10s") for frames in sides)
    left.join(right, on="key", within="3s", how=how).write(sink)
    bench.run_steered(flow, [sink], script, slots=SLOTS, buckets=16)
    rows = duckdb.connect()
    for name, frames in zip("lr", sides, strict=True):
        rows.register(name, pl.concat(frames).with_columns(pl.int_range(pl.len()).alias("id")))
    columns = "l.key, l.ts, l.a" if how in ("semi", "anti") else "coalesce(l.key, r.key), l.ts, l.a, r.ts, r.b"
    near = "l.key = r.key AND abs(epoch(l.ts) - epoch(r.ts)) <= 3"
    expected = rows.execute(f"SELECT {columns} FROM l {how} JOIN r ON {near}").fetchall()
    assert sorted(map(repr, sink.frame().drop("joined_at").rows())) == sorted(map(repr, expected))
    assert sum(size > 0 for size in script.handed_bytes) > 5


@pytest.mark.parametrize("slots", [None, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_key_of_an_interval_join_moves_without_its_state_when_its_rows_have_met_all_they_can(
    bench: FlowBench, seed: int, slots: int | None
) -> None:
    chance = random.Random(seed)
    sides = [make_side(chance, column, 12, 20) for column in ("a", "b")]
    script = Script([((0,), False), ((1,), False), ((0,), False), ((1,), False)], "window", slots)
    assert run_join(bench, sides, script, delay="10s") == join_at_once(*sides)
    assert script.waiting_batches > 5
    assert not any(script.handed_bytes)


def make_skewed(column: str, rows: int, hot_share: float, batches: int = 5) -> list[pl.DataFrame]:
    """Return batches in which one key has a share of the rows, and a thousand others the rest."""
    hot = round(rows * hot_share)
    keys = pl.Series("key", [1] * hot + [2 + number % 1000 for number in range(rows - hot)], dtype=pl.Int64)
    return [
        pl.DataFrame([keys.shuffle(seed=batch)]).with_columns(
            pl.lit(START + timedelta(hours=batch)).alias("ts"), pl.int_range(pl.len()).alias(column)
        )
        for batch in range(batches)
    ]


def run_skewed(
    bench: FlowBench, left: list[pl.DataFrame], right: list[pl.DataFrame], how: str, oversized: Any = "fill"
) -> tuple[Any, Routes]:
    """Return what came of a join whose slots are balanced, and its last routes."""
    flow, sink = ab.Flow("joins"), ab.to_memory()
    balance = ab.Balance(fewest_rows_a_slot=500, sample_rate=1.0, oversized=oversized)
    streams = [flow.read(ab.memory(*frames)).watermark("ts") for frames in (left, right)]
    streams[0].join(streams[1], on="key", within="0s", how=how, balance=balance).write(sink)
    checkpoint = bench.new_checkpoint()
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint, slots=SLOTS, drain=False)
    (level,) = Checkpoint(open_store(checkpoint)).latest().levels
    return got, PhasedRoutes.from_json(level.routes).routes


class Measuring(Script):
    """Has the state of hot keys measured."""

    def __init__(self) -> None:
        super().__init__([((0, 1), False)])
        self.measured: list[StateSizes] = []

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        return {head: Watch(16, 1.0) for head in routes}

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        measured = [merge_sizes(operator.sizes, SLOTS, 16) for operator in report.operators.values()]
        self.measured += [sizes for sizes in measured if sizes is not None]


def test_the_state_of_a_hot_key_is_measured_by_input(bench: FlowBench) -> None:
    script = Measuring()
    left, right = make_skewed("a", 600, 0.5, 3), make_skewed("b", 200, 0.5, 3)
    run_join(bench, [left, right], script)
    sizes = script.measured[-1]
    # Two slots share the left rows and have the right ones twice: the rows of an hour before are still there.
    row_bytes = sizes.key_left_bytes[HOT] / (3 * 300)
    assert row_bytes >= 8 * 4
    assert sizes.key_bytes[HOT] - sizes.key_left_bytes[HOT] == pytest.approx(2 * 3 * 100 * row_bytes, rel=0.02)
    assert sizes.bucket_bytes.sum() > 1.5 * sizes.key_bytes[HOT]


@pytest.mark.parametrize(
    ("left", "right", "how", "swapped"),
    [
        (8_000, 800, "inner", ()),
        (800, 8_000, "inner", (HOT,)),
        # Slots must know whether a left row met somebody, so it is on one of them, however few there are.
        (800, 8_000, "left", ()),
    ],
)
def test_the_larger_side_of_a_hot_key_stays_and_the_smaller_is_copied(
    bench: FlowBench, left: int, right: int, how: str, swapped: tuple[int, ...]
) -> None:
    got, routes = run_skewed(bench, make_skewed("a", left, 0.5), make_skewed("b", right, 0.5), how)
    assert HOT in routes.table.split_keys()
    assert routes.swapped == swapped
    rows = got.progress[-1].rows_in
    copied = len(routes.table.owners(HOT)) - 1
    larger_is_shared = max(left, right) == (left if not swapped else right)
    small, large = sorted((left // 2, right // 2))
    assert rows == left + right
    received = sum(got.progress[-1].slot_rows)
    assert received == rows + copied * (small if larger_is_shared else large)


def test_a_key_whose_rows_come_from_the_other_side_now_has_the_other_side_copied(bench: FlowBench) -> None:
    left = make_skewed("a", 8_000, 0.5, 4) + make_skewed("a", 800, 0.5, 9)[4:]
    right = make_skewed("b", 800, 0.5, 4) + make_skewed("b", 8_000, 0.5, 9)[4:]
    _, before = run_skewed(bench, left[:4], right[:4], "inner")
    got, after = run_skewed(bench, left, right, "inner")
    assert (before.swapped, after.swapped) == ((), (HOT,))
    assert got.progress[-1].max_over_mean < 1.1


def test_a_plan_counts_the_copies_that_it_makes(bench: FlowBench) -> None:
    got, routes = run_skewed(bench, make_skewed("a", 6_000, 0.6), make_skewed("b", 4_000, 0.6), "inner")
    assert len(routes.table.owners(HOT)) > 1
    planned = [entry for entry in got.progress if entry.changes]
    assert planned
    copies = (len(routes.table.owners(HOT)) - 1) * 2_400
    assert planned[-1].plan_costs["join"]["split_load"] == pytest.approx(copies, rel=0.01)
    assert got.progress[-1].max_over_mean < 1.1


def make_cooling(column: str, rows: int, hot: int = 4, cold: int = 8) -> list[pl.DataFrame]:
    """Return batches in which a key is hot, and then others in which it has three rows."""
    return make_skewed(column, rows, 0.5, hot) + make_skewed(column, rows, 3 / rows, hot + cold)[hot:]


def sum_up(pairs: pl.DataFrame) -> list[Any]:
    """Return the pairs of each key and hour in a few numbers that only the same pairs have."""
    product = (pl.col("a") + 1) * (pl.col("b") + 7)
    sums = pairs.group_by("key", "ts").agg(pl.len(), pl.sum("a"), pl.sum("b"), product.sum().alias("products"))
    return sorted(map(repr, sums.rows()))


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("oversized", ["fill", "alone"])
def test_a_split_key_of_a_join_that_cooled_is_whole_again_and_no_pair_is_lost(
    bench: FlowBench, how: Any, oversized: str
) -> None:
    left, right = make_cooling("a", 3_000), make_cooling("b", 1_500)
    got, routes = run_skewed(bench, left, right, how, oversized)
    changes = [change for entry in got.progress for change in entry.changes]
    assert "1 key is split" in changes[0]
    assert any("1 key is whole again" in change for change in changes)
    assert not len(routes.table.keys)
    assert routes.swapped == ()
    # All rows of both sides are of keys and hours that the other side has, too, but for those of the end.
    found = got.sinks[0].frame().drop_nulls(["a", "b"])
    assert sum_up(found) == sum_up(pl.concat(left).join(pl.concat(right), on=["key", "ts"]))


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_key_of_a_join_that_is_too_hot_for_any_slot_has_slots_alone_if_that_is_wished(
    bench: FlowBench, how: Any
) -> None:
    left, right = make_skewed("a", 3_000, 0.6), make_skewed("b", 1_500, 0.6)
    shared = {}
    for oversized in ("fill", "alone"):
        got, routes = run_skewed(bench, left, right, how, oversized)
        keys = pl.DataFrame({"key": range(1, 1002)})
        homes = routes.storage_slots(KeyBatch.of(keys.filter(pl.col("key") > 1), ["key"]))
        shared[oversized] = set(homes.tolist())
        assert HOT in routes.table.split_keys()
        found = got.sinks[0].frame().drop_nulls(["a", "b"])
        assert sum_up(found) == sum_up(pl.concat(left).join(pl.concat(right), on=["key", "ts"]))
    assert shared["fill"] == set(range(SLOTS))
    # Two slots have rows of no other key.
    assert len(shared["alone"]) == 2
    alone = [owner for owner in routes.table.owners(HOT) if owner.slot not in shared["alone"]]
    assert len(alone) == 2 and sum(owner.share for owner in alone) > 0.9


@pytest.mark.parametrize(("within", "fewest"), [(None, 150), ("1h", 0)])
def test_slots_that_come_to_a_key_get_their_share_of_what_is_kept_for_ever(within: str | None, fewest: int) -> None:
    past = pl.DataFrame({"key": [1] * 800, "ts": [START] * 800, "a": range(800)})
    later = past.head(1).rename({"a": "b"})
    flow = ab.Flow("joins")
    left, right = (flow.read(ab.memory(rows.clear())).watermark("ts") for rows in (past, later))
    left.join(right, on="key", within=within, name="join").write(ab.to_memory())
    with FlowTester(flow, slots=4) as tester:
        tester.add(past, 0).run()
        tester.split(1, [0, 1, 2, 3])
        tester.tick()
        tester.add(later, 1).run()
        assert sorted(tester.results()["a"]) == list(range(800))
        store = open_store(tester.checkpoint)
        manifest = Checkpoint(store).latest()
        assert manifest is not None
        kept = read_rows(store, manifest.levels[0])
    counts = [kept.filter(pl.col("__slot") == slot, pl.col("a").is_not_null()).height for slot in range(4)]
    assert sum(counts) == 800 and min(counts) >= fewest
    assert fewest or max(counts) == 800
