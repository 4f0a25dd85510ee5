"""Whatever moves, splits and merges while the stream runs: the answers are those of a single slot."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.routing import KeyBatch, Routes, hash_keys
from anabranch.routing.phases import PhasedRoutes
from anabranch.state import Checkpoint, open_store
from flows.random_flows import HELD_KINDS, KINDS, OWN_TIME_KINDS, SCHEMA, check, make_random_flow
from flows.running import START, FlowBench, frames_of, reading
from flows.test_transparency import BATCHES, answers, make_flow
from flows.wild_steering import WildSteering
from oracle import assert_same_batches, assert_same_rows
from wild_routes import BUCKETS

__all__ = ["answers"]

ROWS = [row for batch in BATCHES for row in batch] + [{"parity": parity} for parity in range(3)]


class Steerings:
    """Makes wild steerings, and remembers them."""

    def __init__(self, seed: int, rows: list[dict[str, Any]]) -> None:
        self._seed = seed
        self._rows = rows
        self.made: list[WildSteering] = []

    def __call__(self, program: FlowProgram) -> WildSteering:
        self.made.append(WildSteering(self._seed, program, self._rows))
        return self.made[-1]

    @property
    def handed_bytes(self) -> int:
        return sum(steering.handed_bytes for steering in self.made)

    @property
    def changes(self) -> int:
        return sum(steering.changes for steering in self.made)


@pytest.mark.parametrize("seed", range(3))
def test_random_moves_at_every_boundary_do_not_change_the_answers(
    bench: FlowBench, answers: list[Any], seed: int
) -> None:
    flow, sinks = make_flow()
    steer = Steerings(seed, ROWS)
    got = bench.run_steered(flow, sinks, steer, buckets=BUCKETS, local_merge=seed % 2 == 0)
    for sink, answer in zip(sinks, answers, strict=True):
        assert_same_batches(sink.batches(), answer.batches)
    assert steer.changes > 3
    assert steer.handed_bytes > 0
    assert got.late_rows == answers[2].late_rows


@pytest.mark.parametrize("seed", [11])
@pytest.mark.parametrize("kind", [*KINDS, *HELD_KINDS, *OWN_TIME_KINDS])
def test_a_random_flow_answers_as_the_oracle_while_its_keys_move(bench: FlowBench, kind: str, seed: int) -> None:
    case = make_random_flow(kind, seed)
    rows = [row for batch in case.batches() for row in batch]
    steer = Steerings(seed, rows)
    check(bench, case, steer)
    assert steer.changes > 0


def test_a_restart_after_every_batch_while_keys_move_does_not_change_the_answers(
    bench: FlowBench, answers: list[Any]
) -> None:
    flow, sinks = make_flow()
    checkpoint = bench.new_checkpoint()
    steer = Steerings(5, ROWS)
    for _ in BATCHES:
        bench.run_steered(flow, sinks, steer, checkpoint=checkpoint, trigger="once", drain=False, buckets=BUCKETS)
    bench.run_steered(flow, sinks, steer, checkpoint=checkpoint, buckets=BUCKETS)
    for sink, answer in zip(sinks, answers, strict=True):
        assert_same_rows(sink.frame().to_dicts(), answer.rows)
    assert steer.handed_bytes > 0


def test_split_keys_keep_their_own_time_over_restarts(bench: FlowBench) -> None:
    case = make_random_flow("own sliding", 4)
    case = replace(case, drain=True, keys=("key",), key_count=3, frames_per_batch=1, late="drop", early_seconds=5)
    expected, batches = case.answer(), case.batches()
    flow, sink = ab.Flow("test"), ab.to_memory()
    source = ab.memory(*frames_of(batches, SCHEMA), max_frames=1)
    case.build(flow.read(source)).write(sink)
    checkpoint = bench.new_checkpoint()
    steer = Steerings(1, [row for batch in batches for row in batch])
    for _ in batches:
        bench.run_steered(flow, [sink], steer, checkpoint=checkpoint, trigger="once", drain=False, buckets=BUCKETS)
    bench.run_steered(flow, [sink], steer, checkpoint=checkpoint, buckets=BUCKETS)
    assert_same_rows(sink.frame().to_dicts(), expected.rows)
    assert flow.read_state(checkpoint).is_empty()


def test_quantiles_of_split_keys_are_within_their_bounds(bench: FlowBench) -> None:
    chance = random.Random(3)
    batches = [
        [reading(min(chance.randrange(4), chance.randrange(4)), number * 4, 1, chance.gauss(0, 1)) for _ in range(3000)]
        for number in range(3)
    ]
    flow, sink = ab.Flow("test"), ab.to_memory()
    keyed = flow.read(ab.memory(*frames_of(batches))).watermark("ts", delay="60s").key_by("key")
    keyed.window("60s").agg(rows=ab.count(), middle=ab.median("real"), tail=ab.quantile("real", 0.99)).write(sink)
    steer = Steerings(2, [row for batch in batches for row in batch])
    bench.run_steered(flow, [sink], steer, buckets=BUCKETS)
    results = sink.frame().sort("key")
    assert results["key"].to_list() == [0, 1, 2, 3]
    for row in results.to_dicts():
        values = np.sort([r["real"] for batch in batches for r in batch if r["key"] == row["key"]])
        assert row["rows"] == len(values)
        # As far off as the guide says that t-digests may be, whatever the cut.
        for name, wanted, error in (("middle", 0.5, 0.02), ("tail", 0.99, 0.002)):
            assert np.searchsorted(values, row[name]) / len(values) == pytest.approx(wanted, abs=error)


def skewed_frames(batches: int, rows: int, keys: int, skew: float, changes_at: int) -> list[pl.DataFrame]:
    """Return a zipf stream; from one batch on, other keys are the hot ones."""
    rng = np.random.default_rng(3)
    weights = np.arange(1, keys + 1) ** -skew
    shares = np.cumsum(weights) / weights.sum()
    names = [rng.permutation(keys), rng.permutation(keys)]
    made = []
    for batch in range(batches):
        key = names[batch >= changes_at][np.searchsorted(shares, rng.random(rows))]
        seconds = 4 * batch + np.arange(rows) * 4 // rows
        times = pl.Series(seconds.astype("timedelta64[s]") + np.datetime64(START, "us"))
        made.append(pl.DataFrame({"key": key, "ts": times, "whole": rng.integers(0, 100, rows)}))
    return made


@pytest.mark.parametrize(
    ("skew", "per"),
    [(1.2, "flow"), (2.0, "flow"), (2.0, "key")],
    ids=["zipf 1.2", "one key exceeds a slot's share", "one with its own time does"],
)
def test_a_skew_that_moves_is_evened_out_within_three_batches(bench: FlowBench, skew: float, per: Any) -> None:
    changes_at = 4
    frames = skewed_frames(8, 40_000, 2_000, skew, changes_at)
    flow, sink = ab.Flow("skew"), ab.to_memory()
    balance = ab.Balance(fewest_rows_a_slot=500, sample_rate=1.0)
    keyed = flow.read(ab.memory(*frames)).key_by("key", balance=balance).watermark("ts", delay="1s", per=per)
    keyed.window("10s").agg(rows=ab.count(), total=ab.sum("whole")).write(sink)
    got = bench.run_flow(flow, [sink], slots=6, local_merge=False)
    loads = [entry.max_over_mean for entry in got.progress if entry.rows_in]
    # Batch 0 shows the skew, the end of batch 1 brings the change: batch 2 has it. The same holds when it moves.
    for seen in (0, changes_at):
        assert loads[seen] > 1.2
        assert loads[seen + 3] <= 1.05
    assert sum(entry.moved_bytes for entry in got.progress) > 0
    start = pl.col("ts").dt.truncate("10s").cast(pl.Datetime("us")).alias("window_start")
    expected = pl.concat(frames).group_by("key", start).agg(rows=pl.len().cast(pl.Int64), total=pl.col("whole").sum())
    columns = ["key", "window_start", "rows", "total"]
    order = ["key", "window_start"]
    assert sink.frame().select(columns).sort(order).equals(expected.select(columns).sort(order))


def test_the_number_of_slots_changes_at_a_restart_both_ways(bench: FlowBench, answers: list[Any]) -> None:
    flow, sinks = make_flow()
    checkpoint = bench.new_checkpoint()
    ran: list[list[int]] = []
    for slots in (2, 5, 1):
        got = bench.run_flow(flow, sinks, checkpoint=checkpoint, slots=slots, trigger="once", drain=False)
        ran.append([len(entry.slot_rows) for entry in got.progress])
    got = bench.run_flow(flow, sinks, checkpoint=checkpoint, slots=None)
    for sink, answer in zip(sinks, answers, strict=True):
        assert_same_rows(sink.frame().to_dicts(), answer.rows)
    # What is asked for at a start counts from its second batch on: state follows at the end of the first.
    assert [counts[0] for counts in ran] == [2, 2, 5]
    assert {len(entry.slot_rows) for entry in got.progress} == {1}


class Notes(ab.Processor):
    """Keeps what every row says."""

    said = ab.listed(pl.String())

    def on_time(self, row: Any, state: Any, timers: Any) -> None:
        state.said.append("x" * 40 if row["wordy"] else "x")


def keys_by_slot(slots: int, count: int) -> list[list[int]]:
    """Return so many keys of each slot, by rising hash, as even routes over the default buckets put them."""
    frame = pl.DataFrame({"key": pl.Series(range(40 * count * slots), dtype=pl.Int64)})
    homes = Routes.even(slots, 512).home_slots(KeyBatch.of(frame, ["key"]))
    order = np.argsort(hash_keys(frame, ["key"]).to_numpy())
    return [[int(key) for key in order if homes[key] == slot][:count] for slot in range(slots)]


def test_of_two_keys_with_as_many_rows_the_one_with_less_state_moves(bench: FlowBench) -> None:
    """Two slots have two hot keys each; in the second of them, the one with much state has the smaller hash."""
    tails = keys_by_slot(4, 52)
    light, heavy = {tails[0].pop(0), tails[1].pop()}, {tails[0].pop(), tails[1].pop(0)}
    rows = [key for keys in tails for key in keys[:50] for _ in range(20)]
    rows += [key for key in (*light, *heavy) for _ in range(1000)]
    frames = []
    for batch in range(4):
        key = pl.Series("key", rows, dtype=pl.Int64).shuffle(seed=batch)
        wordy = key.is_in(list(heavy)).alias("wordy")
        frame = pl.DataFrame([key, wordy, pl.Series("ts", [START + timedelta(seconds=batch)] * len(rows))])
        numbers = pl.int_range(pl.len()) + batch * len(rows)
        frames.append(frame.with_columns(other=pl.when("wordy").then(numbers).otherwise(0)))
    flow, counted, noted = ab.Flow("costs"), ab.to_memory(), ab.to_memory()
    balance = ab.Balance(fewest_rows_a_slot=500, sample_rate=1.0)
    keyed = flow.read(ab.memory(*frames)).key_by("key", balance=balance).watermark("ts")
    keyed.window("1h").agg(others=ab.approx_distinct("other"), name="count").write(counted)
    keyed.process(Notes(), schema={"key": pl.Int64}, name="note").write(noted)
    checkpoint = bench.new_checkpoint()
    got = bench.run_flow(flow, [counted, noted], checkpoint=checkpoint, slots=4, local_merge=False, drain=False)
    assert got.progress[-1].max_over_mean == pytest.approx(1.0)
    assert {entry.sampled_rows for entry in got.progress if entry.rows_in} == {2 * len(rows)}
    (costs,) = [entry.plan_costs for entry in got.progress if entry.changes]
    assert set(costs) == {"count", "note"}
    for cost in costs.values():
        assert (cost["table_rows"], cost["split_load"]) == (2, 0)
        assert cost["planning_seconds"] > 0 < cost["moved_bytes"]
    for level in Checkpoint(open_store(checkpoint)).latest().levels:
        table = PhasedRoutes.from_json(level.routes).routes.table
        moved = hash_keys(pl.DataFrame({"key": sorted(light)}), ["key"])
        assert table.keys.tolist() == sorted(moved.to_list()), level.operator
        assert table.shares.tolist() == [1.0, 1.0]
