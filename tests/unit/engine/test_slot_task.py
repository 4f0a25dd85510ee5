"""Slots as tasks, without Spark: they take in what was handed to them, and hand on what is no longer theirs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.observe.state_sizes import merge_sizes
from anabranch.engine.batches.reports import BatchReport, merge_reports
from anabranch.engine.tasks.blocks import Block, BlockKind, decode, encode
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.engine.tasks.spec import BatchSpec, FlowProgram
from anabranch.engine.tasks.task_errors import TaskFailed
from anabranch.model import BEGINNING_OF_TIME, HASH, ORDER, TIME, Meeting, OperatorTime, RoutingTable, RunRef
from anabranch.routing import KeyBatch, Routes, buckets_of, hash_keys
from anabranch.routing.phases import PhasedRoutes
from anabranch.state import runs as run_module
from unit.engine.programs import make_program

START = datetime(2026, 1, 1)
KEYS = list(range(12))
ONE, TWO, THREE = (Routes.even(slots, 16) for slots in (1, 2, 3))


class Slots:
    """Runs batches slot by slot, and keeps what the manifest would keep."""

    def __init__(self, program: FlowProgram, routes: Routes) -> None:
        self.program = program
        self.head = program.plan.stateful[0].id
        self.routes = routes
        self.runs: tuple[tuple[RunRef, ...], ...] = ()
        self.handoffs: tuple[tuple[RunRef, ...], ...] = ()
        self.batch = -1
        self.shared: list[pl.DataFrame] = []

    def run(self, keys: Sequence[int] = (), following: Routes | None = None, watch: Watch | None = None) -> BatchReport:
        """Run a batch with one row of value 1 of each key."""
        self.batch += 1
        time = OperatorTime(self.batch, BEGINNING_OF_TIME, BEGINNING_OF_TIME, 0, BEGINNING_OF_TIME)
        spec = BatchSpec(
            batch=self.batch,
            epoch=1,
            attempt=0,
            job="cafe",
            times={self.head: time},
            slots=(self.routes.slots,),
            routes={self.head: PhasedRoutes(self.routes)},
            runs={self.head: self.runs},
            handoffs={self.head: self.handoffs},
            next_routes={} if following is None else {self.head: following},
            watches={} if watch is None else {self.head: watch},
        )
        task = SlotTask(self.program, spec, level=1)
        sent: list[Block] = []
        for slot in range(self.routes.slots):
            sent += task.blocks(slot, self._arrived(keys, slot, time))
        self.shared = [decode(block.payload) for block in sent if block.kind is BlockKind.SHARED]
        told = [block.payload for block in sent if block.kind is BlockKind.REPORT]
        report = merge_reports(told, {self.head: self.routes.slots})
        operator = report.operators[self.head]
        self.runs, self.handoffs = operator.runs, operator.handoffs
        self.routes = following or self.routes
        return report

    def totals(self) -> dict[int, int]:
        """Return the total of every key, which must be on one slot; what is on its way counts."""
        kernel = self.program.kernels[self.head]
        files = run_module.RunFiles(self.program.store, "state", run_module.WriteName(0, 0, 0, "reader"))
        every = [*self.runs, *([ref] for slot in self.handoffs for ref in slot)]
        held = [kernel.stored([files.read(ref) for ref in refs], BEGINNING_OF_TIME) for refs in every if refs]
        values = kernel.values(kernel.unite(held))
        assert sum(frame.height for frame in held) == values.height
        return dict(values.select("key", "total").sort("key").rows())

    def _arrived(self, keys: Sequence[int], slot: int, time: OperatorTime) -> list[Block]:
        kernel = self.program.kernels[self.head]
        frame = pl.DataFrame(
            {
                "key": pl.Series(keys, dtype=pl.Int64),
                "value": pl.Series([1] * len(keys), dtype=pl.Int64),
                TIME: pl.Series([START + timedelta(seconds=n) for n in range(len(keys))], dtype=pl.Datetime("us")),
                ORDER: pl.Series(range(len(keys)), dtype=pl.Int64),
            }
        )
        rows = kernel.combine(kernel.prepare(frame, time).frame)
        rows = rows.with_columns(hash_keys(rows, ["key"]).alias(HASH))
        slots = self.routes.storage_slots(KeyBatch.of(rows, ["key"]))
        mine = rows.filter(pl.Series(slots == slot))
        return [Block(1, slot, BlockKind.ROWS, self.head, 0, 1, True, encode(mine))] if mine.height else []


@pytest.fixture
def program(tmp_path: Path) -> FlowProgram:
    return make_program(lambda stream: stream.key_by("key").agg(total=ab.sum("value")), tmp_path / "checkpoint")


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "_verified", {})


def test_state_follows_its_keys_to_more_slots_and_back(program: FlowProgram) -> None:
    slots = Slots(program, ONE)
    for number, following in enumerate([None, TWO, THREE, ONE, None], start=1):
        report = slots.run(KEYS, following)
        assert slots.totals() == {key: number for key in KEYS}
        assert (report.operators[slots.head].handed_bytes > 0) == (following is not None)
    assert [len(refs) > 0 for refs in slots.runs] == [True]


def test_a_slot_that_goes_has_nothing_left(program: FlowProgram) -> None:
    slots = Slots(program, THREE)
    slots.run(KEYS, following=ONE)
    assert [len(refs) for refs in slots.runs[1:]] == [0, 0]
    assert len(slots.handoffs) == 1
    assert len(slots.handoffs[0]) == 2


def test_handoffs_are_taken_in_though_no_row_comes(program: FlowProgram) -> None:
    slots = Slots(program, ONE)
    slots.run(KEYS, following=TWO)
    slots.run()
    assert slots.handoffs == ()
    assert [len(refs) for refs in slots.runs] == [1, 1]
    assert slots.totals() == {key: 1 for key in KEYS}


def merge_runs(slots: Slots, batches: int = 12) -> RunRef:
    """Run batches until a slot has merged some of its runs; return the merged one."""
    for _ in range(batches):
        slots.run(KEYS)
        for ref in slots.runs[0]:
            if ref.made_from:
                return ref
    msg = "no compaction came"
    raise AssertionError(msg)


def test_a_damaged_merge_that_is_first_opened_to_hand_it_over_is_worked_around(program: FlowProgram) -> None:
    slots = Slots(program, ONE)
    merged = merge_runs(slots)
    expected = slots.totals()
    program.store.delete([merged.file])
    # No rows: nothing else looks at the run in this batch.
    report = slots.run(following=TWO)
    assert [merged.file in problem for problem in report.problems] == [True]
    assert slots.totals() == expected


def test_a_handoff_that_is_missing_stops_the_batch(program: FlowProgram) -> None:
    slots = Slots(program, ONE)
    slots.run(KEYS, following=TWO)
    (handoff,) = slots.handoffs[1]
    program.store.delete([handoff.file])
    # Another host may see the file: Spark's retries are to find out.
    with pytest.raises(TaskFailed, match=r"RunDamaged.*is missing"):
        slots.run(KEYS)


def test_equal_batches_write_equal_files(program: FlowProgram, tmp_path: Path) -> None:
    """A task that is run again must name the same files with the same bytes, handoffs included."""

    def run(checkpoint: Path) -> tuple[object, ...]:
        again = FlowProgram(program.plan, program.sources, {}, str(checkpoint), True)
        slots = Slots(again, TWO)
        slots.run(KEYS)
        slots.run(KEYS, following=THREE)
        return slots.runs, slots.handoffs

    assert run(tmp_path / "one") == run(tmp_path / "two")


def test_split_keys_are_sent_to_meet_by_every_slot_that_holds_a_part(program: FlowProgram) -> None:
    hot = int(hash_keys(pl.DataFrame({"key": [5]}), ["key"])[0])
    slots = Slots(program, TWO.with_table(RoutingTable.of({hot: {0: 0.5, 1: 0.5}})))
    slots.run([5, 6])
    slots.run([6])
    slots.run([5])
    meeting = program.kernels[slots.head].meeting
    assert isinstance(meeting, Meeting)
    held = sum(part.height for part in slots.shared)
    assert meeting.meet(slots.shared).rows() == [(5, 2)]
    slots.run([6])
    # Silent in this batch: its parts are sent, and nothing comes of them.
    assert sum(part.height for part in slots.shared) == held
    assert meeting.meet(slots.shared).is_empty()


def hash_of(key: int) -> int:
    return int(hash_keys(pl.DataFrame({"key": [key]}), ["key"])[0])


ROW_BYTES = 8 + 8 + 8
"""A key, its hash and its total."""


def test_a_key_in_several_runs_counts_once(program: FlowProgram) -> None:
    slots = Slots(program, TWO)
    watch = Watch(16, 1.0)
    for _ in range(3):
        report = slots.run(KEYS, watch=watch)
    assert max(len(refs) for refs in slots.runs) > 1
    measured = merge_sizes(report.operators[slots.head].sizes, 2, 16)
    assert measured is not None
    assert measured.key_bytes == {hash_of(key): ROW_BYTES for key in KEYS}
    expected = np.bincount(buckets_of(np.array([hash_of(key) for key in KEYS], np.uint64), 16), minlength=16)
    assert (measured.bucket_bytes == expected * ROW_BYTES).all()


def test_keys_that_are_silent_are_measured_with_their_buckets(program: FlowProgram) -> None:
    slots = Slots(program, TWO)
    slots.run(KEYS)
    report = slots.run([KEYS[0]], watch=Watch(16, 1.0))
    measured = merge_sizes(report.operators[slots.head].sizes, 2, 16)
    assert measured is not None
    assert measured.key_bytes == {hash_of(KEYS[0]): ROW_BYTES}
    assert measured.bucket_bytes.sum() == len(KEYS) * ROW_BYTES


def test_parts_of_a_split_key_are_measured_together_though_nothing_comes_for_it(program: FlowProgram) -> None:
    slots = Slots(program, TWO)
    for slot in (0, 1):
        slots.routes = TWO.with_table(RoutingTable.of({hash_of(5): {slot: 1.0}}))
        slots.run([5])
    slots.routes = TWO.with_table(RoutingTable.of({hash_of(5): {0: 0.5, 1: 0.5}}))
    report = slots.run([6], watch=Watch(16, 1.0))
    measured = merge_sizes(report.operators[slots.head].sizes, 2, 16)
    assert measured is not None and measured.key_bytes[hash_of(5)] == 2 * ROW_BYTES


def test_slots_that_are_not_asked_measure_nothing(program: FlowProgram) -> None:
    slots = Slots(program, TWO)
    rows = [*range(20_000)]
    report = slots.run(rows, watch=Watch(16, 0.1, sizes=False))
    assert report.operators[slots.head].sizes == ()
    assert merge_sizes(report.operators[slots.head].sizes, 2, 16) is None


def test_a_run_that_is_lost_is_not_found_out_by_measuring(program: FlowProgram) -> None:
    slots = Slots(program, ONE)
    for _ in range(2):
        slots.run(KEYS)
    program.store.delete([ref.file for ref in slots.runs[0]])
    report = slots.run(watch=Watch(16, 1.0))
    assert len(report.operators[slots.head].sizes) == 1
