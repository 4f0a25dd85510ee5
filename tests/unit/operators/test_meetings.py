"""Parts of shared keys: however rows are cut, what meets is what one slot would have made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    HASH,
    AggregateSpec,
    Kernel,
    Meeting,
    OperatorSpec,
    OperatorTime,
    RunRef,
    TopKSpec,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates import sketches
from anabranch.operators.kernels import make_kernel
from anabranch.state.slots import RunsOfSlot
from property_tests import tries
from unit.operators import oracle
from unit.operators.many_slots import RunsInMemory
from unit.operators.streams import SECOND_US, Outcome, Row, rows_strategy, to_frame

AGGREGATES = {
    "rows": ab.count(),
    "values": ab.count("real"),
    "total": ab.sum("whole"),
    "lowest": ab.min("real"),
    "highest": ab.max("whole"),
    "average": ab.mean("real"),
    "spread": ab.variance("real"),
    "deviation": ab.stddev("whole", ddof=0),
    "opening": ab.first("whole"),
    "closing": ab.last("real"),
    "different": sketches.approx_distinct("whole"),
}
TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 4 * SECOND_US)
SPECS: dict[str, OperatorSpec] = {
    "tumbling": AggregateSpec(("key",), AGGREGATES, TUMBLING, "ts"),
    "sliding": AggregateSpec(("key",), AGGREGATES, SLIDING, "ts"),
    "running": AggregateSpec(("key",), AGGREGATES, None, "ts"),
    "best of windows": TopKSpec(("key",), "whole", 2, True, ("real",), TUMBLING, "ts"),
    "best so far": TopKSpec(("key",), "whole", 2, False, ("real",), None, "ts"),
}
OPEN = OperatorTime(0, BEGINNING_OF_TIME, BEGINNING_OF_TIME, 0, BEGINNING_OF_TIME)
DRAIN = OperatorTime(1, BEGINNING_OF_TIME, END_OF_TIME, 0, BEGINNING_OF_TIME)

cuts = st.lists(st.tuples(rows_strategy, st.integers(0, 3)), max_size=30)


@dataclass(frozen=True)
class EverythingShared:
    """A ``Standing`` under which every key is on several slots."""

    listed: bool = True

    @property
    def split_hashes(self) -> pl.Series | None:
        return pl.Series(range(6), dtype=pl.UInt64) if self.listed else None

    def shares(self, hashes: pl.Series, windows: pl.Series | None) -> pl.Series:
        return pl.repeat(True, hashes.len(), eager=True)

    def lacks(self, hashes: pl.Series, windows: pl.Series) -> pl.Series | None:
        return None


def meet(kernel: Kernel, shared: list[pl.DataFrame]) -> pl.DataFrame:
    assert isinstance(kernel.meeting, Meeting)
    return kernel.meeting.meet(shared)


def send(kernel: Kernel, rows: list[tuple[int, Row]], time: OperatorTime) -> list[pl.DataFrame]:
    sent = kernel.combine(kernel.prepare(to_frame(rows), time).frame)
    return [sent.with_columns(pl.col("key").cast(pl.UInt64).alias(HASH))]


def new_state() -> RunsOfSlot:
    files = RunsInMemory()
    return RunsOfSlot((), files, files)


def emitted(frame: pl.DataFrame) -> list[Outcome]:
    return [Outcome(frame.to_dicts(), 0)]


@pytest.mark.parametrize("listed", [True, False], ids=["split keys are listed", "any key may be split"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@tries(50)
@given(cut=cuts)
def test_parts_of_any_cut_meet_to_what_one_slot_makes(
    spec: OperatorSpec, listed: bool, cut: list[tuple[Row, int]]
) -> None:
    kernel = make_kernel(spec)
    placed = list(enumerate(cut))
    alone = kernel.advance(send(kernel, [(n, row) for n, (row, _) in placed], DRAIN), True, new_state(), DRAIN)
    shared, unshared = [], 0
    for slot in range(4):
        rows = [(n, row) for n, (row, owner) in placed if owner == slot]
        fired = kernel.advance(send(kernel, rows, DRAIN), True, new_state(), DRAIN, EverythingShared(listed))
        unshared += fired.frame.height
        shared += [] if fired.shared is None else [fired.shared]
    assert unshared == 0
    oracle.assert_same(emitted(meet(kernel, shared) if shared else pl.DataFrame()), emitted(alone.frame))


@pytest.mark.parametrize("name", ["running", "best so far"])
@tries(50)
@given(cut=cuts, later=st.lists(rows_strategy, min_size=1, max_size=5))
def test_totals_that_are_taken_in_add_up_with_what_is_there(
    name: str, cut: list[tuple[Row, int]], later: list[Row]
) -> None:
    """Parts of slots 1 to 3 are handed to slot 0, which may have a part of its own."""
    kernel = make_kernel(SPECS[name])
    files = RunsInMemory()
    placed = list(enumerate(cut))
    runs: tuple[RunRef, ...] = ()
    handed = []
    for slot in range(4):
        rows = [(n, row) for n, (row, owner) in placed if owner == slot]
        state = RunsOfSlot((), files, files)
        kernel.advance(send(kernel, rows, OPEN), True, state, OPEN)
        if slot == 0:
            runs = state.runs()
        elif state.runs():
            handed.append(files.write(kernel.stored(state.live(), BEGINNING_OF_TIME)))
    owner = RunsOfSlot(runs, files, files)
    if handed:
        kernel.absorb(handed, owner)
    time = OperatorTime(1, BEGINNING_OF_TIME, BEGINNING_OF_TIME, 0, BEGINNING_OF_TIME)
    got = kernel.advance(send(kernel, list(enumerate(later)), time), True, owner, time)
    whole = new_state()
    kernel.advance(send(kernel, [(n, row) for n, (row, _) in placed], OPEN), True, whole, OPEN)
    expected = kernel.advance(send(kernel, list(enumerate(later)), time), True, whole, time)
    oracle.assert_same(emitted(got.frame), emitted(expected.frame))


def test_a_single_handoff_of_unknown_keys_is_taken_in_without_a_copy() -> None:
    kernel = make_kernel(SPECS["running"])
    files = RunsInMemory()
    giver = RunsOfSlot((), files, files)
    kernel.advance(send(kernel, [(0, Row(1, 0, 1, 1.0))], OPEN), True, giver, OPEN)
    (ref,) = giver.runs()
    taker = RunsOfSlot((), files, files)
    kernel.absorb([ref], taker)
    assert taker.runs() == (ref,)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@tries(40)
@given(cut=cuts)
def test_state_of_several_slots_unites_to_that_of_one(spec: OperatorSpec, cut: list[tuple[Row, int]]) -> None:
    kernel = make_kernel(spec)
    placed = list(enumerate(cut))

    def stored(rows: list[tuple[int, Row]]) -> list[pl.DataFrame]:
        state = new_state()
        kernel.advance(send(kernel, rows, OPEN), True, state, OPEN)
        return [kernel.stored(state.live(), BEGINNING_OF_TIME)] if state.runs() else []

    parts = [part for slot in range(4) for part in stored([(n, row) for n, (row, owner) in placed if owner == slot])]
    whole = stored([(n, row) for n, (row, _) in placed])
    assert bool(parts) == bool(whole)
    if parts:
        united = kernel.unite(parts)
        assert united.select(HASH).equals(kernel.unite(whole).select(HASH))
        oracle.assert_same(emitted(kernel.values(united)), emitted(kernel.values(whole[0])))


def test_keys_that_nobody_touched_in_the_batch_are_not_emitted() -> None:
    kernel = make_kernel(SPECS["running"])
    states = [new_state(), new_state()]
    for state in states:
        rows = [(0, Row(1, 0, 1, 1.0)), (1, Row(2, 0, 1, 1.0))]
        kernel.advance(send(kernel, rows, OPEN), True, state, OPEN, EverythingShared())
    touched = send(kernel, [(0, Row(2, 1, 5, 1.0))], OPEN)
    fired = [
        kernel.advance(received, True, state, OPEN, EverythingShared())
        for received, state in zip([touched, []], states, strict=True)
    ]
    shared = [one.shared for one in fired if one.shared is not None]
    assert [part.height for part in shared] == [2, 2]
    found: list[dict[str, Any]] = meet(kernel, shared).to_dicts()
    assert [(row["key"], row["rows"], row["total"]) for row in found] == [(2, 3, 7)]


@pytest.mark.parametrize("window", [None, TUMBLING], ids=["running", "tumbling"])
def test_what_meets_is_ordered_the_same_whoever_comes_first(window: WindowSpec | None) -> None:
    kernel = make_kernel(AggregateSpec(("key",), {"rows": ab.count(), "total": ab.sum("whole")}, window, "ts"))
    parts = []
    for slot in range(3):
        rows = [(n, Row(n % 4, n, n + slot, 1.0)) for n in range(12)]
        fired = kernel.advance(send(kernel, rows, DRAIN), True, new_state(), DRAIN, EverythingShared())
        assert fired.shared is not None
        parts.append(fired.shared)
    first = meet(kernel, parts)
    assert sorted(first.rows()) == sorted(meet(kernel, parts[::-1]).rows())
    assert first.equals(meet(kernel, parts))
