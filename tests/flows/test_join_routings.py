"""Joins under every routing: answers are the same, and slots get what theory says."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.faults import MOMENTS, Killed, killed_at
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.routing import BipartiteRoute, GridRoute
from anabranch.routing.phases import PhasedRoutes
from anabranch.state import Checkpoint, open_store
from anabranch.testing import FlowTester
from flows.running import FlowBench
from flows.test_joins import START, check, make_rows
from flows.wild_steering import WildSteering

DEALING = ("grid", "matrix", "bi", "bi6")
ROUTINGS = (*DEALING, "hash", "pkg", "w-choices", "ranges", "modulo", "consistent-hash", "least-count")


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("seed", range(5))
def test_an_inner_join_answers_as_duckdb_under_every_routing_and_bound(
    bench: FlowBench, routing: str, seed: int
) -> None:
    check(bench, seed, routing=routing, how="inner")


@pytest.mark.parametrize("routing", DEALING)
@pytest.mark.parametrize("seed", range(60, 68))
def test_rows_that_are_dealt_to_slots_stay_findable_while_the_routes_change(
    bench: FlowBench, routing: str, seed: int
) -> None:
    check(bench, seed, routing=routing, how="inner", moving=True)


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("seed", range(3))
def test_two_choices_a_key_do_for_joins_that_tell_who_met_nobody(bench: FlowBench, how: str, seed: int) -> None:
    check(bench, seed, routing="pkg", how=how)


@pytest.mark.parametrize("splitting", ["pkg", "w-choices"])
@pytest.mark.parametrize("routing", ["ranges", "modulo"])
def test_a_full_join_by_values_tells_who_met_nobody_once_its_keys_are_split(routing: str, splitting: str) -> None:
    flow = ab.Flow("joins")
    schema = {"key": pl.Int64, "ts": pl.Datetime("us")}
    sides = [
        flow.read(ab.memory(pl.DataFrame(schema=schema | {column: pl.Int64})), name=column).watermark("ts")
        for column in ("a", "b")
    ]
    sides[0].join(sides[1], on="key", within="1s", how="full", routing=routing).write(ab.to_memory())
    chance = random.Random(3)
    frames: dict[str, list[pl.DataFrame]] = {"a": [], "b": []}
    with FlowTester(flow, slots=4) as tester:
        for batch in range(4):
            for column, kept in frames.items():
                keys = [chance.choice([None, *range(40)]) for _ in range(50)]
                times = [START + timedelta(seconds=10 * batch)] * len(keys)
                numbers = pl.int_range(100 * batch, 100 * batch + len(keys), eager=True)
                kept.append(pl.DataFrame({"key": keys, "ts": times, column: numbers}, schema_overrides=schema))
                tester.add(kept[-1], column)
            tester.run()
            if batch == 0:
                assert "takes effect" in tester.ctl("strategy", name=splitting)
        tester.drain()
        found = tester.results().select("key", "a", "b").rows()
    left, right = (pl.concat(kept) for kept in frames.values())
    pairs = left.join(right, on=["key", "ts"], how="full", coalesce=True)
    assert pairs.get_column("a").null_count() > 10
    assert pairs.get_column("b").null_count() > 10
    assert sorted(map(repr, found)) == sorted(map(repr, pairs.select("key", "a", "b").rows()))


class Drivers:
    """Drivers of one join that is dealt to slots while its routes change, each taking over from the one before."""

    def __init__(self, folder: Path, routing: str) -> None:
        chance = random.Random(5)
        self._sides = [ab.memory(*make_rows(chance, column, 4, 3), max_frames=1) for column in ("a", "b")]
        self._folder = folder
        self._routing = routing

    def open(self) -> LocalRun:
        flow = ab.Flow("killed")
        left, right = (flow.read(side).watermark("ts", delay="1h") for side in self._sides)
        left.join(right, on="key", within="6s", routing=self._routing).write(ab.parquet(self._folder / "pairs"))
        settings = make_settings(
            checkpoint=str(self._folder / "state"), trigger="available-now", drain=True, takeover=True, slots=3
        )
        return LocalRun(flow, settings, make_steering=lambda program: WildSteering(7, program, [{"key": 1}]))

    def finish(self) -> list[Any]:
        run = self.open()
        run.run_to_end()
        run.close()
        return sorted(map(repr, pl.read_parquet(self._folder / "pairs/*.parquet").rows()))


@pytest.mark.parametrize("routing", DEALING)
def test_drivers_killed_at_every_moment_leave_the_same_pairs(tmp_path: Path, routing: str) -> None:
    undisturbed = Drivers(tmp_path / "undisturbed", routing).finish()
    assert undisturbed
    drivers = Drivers(tmp_path / "killed", routing)
    kills = 0
    for number, moment in enumerate(MOMENTS):
        run = drivers.open()
        try:
            with killed_at(moment, number % 4):
                run.run_to_end()
        except Killed:
            kills += 1
        run.abandon()
    assert drivers.finish() == undisturbed
    assert kills >= 4


def make_even(column: str, rows: int) -> pl.DataFrame:
    """Return rows of one hot key and some others."""
    numbers = pl.int_range(rows, eager=True)
    return pl.DataFrame(
        {
            "key": (numbers % 10).replace_strict({9: 2, 8: 1}, default=0),
            "ts": [START] * rows,
            column: numbers,
        }
    )


def count_received(bench: FlowBench, routing: str, left: int, right: int, slots: int) -> np.ndarray[Any, Any]:
    """Return how many rows each slot of a join got."""
    flow, sink = ab.Flow("joins"), ab.to_memory()
    sides = (ab.memory(make_even(column, rows)) for column, rows in (("a", left), ("b", right)))
    one, other = (flow.read(side).watermark("ts") for side in sides)
    one.filter("a >= 0").join(other, on="key", within="1s", routing=routing, name="join").write(sink)
    seen: list[Any] = []

    class Looking(WildSteering):
        def decide(self, batch: int, routes: Any) -> Any:
            return type(super().decide(batch, routes))(batch, {})

        def observe(self, manifest: Any, report: Any, routes: Any) -> None:
            seen.append([operator.rows for operator in report.operators.values()])

    bench.run_steered(flow, [sink], lambda program: Looking(1, program, []), slots=slots)
    return np.array([rows for batch in seen for rows in batch]).sum(axis=0)


@pytest.mark.parametrize(("left", "right"), [(400, 400), (900, 100)])
def test_slots_get_as_many_rows_as_theory_says(bench: FlowBench, left: int, right: int) -> None:
    sides = (float(left), float(right))
    for routing, base in (
        ("grid", GridRoute.over(6)),
        ("matrix", GridRoute.over(6, doubles=True)),
        ("bi", BipartiteRoute(6)),
    ):
        received = count_received(bench, routing, left, right, 6)
        # Draws fill the slots as evenly as a golden-ratio sequence can.
        np.testing.assert_allclose(received, base.slot_rows(sides), atol=6)
        left_copies, right_copies = base.copies
        assert received.sum() == left * left_copies + right * right_copies
    assert GridRoute.over(6).copies in ((2, 3), (3, 2))


def test_groups_spare_the_slots_rows_of_other_keys(bench: FlowBench) -> None:
    whole, grouped = (count_received(bench, routing, 600, 600, 12).sum() for routing in ("bi", "bi6"))
    assert (whole, grouped) == (1200 * (1 + 6), 1200 * (1 + 1))


def test_a_matrix_takes_the_shape_that_suits_both_sides(bench: FlowBench) -> None:
    flow, sink = ab.Flow("joins"), ab.to_memory()
    many = [make_even("a", 2_000) for _ in range(6)]
    few = [make_even("b", 20) for _ in range(6)]
    one, other = (flow.read(ab.memory(*side, max_frames=1)).watermark("ts") for side in (many, few))
    balance = ab.Balance(fewest_rows_a_slot=10)
    one.join(other, on=["key"], within="1s", routing="matrix", balance=balance).key_by("key").agg(
        pairs=ab.count()
    ).write(sink)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], slots=8, checkpoint=checkpoint)
    manifest = Checkpoint(open_store(checkpoint)).latest()
    assert manifest is not None
    (level,) = (level for level in manifest.levels if level.operator == "join")
    base = PhasedRoutes.from_json(level.routes).routes.base
    assert base == GridRoute(8, 8, 1, doubles=True)
    counts = dict(sink.frame().group_by("key").agg(pl.col("pairs").max()).rows())
    assert counts == {0: 9_600 * 96, 1: 1_200 * 12, 2: 1_200 * 12}


def test_pairs_are_the_same_while_people_change_slots_and_strategies() -> None:
    flow = ab.Flow("joins")
    schema = {"key": pl.Int64, "ts": pl.Datetime("us")}
    sides = [
        flow.read(ab.memory(pl.DataFrame(schema=schema | {column: pl.Int64})), name=column).watermark("ts", delay="1h")
        for column in ("a", "b")
    ]
    sides[0].join(sides[1], on="key", ttl="1h", routing="matrix").write(ab.to_memory())
    commands: list[tuple[Any, dict[str, Any]]] = [
        ("slots", {"count": 5}),
        ("strategy", {"name": "bi6"}),
        ("slots", {"count": 2}),
        ("strategy", {"name": "hash"}),
        ("strategy", {"name": "grid"}),
        ("slots", {"count": 6}),
    ]
    frames: dict[str, list[pl.DataFrame]] = {"a": [], "b": []}
    with FlowTester(flow, slots=4) as tester:
        for number, (action, given) in enumerate(commands):
            for column, kept in frames.items():
                kept.append(make_even(column, 30).with_columns(pl.col(column) + 100 * number))
                tester.add(kept[-1], column)
            tester.run()
            assert "takes effect" in tester.ctl(action, **given)
            tester.tick()
        assert tester.state().height == 2 * 30 * len(commands)
        found = tester.results().select("key", "a", "b").rows()
    expected = pl.concat(frames["a"]).join(pl.concat(frames["b"]), on="key").select("key", "a", "b").rows()
    assert sorted(found) == sorted(expected)
