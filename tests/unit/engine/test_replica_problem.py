"""Where replicas stand follows what was measured of hosts and wires."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.engine.batches.replicas.heirs import find_heirs
from anabranch.engine.batches.replicas.problem import (
    Known,
    Pace,
    find_places,
    follow_places,
    list_written,
    pose_problem,
)
from anabranch.model.cluster import Cluster, Executor, Home, SlotId, SlotLoads
from anabranch.model.measures import BatchMeasures, TaskMeasure
from anabranch.model.replicas import Replicas
from anabranch.model.runs import RunRef
from anabranch.placement.replicas import Holdings, ReplicaPlan, place_replicas

HOSTS = "abcd"
EXECUTORS = tuple(Executor(str(number), host, 2) for number, host in enumerate(HOSTS))
HOST_OF = {one.id: one.host for one in EXECUTORS}
HOLDINGS = {host: Holdings(link_bytes_per_second=1e6) for host in HOSTS}
SLOT = (1, 0)


def run(name: str, batch: int, size: int = 1_000, slot: int = 0) -> RunRef:
    return RunRef(f"state/0/{slot}/{name}", 1, size, "crc32:0", batch)


KNOWN = Known(
    batch=5,
    runs={SLOT: {"x": run("x", 5)}},
    homes={SLOT: Home("0", "a")},
    executors=EXECUTORS,
    pace=Pace(written={SLOT: 1_000.0}),
)


def place(pace: Pace, settings: Replicas) -> ReplicaPlan:
    problem = pose_problem(replace(KNOWN, pace=pace), HOLDINGS, HOST_OF, settings)
    assert problem is not None
    return place_replicas(problem, settings.placement)


@pytest.mark.parametrize("near", ["b", "c", "d"])
def test_a_replica_goes_to_the_host_that_was_measured_to_be_nearest(near: str) -> None:
    latency = {pair: 0.2 for other in "bcd" for pair in (("a", other), (other, "a"))}
    measured = BatchMeasures(latency_seconds=latency | {("a", near): 0.001, (near, "a"): 0.001})
    pace = KNOWN.pace.follow(KNOWN.runs, 5, measured, 1.0)
    assert place(pace, Replicas(degree=2)).replicas == {SLOT: (near,)}


@pytest.mark.parametrize("busy", ["b", "c"])
def test_a_host_whose_wire_was_measured_to_be_full_gets_no_replica_however_near_it_is(busy: str) -> None:
    number = {host: id for id, host in HOST_OF.items()}
    near = {("a", busy): 0.001, (busy, "a"): 0.001}
    far = {pair: 0.2 for other in set("bcd") - {busy} for pair in (("a", other), (other, "a"))}
    settings = Replicas(degree=2, bandwidth_mbit=8.0)
    idle = BatchMeasures(latency_seconds=near | far)
    assert place(KNOWN.pace.follow(KNOWN.runs, 5, idle, 1.0), settings).replicas == {SLOT: (busy,)}
    full = replace(idle, executor_bytes={(number[busy], number["d"]): 999_900, (number["c"], number["c"]): 10**9})
    (free,) = set("bc") - {busy}
    assert place(KNOWN.pace.follow(KNOWN.runs, 5, full, 1.0), settings).replicas == {SLOT: (free,)}


def test_what_slots_write_is_followed_batch_by_batch() -> None:
    first = Pace().follow(KNOWN.runs, 5, None, 0.5)
    assert first.written == {SLOT: 2_000.0}
    assert Pace().follow(KNOWN.runs, 5, None, None) == Pace()
    assert first.follow(KNOWN.runs, 6, None, 1.0).written[SLOT] == pytest.approx(1_400.0)


def task(slot: int, executor: str, **given: bool) -> TaskMeasure:
    return TaskMeasure(1, slot, executor, HOST_OF.get(executor, "gone"), 0.1, 0.1, 0, **given)


def test_where_slots_ran_is_measured_and_since_when() -> None:
    measures = BatchMeasures(tasks=(task(0, "1"), task(1, "gone"), task(2, "2", meets=True)))
    ran = find_places(measures, HOST_OF)
    assert ran == {SLOT: "b"} and find_places(None, HOST_OF) == {}
    before = replace(KNOWN, ran={SLOT: "b"}, since={SLOT: 3})
    assert follow_places(before, ran, 6, HOST_OF) == {SLOT: 3}
    came_again = {"0": "a", "9": "b"}
    anew = (replace(before, ran={SLOT: "a"}), HOST_OF), (None, HOST_OF), (before, came_again)
    assert all(follow_places(known, ran, 6, host_of) == {SLOT: 6} for known, host_of in anew)


def test_a_host_that_was_away_is_believed_only_if_nobody_else_holds_anything() -> None:
    runs = {"x": run("x", 2)}
    known = replace(KNOWN, runs={SLOT: runs}, executors=EXECUTORS[:2])
    holdings = {host: Holdings({"x": 1_000}) for host in "bc"}
    back = (EXECUTORS[1], Executor("9", "c", 8))

    def find(held: str) -> dict[SlotId, str]:
        given = {host: holdings[host] for host in held}
        homes = find_heirs(known, KNOWN.homes, given, {SLOT: ("c",)}, back, Cluster("played"), SlotLoads(), {})
        assert (homes.whole, homes.partial) == (({SLOT: "b"}, {}) if "b" in held else ({}, {SLOT: "c"}))
        return dict(homes.executors)

    assert find("bc") == {SLOT: "1"} and find("c") == {SLOT: "9"}


def test_what_a_slot_wrote_where_it_runs_is_there_and_what_others_handed_to_it_is_not() -> None:
    runs = {"old": run("old", 2), "own": run("own", 3), "handed": run("handed", 4, slot=7)}
    known = replace(KNOWN, runs={SLOT: runs}, ran={SLOT: "b"}, since={SLOT: 3})
    assert list_written(known, SLOT) == {"own": 1_000}


def test_a_slot_goes_on_where_it_ran_when_its_home_was_lost_in_the_middle_of_a_batch() -> None:
    runs = {"old": run("old", 4), "new": run("new", 5)}
    known = replace(KNOWN, runs={SLOT: runs}, ran={SLOT: "c"}, since={SLOT: 5})
    holdings = {host: Holdings({"old": 1_000}) for host in "bc"}
    heirs = find_heirs(
        known, KNOWN.homes, holdings, {SLOT: ("b", "c")}, EXECUTORS[1:], Cluster("played"), SlotLoads(), {}
    )
    assert (heirs.executors, heirs.whole, heirs.partial) == ({SLOT: "2"}, {SLOT: "c"}, {})
    elsewhere = find_heirs(
        replace(known, ran={}), KNOWN.homes, holdings, {}, EXECUTORS[1:], Cluster("played"), SlotLoads(), {}
    )
    assert (elsewhere.whole, elsewhere.partial) == ({}, {SLOT: "b"})
