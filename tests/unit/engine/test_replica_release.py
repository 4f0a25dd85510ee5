"""Hosts that are to go wait for copies of state to be elsewhere, and not for ever."""

from __future__ import annotations

from dataclasses import replace

from anabranch.engine.batches.replicas.problem import Known, Pace
from anabranch.engine.batches.replicas.release import RELEASE_WAIT_SECONDS, AwaitedCopies
from anabranch.model.cluster import Executor, ReleaseWait

EXECUTORS = tuple(Executor(str(number), "abb"[number], 2) for number in range(3))
HOST_OF = {one.id: one.host for one in EXECUTORS}
YET = "copies of state that stand on b are not all elsewhere yet"


def known(*leaving: str) -> Known:
    return Known(1, {}, {}, tuple(replace(one, is_leaving=one.id in leaving) for one in EXECUTORS), Pace())


def find(copies: AwaitedCopies, leaving: str, now: float, *, are_elsewhere: bool = False) -> ReleaseWait:
    return copies.find_wait(
        known(*leaving), HOST_OF, are_elsewhere=are_elsewhere, problem="the wire is cut", now_seconds=now
    )


def test_a_host_that_is_to_go_waits_with_all_its_executors_until_copies_are_elsewhere() -> None:
    copies = AwaitedCopies()
    assert find(copies, "12", 10.0) == ReleaseWait(frozenset("12"), YET)
    assert find(copies, "12", 20.0, are_elsewhere=True) == ReleaseWait()


def test_an_executor_whose_host_stays_need_not_wait() -> None:
    assert find(AwaitedCopies(), "1", 10.0) == ReleaseWait()


def test_the_wait_is_bounded_and_says_what_was_in_the_way() -> None:
    copies = AwaitedCopies()
    assert find(copies, "12", 10.0).executors
    assert find(copies, "12", 9.9 + RELEASE_WAIT_SECONDS).executors
    overdue = find(copies, "12", 10.0 + RELEASE_WAIT_SECONDS)
    assert not overdue.executors and overdue.reason.endswith("to be all elsewhere: the wire is cut")


def test_a_host_that_stays_after_all_begins_anew_when_it_is_to_go_again() -> None:
    copies = AwaitedCopies()
    find(copies, "12", 10.0)
    find(copies, "", 50.0)
    assert find(copies, "12", 11.0 + RELEASE_WAIT_SECONDS).executors
