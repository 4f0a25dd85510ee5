"""What is copied next: what hosts lack, from where slots are at home, a bounded amount at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import Executor, SlotId, SlotLoad
from anabranch.model.runs import RunRef
from anabranch.placement.replicas import (
    CopyRound,
    Holdings,
    choose_executors,
    find_current,
    measure_held,
    measure_lag,
    plan_round,
)
from property_tests import tries

HOSTS = ("a", "b", "c", "d")
MOST_BYTES = 100


def run(name: str, size: int, batch: int = 0) -> RunRef:
    return RunRef(name, 1, size, "crc32:0", batch)


def named(*runs: RunRef) -> dict[str, RunRef]:
    return {ref.file: ref for ref in runs}


def carry_out(found: CopyRound, holdings: dict[str, Holdings]) -> dict[str, Holdings]:
    """Do what a round says, reckoned without the planner's code."""
    after = {host: holdings.get(host, Holdings()) for host in HOSTS}
    for host, names in found.drops.items():
        held = {name: size for name, size in after[host].held.items() if name not in names}
        begun = {name: size for name, size in after[host].begun.items() if name not in names}
        after[host] = replace(after[host], held=held, begun=begun)
    for one in found.stretches:
        known, name = after[one.target], one.run.file
        assert known.begun.get(name, 0) >= one.start and name not in known.held
        begun = {each: size for each, size in known.begun.items() if each != name}
        if one.end == one.run.bytes:
            after[one.target] = replace(known, held={**known.held, name: one.run.bytes}, begun=begun)
        else:
            after[one.target] = replace(known, begun={**begun, name: one.end})
    return after


def test_hosts_of_which_nothing_is_known_are_asked_first() -> None:
    found = plan_round({(1, 0): named(run("x", 5))}, {(1, 0): "a"}, {(1, 0): ("b",)}, {}, HOSTS, MOST_BYTES)
    assert (found.asks, found.stretches, dict(found.drops)) == (HOSTS, (), {})


def test_only_what_a_host_lacks_is_sent_and_the_least_first() -> None:
    runs = {(1, 0): named(run("old", 80), run("new", 30)), (1, 1): named(run("other", 10), run("has", 5))}
    holdings = {host: Holdings() for host in HOSTS} | {"b": Holdings({"has": 5})}
    placed = {(1, 0): ("b",), (1, 1): ("b",)}
    found = plan_round(runs, {(1, 0): "a", (1, 1): "c"}, placed, holdings, HOSTS, MOST_BYTES)
    told = [(one.source, one.target, one.run.file, one.start, one.end) for one in found.stretches]
    assert told == [("c", "b", "other", 0, 10), ("a", "b", "new", 0, 30), ("a", "b", "old", 0, 60)]
    holdings = carry_out(found, holdings)
    assert measure_lag(runs, placed, holdings) == (1, 20)
    rest = plan_round(runs, {(1, 0): "a", (1, 1): "c"}, placed, holdings, HOSTS, MOST_BYTES)
    assert [(one.run.file, one.start, one.end) for one in rest.stretches] == [("old", 60, 80)]


def test_a_host_keeps_what_it_holds_of_slots_that_came_to_be_at_home_there() -> None:
    holdings = {host: Holdings() for host in HOSTS} | {"b": Holdings({"x": 5, "gone": 7}, {"half": 3})}
    found = plan_round({(1, 0): named(run("x", 5))}, {(1, 0): "b"}, {(1, 0): ("c",)}, holdings, HOSTS, MOST_BYTES)
    assert dict(found.drops) == {"b": ("gone", "half")}
    assert [(one.source, one.target) for one in found.stretches] == [("b", "c")]


def test_a_replica_is_current_only_with_every_run_whole() -> None:
    runs = {(1, 0): named(run("x", 5), run("y", 6)), (1, 1): {}}
    holdings = {"a": Holdings({"x": 5}, {"y": 5}), "b": Holdings({"x": 5, "y": 6, "z": 1}), "c": Holdings()}
    assert find_current(runs, holdings, {(1, 0): ("a",), (1, 1): ("c", "d")}) == {(1, 0): ("b",), (1, 1): ("c",)}


