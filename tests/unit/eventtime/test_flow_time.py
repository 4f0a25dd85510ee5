"""What reading tasks see of event time, and what the driver makes of it, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.batches.reports import BatchReport, merge_reports
from anabranch.engine.tasks.blocks import Block, BlockKind
from anabranch.engine.tasks.read_task import ReadTask
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import DEAD_LETTER, BatchSpec, FlowProgram
from anabranch.eventtime.flow.flow_time import advance_time, load_time, next_silence_us, rules_of, store_time
from anabranch.eventtime.watermarks import FlowTime, PartitionTime
from anabranch.model import OperatorTime, Split
from anabranch.query.plan import Parallelism, Plan, make_plan
from anabranch.query.streams import Stream
from anabranch.routing import Routes
from anabranch.routing.phases import PhasedRoutes
from anabranch.state.manifest import Manifest

START = datetime(2026, 1, 1)
START_US = int((START - datetime(1970, 1, 1)).total_seconds()) * 1_000_000
SECOND_US = 1_000_000
NOW_US = START_US + 3_600 * SECOND_US
SCHEMA = {"key": pl.Int64(), "ts": pl.Datetime("us"), "value": pl.Int64()}

Build = Callable[[Stream], Stream]
Rows = list[tuple[int, float | None]]


def frame_of(rows: Rows) -> pl.DataFrame:
    """Return rows of (key, seconds after the start)."""
    times = [None if second is None else START + timedelta(seconds=second) for _, second in rows]
    return pl.DataFrame({"key": [key for key, _ in rows], "ts": times, "value": 1}, schema=SCHEMA)


class Reading:
    """Runs the reading tasks of one flow, one after the other."""

    def __init__(
        self, folder: Path, build: Build, source: Any = None, parallelism: Parallelism = "operator-set"
    ) -> None:
        self.source = source or ab.memory(schema=SCHEMA, max_frames=None)
        flow = ab.Flow("test")
        build(flow.read(self.source).key_by("key")).write(ab.to_memory())
        self.plan: Plan = make_plan(flow, 2, parallelism)
        self.program = FlowProgram(
            plan=self.plan,
            sources=dict(enumerate(flow.sources)),
            sinks={DEAD_LETTER: ab.json_lines(str(folder / "dead"))},
            checkpoint=str(folder / "checkpoint"),
            local_merge=True,
        )
        (self.watermark,) = rules_of(self.plan).clocks

    def add(self, rows: Rows, partition: str = "") -> None:
        self.source.add(frame_of(rows), partition)

    def run(self, tasks: int = 1) -> BatchReport:
        """Read all that was added, dealt to so many tasks; slots that have stateless operators run, too."""
        splits = self.source.planner().plan(None, 0.0).splits
        packs: tuple[list[tuple[int, int, Split]], ...] = tuple(
            [(ordinal, 0, split) for ordinal, split in enumerate(splits) if ordinal % tasks == task]
            for task in range(tasks)
        )
        spec = BatchSpec(
            batch=0,
            epoch=1,
            attempt=0,
            job="cafe",
            times={node.id: OperatorTime(0, now_us=NOW_US) for node in self.plan.stateful},
            slots=self.plan.slots,
            routes={node.id: PhasedRoutes(Routes.even(self._slots_of(node.id), 16)) for node in self.plan.stateful},
            runs={node.id: () for node in self.plan.stateful},
            now_us=NOW_US,
        )
        reader = ReadTask(self.program, spec, packs)
        blocks = [block for task in range(tasks) for block in reader.blocks(task)]
        for level in range(1, self.plan.hops + 1):
            slots = SlotTask(self.program, spec, level)
            blocks = [block for slot in range(self.plan.slots[level - 1]) for block in _run(slots, slot, blocks)]
        told = [block.payload for block in blocks if block.kind is BlockKind.REPORT]
        return merge_reports(told, {node.id: self._slots_of(node.id) for node in self.plan.stateful})

    def dead_letters(self, report: BatchReport) -> list[dict[str, Any]]:
        files = [self.program.store.read(staged.file) for staged in report.staged.get(DEAD_LETTER, ())]
        return [json.loads(line) for content in files for line in content.decode().splitlines()]

    def _slots_of(self, node: int) -> int:
        return self.plan.slots[self.plan.level_of(node) - 1]


def _run(task: SlotTask, slot: int, blocks: list[Block]) -> list[Block]:
    return list(task.blocks(slot, (block for block in blocks if block.slot == slot)))


def windows(**clock: Any) -> Build:
    return lambda stream: stream.watermark("ts", **clock).window("10s").agg(rows=ab.count())


def test_latest_time_of_each_partition_is_reported(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows(delay="2s", per="partition"))
    reading.add([(1, 100), (2, 90)], "north")
    reading.add([(1, 40)], "south")
    reading.add([(3, 120)], "north")
    for tasks in (1, 3):
        report = reading.run(tasks)
        assert report.partitions_us == {
            reading.watermark: {"0/north": START_US + 120 * SECOND_US, "0/south": START_US + 40 * SECOND_US}
        }
        after = advance_time(reading.plan, FlowTime(), report, now_us=NOW_US, since_us=0, drained=False)
        assert after.current == {reading.watermark: START_US + 38 * SECOND_US}


def test_partition_is_known_behind_an_exchange_of_stateless_rows(tmp_path: Path) -> None:
    def build(stream: Stream) -> Stream:
        mapped = stream.filter(pl.col("value") > 0).with_columns(double=pl.col("value") * 2)
        return mapped.watermark("ts", per="partition").window("10s").agg(rows=ab.count())

    reading = Reading(tmp_path, build, parallelism="operator")
    assert reading.plan.hops == 2
    reading.add([(1, 100)], "north")
    reading.add([(1, 40)], "south")
    reading.add([(1, 50)])
    assert reading.run(2).partitions_us == {
        reading.watermark: {
            "0": START_US + 50 * SECOND_US,
            "0/north": START_US + 100 * SECOND_US,
            "0/south": START_US + 40 * SECOND_US,
        }
    }


def test_flow_wide_watermark_reports_neither_partitions_nor_tallies(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows(idle="5s"))
    reading.add([(1, 100)], "north")
    report = reading.run()
    assert (report.partitions_us, report.tallies) == ({}, {})
    after = advance_time(reading.plan, FlowTime(), report, now_us=NOW_US, since_us=0, drained=False)
    assert after.partitions == {reading.watermark: {"": PartitionTime(START_US + 100 * SECOND_US, NOW_US)}}


def test_median_is_that_of_all_rows_however_they_are_dealt_to_tasks(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows(per="key", behind="16s"))
    for part in range(4):
        reading.add([(key, 100 + part) for key in range(20)])
    reading.add([(99, 3_000)])
    reports = [reading.run(tasks) for tasks in (1, 2, 5)]
    assert reports[0].tallies == reports[1].tallies == reports[2].tallies
    after = advance_time(reading.plan, FlowTime(), reports[0], now_us=NOW_US, since_us=0, drained=False)
    assert after.floor_us((reading.watermark,), 16 * SECOND_US) == START_US + (102 - 16) * SECOND_US


def test_bad_times_go_to_dead_letters_with_the_reason_and_move_no_watermark(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows())
    reading.add([(1, 100), (2, None), (3, -1e10), (4, 90_001), (5, 90_000)])
    report = reading.run()
    assert report.counters["dead_rows"] == 3
    assert report.latest_us == {reading.watermark: START_US + 90_000 * SECOND_US}
    letters = reading.dead_letters(report)
    assert [json.loads(letter["payload"])["key"] for letter in letters] == [2, 3, 4]
    assert [letter["reason"].split(":")[0].split(",")[0] for letter in letters] == [
        "null event time ts",
        "event time ts is before 1970-01-01T00",
        "event time ts is more than 1d ahead of the clock",
    ]


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63) + 1, 1_800_000_000_000_000_000])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_time_in_a_wrong_unit_goes_to_dead_letters_as_the_number_it_is(
    tmp_path: Path, number: int, zone: str | None
) -> None:
    schema = {"key": pl.Int64(), "ts": pl.Datetime("ms", zone), "value": pl.Int64()}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(f'{{"key": 1, "ts": {number}, "value": 1}}\n')
    reading = Reading(tmp_path, windows(), ab.files(tmp_path / "in", schema=schema))
    report = reading.run()
    (letter,) = reading.dead_letters(report)
    assert json.loads(letter["payload"]) == {"key": 1, "ts": number, "value": 1}
    assert "outside the times that it may hold" in letter["reason"]


def test_limits_of_the_flow_count(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows(earliest="2026-01-01T00:01:00", future="10m"))
    reading.add([(1, 59), (2, 60), (3, 3_600 + 600), (4, 3_600 + 601)])
    report = reading.run()
    assert [json.loads(letter["payload"])["key"] for letter in reading.dead_letters(report)] == [1, 4]


def test_limits_count_where_no_operator_has_state(tmp_path: Path) -> None:
    reading = Reading(tmp_path, lambda stream: stream.watermark("ts", earliest="2026-01-01T00:01:00", future="10m"))
    reading.add([(1, 59), (4, 3_600 + 601)])
    report = reading.run()
    assert [json.loads(letter["payload"])["key"] for letter in reading.dead_letters(report)] == [1, 4]


def test_no_limit_lets_every_time_through(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows(earliest=None, future=None))
    reading.add([(1, -1e10), (2, 1e9)])
    assert reading.run().counters.get("dead_rows", 0) == 0


def test_silence_closes_the_last_window_of_windows(tmp_path: Path) -> None:
    def build(stream: Stream) -> Stream:
        first = stream.watermark("ts", idle="5s").window("10s").agg(rows=ab.count())
        return first.key_by("key").window("1m").agg(windows=ab.count())

    reading = Reading(tmp_path, build)
    reading.add([(1, 3)])
    before = advance_time(reading.plan, FlowTime(), reading.run(), now_us=NOW_US, since_us=0, drained=False)
    silent_us = NOW_US + 5 * SECOND_US
    assert before.wake_us(rules_of(reading.plan), now_us=NOW_US) == silent_us
    nothing = BatchReport({}, {}, {}, {}, 0, (), ())
    after = advance_time(reading.plan, before, nothing, now_us=silent_us, since_us=0, drained=False)
    assert after.current == {reading.watermark: START_US + 60 * SECOND_US}


def test_silence_of_sessions_closes_them_after_their_gap(tmp_path: Path) -> None:
    reading = Reading(tmp_path, lambda stream: stream.watermark("ts", idle="5s").session("30s").agg(rows=ab.count()))
    assert rules_of(reading.plan).last_end_us(reading.watermark, 7) == 7 + 30 * SECOND_US


def test_nothing_wakes_a_flow_that_has_nothing_open(tmp_path: Path) -> None:
    reading = Reading(tmp_path, windows(idle="5s"))
    reading.add([(1, 3)])
    report = reading.run()
    after = advance_time(reading.plan, FlowTime(), report, now_us=NOW_US, since_us=0, drained=False)
    assert next_silence_us(reading.plan, after, report, now_us=NOW_US, since_us=0) == NOW_US + 5 * SECOND_US
    nothing = BatchReport({}, {}, {}, {}, 0, (), ())
    assert next_silence_us(reading.plan, after, nothing, now_us=NOW_US, since_us=0) is None


@pytest.mark.parametrize("clock", [{"per": "partition", "idle": "5s"}, {"per": "partition", "behind": "16s"}])
def test_what_is_known_of_partitions_survives_a_new_stateless_step(tmp_path: Path, clock: dict[str, Any]) -> None:
    reading = Reading(tmp_path / "old", windows(**clock))
    reading.add([(key, 100) for key in range(30)], "north")
    reading.add([(1, 40)], "south")
    before = advance_time(reading.plan, FlowTime(), reading.run(), now_us=NOW_US, since_us=0, drained=False)
    manifest = Manifest("test", {}, 0, 1, "q", None, None, watermarks=store_time(reading.plan, before))
    longer = Reading(tmp_path / "new", lambda stream: windows(**clock)(stream.filter(pl.col("value") > 0)))
    found = load_time(longer.plan, manifest)
    assert found == before.renamed({reading.watermark: longer.watermark})
    assert set(found.partitions[longer.watermark]) == {"0/north", "0/south"}
