"""Slots that are told what readers saw know the time at the end of their batch, and fire in it; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.batches.reports import BatchReport, merge_reports
from anabranch.engine.tasks.blocks import Block, BlockKind
from anabranch.engine.tasks.meet_task import MeetTask
from anabranch.engine.tasks.read_task import ReadTask
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.errors import EngineError
from anabranch.eventtime.flow.flow_time import advance_time
from anabranch.eventtime.flow.in_batch_watermark import InBatchWatermark, fires_at_once, last_level_told, settle_times
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import END_OF_TIME, OperatorTime, RoutingTable, Split
from anabranch.query.plan import Parallelism, Plan, make_plan
from anabranch.query.streams import Stream
from anabranch.routing import Routes, hash_keys
from anabranch.routing.phases import PhasedRoutes

START = datetime(2026, 1, 1)
START_US = int((START - datetime(1970, 1, 1)).total_seconds()) * 1_000_000
SECOND_US = 1_000_000
NOW_US = START_US + 3_600 * SECOND_US
SCHEMA = {"key": pl.Int64(), "ts": pl.Datetime("us"), "value": pl.Int64()}
SLOTS = 3

Build = Callable[[Stream], Any]


def plan_of(build: Build, parallelism: Parallelism = "operator-set", source: Any = None) -> Plan:
    flow = ab.Flow("test")
    build(flow.read(source or ab.memory(schema=SCHEMA)))
    return make_plan(flow, SLOTS, parallelism)


class Batch:
    """Runs the tasks of one batch of a flow, one after the other."""

    def __init__(
        self,
        folder: Path,
        build: Build,
        rows: list[tuple[int, float]],
        readers: int = 2,
        slots: tuple[int, ...] = (SLOTS, SLOTS),
    ) -> None:
        self.source = ab.memory(schema=SCHEMA, max_frames=None)
        for key, second in rows:
            row = {"key": [key], "ts": [START + timedelta(seconds=second)], "value": [1]}
            self.source.add(pl.DataFrame(row, schema=SCHEMA), "north" if key % 2 else "south")
        self.sink = ab.to_memory(folder / "results")
        flow = ab.Flow("test")
        build(flow.read(self.source)).write(self.sink)
        self.plan = make_plan(flow, SLOTS)
        self.program = FlowProgram(
            self.plan, dict(enumerate(flow.sources)), {0: self.sink}, str(folder / "checkpoint"), True
        )
        self.readers = readers
        self.slots = slots[: self.plan.hops]
        self.slots_of = {node.id: slots[self.plan.level_of(node.id) - 1] for node in self.plan.stateful}
        self.routes = {head: PhasedRoutes(Routes.even(count, 16)) for head, count in self.slots_of.items()}

    def run(self, before: FlowTime | None = None, draining: bool = False, now_us: int = NOW_US) -> BatchReport:
        """Run the batch; everything that slots had before is forgotten."""
        before = before or FlowTime()
        splits = self.source.planner().plan(None, 0.0).splits
        packs: tuple[list[tuple[int, int, Split]], ...] = tuple(
            [(ordinal, 0, split) for ordinal, split in enumerate(splits) if ordinal % self.readers == reader]
            for reader in range(self.readers)
        )
        self.times: dict[int, OperatorTime] = {
            node.id: before.operator_time(
                1, self.plan.watermarks[node.id], lagging=node.id in self.plan.lagging, draining=draining, now_us=now_us
            )
            for node in self.plan.stateful
        }
        spec = BatchSpec(
            batch=1,
            epoch=1,
            attempt=0,
            job="cafe",
            times=self.times,
            slots=self.slots,
            routes=self.routes,
            runs={node.id: () for node in self.plan.stateful},
            now_us=now_us,
            in_batch=InBatchWatermark(before, now_us, 0),
        )
        reader = ReadTask(self.program, spec, packs)
        self.blocks = [block for task in range(self.readers) for block in reader.blocks(task)]
        for level in range(1, self.plan.hops + 1):
            self._through(SlotTask(self.program, spec, level), self.slots[level - 1])
            if spec.meets(self.plan.levels[level - 1]):
                self._through(MeetTask(self.program, spec, level), self.slots[level - 1])
        told = [block.payload for block in self.blocks if block.kind is BlockKind.REPORT]
        report = merge_reports(told, self.slots_of)
        self.after = advance_time(
            self.plan, before, report, now_us=now_us, since_us=0, drained=draining, fires_at_once=True
        )
        return report

    def rows(self, report: BatchReport) -> list[tuple[Any, ...]]:
        files = [self.program.store.read(staged.file) for staged in report.staged.get(0, ())]
        frames = [pl.read_ipc(content) for content in files]
        return sorted(row for frame in frames for row in frame.drop("window_start", "window_end").rows())

    def _through(self, task: SlotTask | MeetTask, slots: int) -> None:
        """Send all blocks through a level, as Spark would: by their slot, modulo the tasks."""
        sent: list[Block] = []
        for slot in range(slots):
            sent += task.blocks(slot, (block for block in self.blocks if block.slot % slots == slot))
        self.blocks = sent


def windows(stream: Stream, **clock: Any) -> Stream:
    return stream.key_by("key").watermark("ts", **clock).window("10s").agg(rows=ab.count())


def windows_of_windows(stream: Stream, **clock: Any) -> Stream:
    return windows(stream, **clock).key_by("key").window("20s").agg(windows=ab.count(), rows=ab.sum("rows"))


ROWS = [(key, second) for key in range(5) for second in (1.0, 12.0)] + [(9, 31.0), (8, 32.0)]


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_windows_fire_in_the_batch_that_brings_their_watermark(tmp_path: Path, readers: int) -> None:
    batch = Batch(tmp_path, windows, ROWS, readers)
    report = batch.run()
    assert batch.rows(report) == sorted([(key, 1) for key in range(5)] * 2)
    (head,) = report.operators
    assert report.operators[head].fire_us == {START_US + 32 * SECOND_US}
    assert settle_times(batch.plan, batch.times, batch.after, report)[head].fire_us == START_US + 32 * SECOND_US
    assert batch.after.previous == batch.after.current


@pytest.mark.parametrize("slots", [(3, 3), (2, 5), (5, 2)], ids=str)
@pytest.mark.parametrize(
    "clock",
    [{}, {"idle": "5s"}, {"per": "partition"}, {"per": "partition", "behind": "16s"}],
    ids=["flow", "idle", "partition", "behind"],
)
def test_windows_of_windows_fire_in_the_same_batch(
    tmp_path: Path, slots: tuple[int, int], clock: dict[str, Any]
) -> None:
    batch = Batch(tmp_path, lambda stream: windows_of_windows(stream, **clock), ROWS * 2, slots=slots)
    report = batch.run()
    assert batch.rows(report) == [(key, 2, 4) for key in range(5)]
    times = settle_times(batch.plan, batch.times, batch.after, report)
    reached_us = START_US + (31 if "per" in clock else 32) * SECOND_US
    assert {time.fire_us for time in times.values()} == {reached_us}


def test_time_reaches_where_parts_of_keys_meet(tmp_path: Path) -> None:
    def updated(stream: Stream) -> Stream:
        windowed = stream.key_by("key").watermark("ts").window("10s", late="update", lateness="5s")
        return windowed.agg(rows=ab.count())

    batch = Batch(tmp_path, updated, [(1, 1.0)] * 7 + [(1, 12.0)])
    hot = int(hash_keys(pl.DataFrame({"key": [1]}), ["key"])[0])
    split = Routes.even(SLOTS, 16).with_table(RoutingTable.of({hot: {0: 0.5, 2: 0.5}}))
    batch.routes = {head: PhasedRoutes(split) for head in batch.routes}
    report = batch.run()
    assert batch.rows(report) == [("final", 1, 7)]
    assert {block.kind for block in batch.blocks} == {BlockKind.REPORT}
    assert {operator.fire_us for operator in report.operators.values()} == {frozenset({START_US + 12 * SECOND_US})}


def test_silence_closes_windows_in_the_batch_that_finds_it(tmp_path: Path) -> None:
    def build(stream: Stream) -> Stream:
        return windows(stream, idle="5s")

    batch = Batch(tmp_path, build, [])
    (watermark,) = batch.plan.watermarks[batch.plan.stateful[0].id]
    heard = Batch(tmp_path, build, [(1, 3.0)])
    heard.run()
    report = batch.run(heard.after, now_us=NOW_US + 5 * SECOND_US)
    (head,) = report.operators
    assert report.operators[head].fire_us == {START_US + 10 * SECOND_US}
    assert batch.after.current == {watermark: START_US + 10 * SECOND_US}


def test_a_drain_fires_everything_whatever_was_seen(tmp_path: Path) -> None:
    batch = Batch(tmp_path, windows, ROWS)
    report = batch.run(draining=True)
    assert {operator.fire_us for operator in report.operators.values()} == {frozenset({END_OF_TIME})}
    assert len(batch.rows(report)) == len(ROWS)
    settle_times(batch.plan, batch.times, batch.after, report)


def test_a_batch_is_not_committed_whose_slots_fired_by_another_time(tmp_path: Path) -> None:
    batch = Batch(tmp_path, windows, ROWS)
    report = batch.run()
    (head,) = report.operators
    wrong = replace(report.operators[head], fire_us=frozenset({0, START_US + 32 * SECOND_US}))
    with pytest.raises(EngineError, match=r"slots fired up to \[0, .*not committed"):
        settle_times(batch.plan, batch.times, batch.after, replace(report, operators={head: wrong}))


def test_only_slots_that_wait_for_the_flows_time_are_told() -> None:
    assert last_level_told(plan_of(windows)) == 1
    assert last_level_told(plan_of(windows_of_windows)) == 2
    assert last_level_told(plan_of(lambda stream: windows(stream, per="key"))) == 0
    assert last_level_told(plan_of(lambda stream: stream.watermark("ts").key_by("key").agg(rows=ab.count()))) == 0
    ordered = plan_of(lambda stream: stream.key_by("key").watermark("ts").ordered("ts").write(ab.to_memory()))
    assert last_level_told(ordered) == 1


def held(stream: Stream) -> Stream:
    return stream.watermark("ts").key_by("key", merge=ab.LocalMerge(at="window")).window("10s").agg(rows=ab.count())


def ahead(stream: Stream) -> Stream:
    return stream.watermark("ts").key_by("key", exchange="ahead").window("10s").agg(rows=ab.count())


def merged_globally(stream: Stream, store: Path) -> None:
    windowed = stream.watermark("ts").key_by("key", exchange="global").window("10s")
    windowed.agg(rows=ab.count()).write(ab.global_store(store, table="windows"))


def beside_its_windows(stream: Stream, **clock: Any) -> Stream:
    """A watermark that is seen by readers, and one that is seen behind slots which follow the first."""
    timed = stream.watermark("ts", **clock)
    counted = timed.key_by("key").window("10s").agg(value=ab.count())
    later = counted.select("key", ts="window_end", value="value").watermark("ts", **clock)
    return timed.union(later).key_by("key").window("1m").agg(rows=ab.count())


def test_windows_wait_for_the_next_batch_where_readers_cannot_tell_slots_in_time(tmp_path: Path) -> None:
    assert fires_at_once(plan_of(windows))
    assert fires_at_once(plan_of(windows_of_windows))
    assert fires_at_once(plan_of(windows_of_windows, "operator"))
    for build in (held, ahead, lambda stream: merged_globally(stream, tmp_path / "store.sqlite")):
        assert not fires_at_once(plan_of(build))


def test_silence_that_is_judged_behind_slots_lets_them_wait() -> None:
    assert fires_at_once(plan_of(beside_its_windows))
    assert not fires_at_once(plan_of(lambda stream: beside_its_windows(stream, idle="5s")))
