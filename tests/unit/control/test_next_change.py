"""What changes about executors at the next boundary is taken once, and that some are held is told once."""

from __future__ import annotations

from anabranch.control.decisions import ExecutorChange
from anabranch.control.next_change import NextChange

HOLD = ExecutorChange(hold=("1",), reason="copies are not elsewhere yet")
OFFLOAD = ExecutorChange(offload=("1",))


def test_a_change_is_taken_once() -> None:
    change = NextChange()
    change.put(OFFLOAD)
    assert change.is_due and change.take() == OFFLOAD
    assert not change.is_due and change.take() is None


def test_that_executors_are_held_is_told_once_in_a_row() -> None:
    change = NextChange()
    told = []
    for decided in (OFFLOAD, HOLD, HOLD, HOLD, OFFLOAD, HOLD):
        change.put(decided)
        told.append(change.take())
    assert told == [OFFLOAD, HOLD, None, None, OFFLOAD, HOLD]


def test_a_boundary_at_which_nothing_changes_ends_the_row() -> None:
    change = NextChange()
    told = []
    for decided in (HOLD, None, HOLD):
        change.put(decided)
        told.append(change.take())
    assert told == [HOLD, None, HOLD]
