"""Readings become changes of executors, one a boundary, and slots follow those that are there."""

from __future__ import annotations

from anabranch.control.cluster_size import ClusterSize
from anabranch.control.decisions import ExecutorChange
from anabranch.model.cluster import Executor, ReleaseWait
from anabranch.model.elasticity import Elasticity
from anabranch.placement.elasticity import ClusterReading

QUICK = Elasticity(max_executors=4, samples_up=1, samples_down=1, seconds_down=0.0, cool_down_seconds=30.0)
CORES = 2


def read(
    executors: int, busy_cores: float, now: float, cold: int = 0, wait: ReleaseWait | None = None
) -> ClusterReading:
    there = [Executor(str(id), "a", CORES) for id in range(executors)]
    there += [Executor(f"cold-{id}", "a", CORES, is_warm=False) for id in range(cold)]
    return ClusterReading(
        now_seconds=now,
        executors=tuple(there),
        rows=int(1_000 * busy_cores),
        batch_seconds=1.0,
        cpu_seconds={one.id: busy_cores / len(there) for one in there},
        offered_rows_per_second=1_000.0 * busy_cores,
        wait=wait or ReleaseWait(),
    )


def grown() -> ClusterSize:
    size = ClusterSize(QUICK)
    size.see(read(1, 4.0, now=0.0))
    return size


def test_a_change_is_handed_out_once() -> None:
    size = grown()
    change = size.take_change()
    assert change is not None
    assert (change.provision, change.total, change.sender) == (3, 4, "elasticity")
    assert "not 1" in change.reason
    assert size.take_change() is None


def test_executors_that_somebody_waits_for_are_held_and_that_is_told_once() -> None:
    size = ClusterSize(QUICK)
    size.see(read(2, 0.1, now=0.0))
    assert size.take_change() == ExecutorChange(offload=("1",), reason=size.show()["reason"])
    waiting = ReleaseWait(frozenset("1"), "copies are not elsewhere yet")
    size.see(read(2, 0.1, now=5.0, wait=waiting))
    assert size.take_change() == ExecutorChange(hold=("1",), reason="copies are not elsewhere yet")
    size.see(read(2, 0.1, now=10.0, wait=waiting))
    assert size.take_change() is None and size.idle_seconds is not None
    size.see(read(2, 0.1, now=15.0, wait=ReleaseWait(reason="nobody waits longer")))
    reason = "their slots are at home elsewhere; nobody waits longer"
    assert size.take_change() == ExecutorChange(release=("1",), reason=reason)


def test_executors_that_are_held_are_kept_if_they_are_needed_after_all() -> None:
    size = ClusterSize(QUICK)
    waiting = ReleaseWait(frozenset("1"), "copies are not elsewhere yet")
    for now in (0.0, 5.0):
        size.see(read(2, 0.1, now, wait=waiting))
    # The cost of a row is followed slowly, and what comes is four times as much.
    size.see(read(2, 4.0, now=10.0, wait=waiting))
    change = size.take_change()
    assert change is not None and change.keep == ("1",)


def test_slots_wait_for_executors_and_for_their_warming_up() -> None:
    size = grown()
    size.see(read(1, 4.0, now=5.0, cold=3))
    assert size.take_slots() is None
    size.see(read(4, 4.0, now=10.0))
    assert size.take_slots() == 4 * CORES
    assert size.take_slots() is None


def test_slots_follow_those_that_came_when_others_do_not() -> None:
    size = grown()
    size.see(read(3, 4.0, now=29.0))
    assert size.take_slots() is None
    size.see(read(3, 4.0, now=30.0))
    assert size.take_slots() == 3 * CORES
    # One that is lost meanwhile is no reason to move state.
    size.see(read(2, 4.0, now=40.0))
    assert size.take_slots() is None
    size.see(read(4, 4.0, now=50.0))
    assert size.take_slots() == 4 * CORES


def test_slots_leave_executors_and_become_fewer_a_boundary_before_these_go() -> None:
    size = ClusterSize(QUICK)
    size.see(read(4, 1.0, now=0.0))
    change = size.take_change()
    assert change is not None and change.offload == ("1", "2", "3") and not change.release
    assert size.take_slots() == CORES
    size.see(read(4, 1.0, now=1.0))
    change = size.take_change()
    assert change is not None and change.release == ("1", "2", "3") and not change.offload
    assert size.take_slots() is None


def test_executors_on_their_way_are_told_not_to_come() -> None:
    size = grown()
    size.see(read(1, 1.0, now=60.0))
    assert size.take_change() == ExecutorChange(reason=size.show()["reason"], total=1)


def test_after_a_refusal_it_begins_anew_when_the_cool_down_is_over() -> None:
    size = grown()
    size.take_change()
    size.refuse()
    assert size.show()["wanted"] is None
    size.see(read(1, 4.0, now=10.0))
    assert size.take_change() is None
    size.see(read(1, 4.0, now=31.0))
    change = size.take_change()
    assert change is not None and change.total == 4


def test_what_is_shown_says_how_busy_how_many_and_how_often() -> None:
    shown = grown().show()
    assert shown["utilisation"] == 2.0
    assert (shown["wanted"], shown["reconfigurations"]) == (4, 1)
    assert (shown["min_executors"], shown["max_executors"]) == (1, 4)
