"""Clocks of silent keys are dropped from batch to batch by what manifests hold: tasks and driver, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.control.apply import find_split_keys
from anabranch.control.decisions import Decision
from anabranch.engine.batches.reports import BatchReport, merge_reports
from anabranch.engine.tasks.blocks import BlockKind
from anabranch.engine.tasks.read_task import ReadTask
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import BatchSpec
from anabranch.eventtime.flow.flow_time import advance_time, load_time, store_time
from anabranch.eventtime.flow.operator_times import (
    advance_clocks,
    follow_split_keys,
    load_clocks,
    operator_times,
    store_clocks,
)
from anabranch.model import ForgottenClocks, RunRef
from anabranch.routing import Routes, hash_keys
from anabranch.routing.phases import PhasedRoutes
from anabranch.state import EngineState, Manifest
from unit.eventtime.test_flow_time import NOW_US, SECOND_US, START_US, Reading, Rows, _run, windows

NOBODY: Rows = []


def group_of(key: int) -> int:
    hashes = hash_keys(pl.DataFrame({"key": [key]}), ["key"]).to_numpy()
    return int(ForgottenClocks.groups_of(hashes)[0])


class Batches(Reading):
    """Runs batches one after the other, each on what the manifest of the one before holds."""

    def __init__(self, folder: Path, **clock: Any) -> None:
        super().__init__(folder, windows(per="key", **clock))
        sinks = {0: ab.json_lines(str(folder / "counts")), **self.program.sinks}
        self.program = replace(self.program, sinks=sinks)
        (head,) = self.plan.stateful
        self.head = head.id
        self.position: dict[str, Any] | None = None
        self.manifest: Manifest | None = None
        self.runs: tuple[tuple[RunRef, ...], ...] = ()

    def next(self, now_s: int, rows: Rows, slots: int = 2) -> BatchReport:
        """Run a batch at a second of the wall clock."""
        if rows:
            self.add(rows)
        planned = self.source.planner().plan(self.position, 0.0)
        self.position = planned.position
        number = 0 if self.manifest is None else self.manifest.batch + 1
        now_us = NOW_US + now_s * SECOND_US
        routes = {self.head: PhasedRoutes(Routes.even(slots, 16))}
        times = operator_times(self.plan, self.manifest, number, routes, draining=False, now_us=now_us, since_us=NOW_US)
        spec = BatchSpec(
            batch=number,
            epoch=1,
            attempt=0,
            job="cafe",
            times=times,
            slots=(slots,),
            routes=routes,
            runs={self.head: self.runs or ((),) * slots},
            now_us=now_us,
        )
        # A task that has nothing to read wakes the slots all the same.
        report = self._run_tasks(spec, ([(ordinal, 0, split) for ordinal, split in enumerate(planned.splits)],))
        before = load_time(self.plan, self.manifest)
        after = advance_time(self.plan, before, report, now_us=now_us, since_us=NOW_US, drained=False)
        clocks = load_clocks(self.plan, self.manifest)
        clocks = advance_clocks(self.plan, clocks, report, times, after, drained=False, changed=frozenset())
        clocks = follow_split_keys(self.plan, clocks, report, find_split_keys(routes, Decision(number)))
        engine = EngineState(slots=slots, clocks=store_clocks(self.plan, clocks), now_us=now_us)
        manifest = Manifest("test", {}, number, 1, "", None, None, (), store_time(self.plan, after), engine=engine)
        self.manifest = Manifest.decode(manifest.encode(), "a manifest")
        self.runs = report.operators[self.head].runs
        return report

    @property
    def state_rows(self) -> int:
        return sum(ref.live_rows for runs in self.runs for ref in runs)

    def _run_tasks(self, spec: BatchSpec, packs: Any) -> BatchReport:
        slots = spec.slots[0]
        reader = ReadTask(self.program, spec, packs)
        blocks = [block for task in range(len(packs)) for block in reader.blocks(task)]
        task = SlotTask(self.program, spec, 1)
        blocks = [block for slot in range(slots) for block in _run(task, slot, blocks)]
        told = [block.payload for block in blocks if block.kind is BlockKind.REPORT]
        return merge_reports(told, {self.head: slots})


def test_what_was_dropped_is_in_the_manifest_and_judges_who_comes_back(tmp_path: Path) -> None:
    batches = Batches(tmp_path, idle="30s")
    batches.next(0, [(key, 3) for key in range(100)])
    report = batches.next(60, NOBODY)
    assert report.counters["rows_out"] == 100
    assert batches.state_rows == 0
    assert batches.manifest is not None
    kept = batches.manifest.engine.clocks["agg"]["forgotten"]
    assert kept["until_us"] == NOW_US + 30 * SECOND_US
    assert set(kept["clocks_us"]) == {START_US + 10 * SECOND_US}
    report = batches.next(61, [(7, 5), (7, 15)])
    assert report.counters["late_rows"] == 1
    assert batches.next(120, NOBODY).counters["rows_out"] == 1


@pytest.mark.parametrize(("forget", "late_rows"), [("30s", 1), ("10m", 0)])
def test_key_that_is_remembered_goes_on_where_it_was(tmp_path: Path, forget: str, late_rows: int) -> None:
    batches = Batches(tmp_path, idle="30s", forget=forget)
    batches.next(0, [(1, 3)])
    # The other key, of the same group, is ahead when both fall silent.
    other = next(key for key in range(2, 100_000) if group_of(key) == group_of(1))
    batches.next(1, [(other, 500)])
    for now_s in (40, 200, 500):
        batches.next(now_s, NOBODY)
    assert batches.next(501, [(1, 100)]).counters["late_rows"] == late_rows


def test_a_slot_wakes_when_clocks_can_go_and_then_no_more(tmp_path: Path) -> None:
    batches = Batches(tmp_path, idle="30s")
    in_a_minute = (NOW_US - START_US) // SECOND_US + 60
    wakes = [batches.next(0, [(1, in_a_minute)]).operators[batches.head].wake_us]
    for _ in range(2):
        now_s = (wakes[-1] - NOW_US) // SECOND_US  # type: ignore[operator]
        wakes.append(batches.next(now_s, NOBODY).operators[batches.head].wake_us)
    assert wakes[0] == NOW_US + 30 * SECOND_US, "then its window closes"
    assert wakes[1] == NOW_US + (70 + 30) * SECOND_US, "then its clock has passed for as long"
    assert wakes[2] is None
    assert batches.state_rows == 0
