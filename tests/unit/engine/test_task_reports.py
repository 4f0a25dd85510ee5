"""What tasks report is read as it was written, and a task that is run again says the same to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.control.decisions import Decision
from anabranch.control.observe.load_sampling import LoadReport, SampledKeyLoads, Watch
from anabranch.control.observe.state_sizes import SizesReport
from anabranch.engine import local_run
from anabranch.engine.ahead.partition_key_audit import KeysReport
from anabranch.engine.batches.jobs import BatchInput
from anabranch.engine.batches.local_jobs import LocalJobs
from anabranch.engine.batches.reports import merge_reports
from anabranch.engine.tasks.blocks import Block, BlockKind
from anabranch.engine.tasks.spec import BatchSpec
from anabranch.engine.tasks.task_errors import TaskFailure
from anabranch.engine.tasks.task_reports import (
    REPORT_VERSION,
    BufferReport,
    MeetReport,
    SlotReport,
    TaskReport,
    read_report,
    write_report,
)
from anabranch.errors import EngineError
from anabranch.eventtime.medians import TimeTally
from anabranch.eventtime.watermarks import SeenTimes
from anabranch.model import HASH, RunRef, SplitKeyClocks, StagedFile
from anabranch.model.exchanges import ExchangeTally, ReaderBuffer
from anabranch.routing.phases import FlowRoutes
from kept.gauges_flow import SCHEMA, SharesAGauge, make_depots, make_gauges, run_flow, write_inputs

numbers = st.integers(0, 1_000)
times_us = st.integers(-(2**62), 2**62)
maybe_us = st.none() | times_us
texts = st.text(max_size=8)
hashes = st.integers(0, 2**64 - 1)


def by_number(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[int, Any]]:
    return st.dictionaries(st.integers(0, 40), values, max_size=3)


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=3).map(tuple)


def arrays(values: st.SearchStrategy[int], dtype: type[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=5).map(lambda found: np.array(found, dtype))


keys = st.lists(hashes, max_size=4).map(
    lambda found: pl.DataFrame({HASH: found, "key": [str(one) for one in found]}, {HASH: pl.UInt64, "key": pl.String})
)
runs = st.builds(RunRef, texts, numbers, numbers, texts, numbers, gone=some(st.tuples(hashes, hashes)))
seen_times = st.builds(
    SeenTimes,
    by_number(times_us),
    by_number(st.dictionaries(texts, times_us, max_size=3)),
    by_number(st.builds(TimeTally, numbers, st.dictionaries(times_us, numbers, max_size=3))),
)
split_key_clocks = keys.map(lambda found: SplitKeyClocks(found, *(np.arange(3 * len(found)).reshape(3, -1))))
key_loads = st.builds(
    SampledKeyLoads, st.floats(1, 1e9), numbers, arrays(hashes, np.uint64), arrays(numbers, np.int64), sample=keys
)
load_reports = st.builds(LoadReport, arrays(numbers, np.int64), numbers, st.none() | key_loads)
sizes_reports = st.builds(SizesReport, arrays(numbers, np.int64), arrays(hashes, np.uint64), arrays(numbers, np.int64))
keys_reports = st.builds(KeysReport, hashes, keys)
meet_reports = st.builds(MeetReport, maybe_us, maybe_us, maybe_us, maybe_us, st.none() | split_key_clocks)
buffer_reports = st.builds(
    BufferReport,
    st.builds(ReaderBuffer, numbers, some(runs), numbers, times_us),
    maybe_us,
    maybe_us,
    maybe_us,
    some(texts),
)
slot_reports = st.builds(
    SlotReport,
    runs=some(runs),
    handed=by_number(runs),
    rows=numbers,
    next_due_us=maybe_us,
    last_end_us=maybe_us,
    wake_us=maybe_us,
    latest_us=maybe_us,
    group_latest_us=by_number(times_us),
    forgotten_us=by_number(times_us),
    fire_us=maybe_us,
    split_keys=st.none() | split_key_clocks,
    load=st.none() | load_reports,
    sizes=st.none() | sizes_reports,
    problems=some(texts),
)
task_reports = st.builds(
    TaskReport,
    level=numbers,
    task=numbers,
    counters=st.dictionaries(texts, numbers, max_size=3),
    seen=seen_times,
    slot_latest_us=by_number(some(times_us)),
    group_latest_us=by_number(by_number(times_us)),
    staged=by_number(st.builds(StagedFile, texts, numbers, numbers, numbers)),
    exchanged_bytes=numbers,
    exchanges=by_number(st.builds(ExchangeTally, *([numbers] * len(fields(ExchangeTally))))),
    bad_files=st.dictionaries(texts, texts, max_size=3),
    buffers=by_number(buffer_reports),
    partition_keys=by_number(keys_reports),
    operators=by_number(slot_reports),
    met=by_number(meet_reports),
    seconds=st.none() | st.floats(0, 1e6),
)
STRATEGIES: dict[type[Any], st.SearchStrategy[Any]] = {
    SeenTimes: seen_times,
    LoadReport: load_reports,
    SizesReport: sizes_reports,
    KeysReport: keys_reports,
    MeetReport: meet_reports,
    BufferReport: buffer_reports,
    SlotReport: slot_reports,
    TaskReport: task_reports,
    TaskFailure: st.builds(TaskFailure, texts, st.booleans(), texts, texts),
}


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.__name__)
def test_what_is_written_is_read(kind: type[Any]) -> None:
    @given(STRATEGIES[kind])
    def check(report: Any) -> None:
        said = report.to_json()
        again = kind.from_json(json.loads(json.dumps(said)))
        assert type(again) is kind
        assert write_report(again.to_json()) == write_report(said)

    check()


@given(st.lists(st.sampled_from(["late_rows", "rows_in", "dead_rows"]), unique=True), st.lists(numbers, unique=True))
def test_equal_reports_are_equal_bytes_in_whatever_order_they_were_made(counted: list[str], nodes: list[int]) -> None:
    one = TaskReport(1, 0, {name: 1 for name in counted}, SeenTimes({node: 5 for node in nodes}))
    other = TaskReport(1, 0, {name: 1 for name in counted[::-1]}, SeenTimes({node: 5 for node in nodes[::-1]}))
    assert one.encode() == other.encode()
    assert TaskReport.decode(one.encode()) == other


@pytest.mark.parametrize("version", [None, 0, REPORT_VERSION + 1, "1"])
def test_another_version_is_refused_with_what_to_do(version: Any) -> None:
    payload = json.dumps({**read_report(TaskReport(0, 0).encode()), "version": version}).encode()
    with pytest.raises(EngineError, match=rf"version {version}, .*reads version {REPORT_VERSION}; install the same"):
        merge_reports([payload], {})


class RunsTwice(LocalJobs):
    """Runs every job twice, as if all its tasks were tried again, and compares what they say."""

    reports: list[TaskReport]

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        first, again = super().run(given, spec), super().run(given, spec)
        assert [*map(_without_seconds, again)] == [*map(_without_seconds, first)]
        self.reports += [TaskReport.decode(block.payload) for block in first if block.kind is BlockKind.REPORT]
        return again


def _without_seconds(block: Block) -> Block:
    if block.kind is not BlockKind.REPORT:
        return block
    return replace(block, payload=replace(TaskReport.decode(block.payload), seconds=None).encode())


class LooksAndShares(SharesAGauge):
    """Has slots look at all their rows, and share a key for a batch."""

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        return {head: Watch(32, 1.0) for head in routes}

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        return self.place(batch, routes, {0: 1.0}) if batch == 1 else super().decide(batch, routes)


class Looks(LooksAndShares):
    """Has slots look, and leaves keys where they are."""

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        return Decision(batch)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[TaskReport]:
    """What tasks said, of flows that are run in this test, each batch twice."""
    found: list[TaskReport] = []
    monkeypatch.setattr(RunsTwice, "reports", found, raising=False)
    monkeypatch.setattr(local_run, "LocalJobs", RunsTwice)
    return found


def make_windows(folder: Path) -> ab.Flow:
    flow = ab.Flow("windows")
    source = ab.files(str(folder / "gauges"), format="json", schema=SCHEMA, max_files=1)
    windows = flow.read(source).watermark("ts", delay="5h").key_by("gauge").window("10s").agg(rows=ab.count())
    windows.key_by("rows").window("1m").agg(windows=ab.count()).write(ab.parquet(str(folder / "results" / "windows")))
    return flow


def said_of_slots(reports: list[TaskReport]) -> set[str]:
    return {name for report in reports for slot in report.operators.values() for name in slot.to_json()}


@pytest.mark.parametrize(
    ("make", "tasks_say", "slots_say"),
    [
        (make_gauges, {"operators", "met", "buffers", "group_latest_us"}, {"handed", "load", "sizes", "split_keys"}),
        (make_depots, {"operators", "partition_keys"}, {"next_due_us", "load"}),
        (make_windows, {"operators", "seen", "slot_latest_us", "exchanges"}, {"fire_us", "last_end_us", "sizes"}),
    ],
)
def test_tasks_that_are_run_again_say_the_same(
    reports: list[TaskReport],
    tmp_path: Path,
    make: Callable[[Path], ab.Flow],
    tasks_say: set[str],
    slots_say: set[str],
) -> None:
    write_inputs(tmp_path, "first")
    # Partitions are slots where they are: nothing can be moved.
    steer = Looks if make is make_depots else LooksAndShares
    run_flow(make(tmp_path), tmp_path / "checkpoint", trigger="available-now", drain=True, steer=steer)
    assert tasks_say <= {name for report in reports for name in report.to_json()}
    assert slots_say <= said_of_slots(reports)