def test_what_a_host_holds_of_a_slot_is_told_in_bytes_of_whole_runs() -> None:
    runs = {(1, 0): named(run("x", 5), run("y", 6)), (1, 1): {}, (1, 2): named(run("z", 7))}
    holdings = {"a": Holdings({"x": 5}, {"y": 5}), "b": Holdings({"x": 5, "y": 6}), "c": Holdings({"of others": 9})}
    assert measure_held(runs, holdings) == {(1, 0): {"a": 5, "b": 11}}


def test_state_is_sent_from_where_its_slot_ran_last_and_not_at_all_without_that_host() -> None:
    runs = {(1, 0): named(run("x", 5)), (1, 1): named(run("y", 6)), (1, 2): named(run("z", 7))}
    holdings = {host: Holdings() for host in HOSTS}
    homes = dict.fromkeys(runs, "a")
    ran = {(1, 0): "c", (1, 1): "gone"}
    found = plan_round(runs, homes, dict.fromkeys(runs, ("b",)), holdings, HOSTS, MOST_BYTES, ran)
    assert [(one.source, one.run.file) for one in found.stretches] == [("c", "x"), ("a", "z")]


def test_slots_that_go_on_at_a_host_are_shared_out_among_its_executors() -> None:
    executors = [Executor("1", "b", 1), Executor("2", "b", 2), Executor("3", "c", 1)]
    heirs = {(1, number): "b" for number in range(3)} | {(1, 3): "c"}
    loads = {slot: SlotLoad(1.0) for slot in heirs}
    chosen = choose_executors(heirs, executors, {"1": "b", "2": "b", "3": "c"}, loads)
    assert Counter(chosen.values()) == {"2": 2, "1": 1, "3": 1} and chosen[1, 3] == "3"


@st.composite
def histories(
    draw: st.DrawFn,
) -> list[tuple[dict[SlotId, dict[str, RunRef]], dict[SlotId, str], dict[SlotId, tuple[str, ...]]]]:
    """Commits of a few slots whose runs come and go, and whose homes and replicas stand elsewhere now and then."""
    commits = []
    runs: dict[SlotId, dict[str, RunRef]] = defaultdict(dict)
    for batch in range(draw(st.integers(1, 6))):
        homes, placed = {}, {}
        for number in range(3):
            slot = (1, number)
            kept = draw(st.integers(0, 3))
            size = draw(st.integers(1, 250))
            runs[slot] = {
                **dict(list(runs[slot].items())[:kept]),
                f"{number}-{batch}": run(f"{number}-{batch}", size, batch),
            }
            order = draw(st.permutations(HOSTS))
            homes[slot], placed[slot] = order[0], tuple(order[1 : 1 + draw(st.integers(0, 2))])
        commits.append(({slot: dict(each) for slot, each in runs.items()}, homes, placed))
    return commits


@tries(100)
@given(histories(), st.integers(0, 3))
def test_replicas_come_to_hold_all_state_whatever_happened_before(
    commits: list[tuple[dict[SlotId, dict[str, RunRef]], dict[SlotId, str], dict[SlotId, tuple[str, ...]]]], rounds: int
) -> None:
    holdings: dict[str, Holdings] = {}
    for number, (runs, homes, placed) in enumerate(commits):
        # Batches do not wait for replicas: only after the last of them there is time for all rounds.
        for _ in range(rounds if number < len(commits) - 1 else 60):
            found = plan_round(runs, homes, placed, holdings, HOSTS, MOST_BYTES)
            sent, got = Counter[str](), Counter[str]()
            for one in found.stretches:
                assert one.end > one.start
                sent[one.source] += one.end - one.start
                got[one.target] += one.end - one.start
                owner = next(slot for slot, each in runs.items() if one.run.file in each)
                assert one.source == homes[owner] and one.target in placed[owner]
            assert max([*sent.values(), *got.values()], default=0) <= MOST_BYTES
            for host, names in found.drops.items():
                assert not {*names} & {name for slot, each in runs.items() if host in placed[slot] for name in each}
            holdings = carry_out(found, holdings)
    assert plan_round(runs, homes, placed, holdings, HOSTS, MOST_BYTES).is_empty
    current = find_current(runs, holdings, placed)
    assert all(set(hosts) <= set(current.get(slot, ())) for slot, hosts in placed.items())
    assert measure_lag(runs, placed, holdings) == (sum(map(len, placed.values())), 0)
