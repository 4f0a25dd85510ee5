"""Homes of slots from batch to batch: in the manifest, in what jobs are told, in the history, over restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.control.decisions import Decision, ExecutorChange
from anabranch.control.rebalancer import Rebalancer
from anabranch.control.steering import Steering
from anabranch.engine.batches.local_jobs import LocalJobs
from anabranch.engine.batches.slot_homes import SlotHomes
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model.cluster import Home, SlotId
from anabranch.model.elasticity import Elasticity
from anabranch.model.measures import TaskMeasure
from anabranch.placement.homes import UNEVEN_BATCHES
from anabranch.routing.phases import FlowRoutes
from flows.played_executors import PlayedExecutors
from flows.running import SCHEMA, frames_of, make_batches

BATCHES = 12
SLOTS = 4


class Stage:
    """A flow of two levels on a played cluster, a batch at a time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoint = str(folder / "state")
        self.told: list[dict[SlotId, Home]] = []
        self.source = ab.memory(*frames_of(make_batches(BATCHES)), schema=SCHEMA, max_frames=1)
        self.sink = ab.to_memory(folder / "results")
        run = LocalJobs.run

        def spy(jobs: Any, given: Any, spec: Any) -> Any:
            self.told.append(dict(spec.homes))
            return run(jobs, given, spec)

        monkeypatch.setattr(LocalJobs, "run", spy)

    def open(
        self,
        executors: PlayedExecutors | None,
        make_steering: Callable[[FlowProgram], Steering] | None = None,
        **settings: Any,
    ) -> LocalRun:
        flow = ab.Flow("homes")
        rows = flow.read(self.source).key_by("key").agg(rows=ab.count(), total=ab.sum("whole"), name="first")
        groups = rows.with_columns(group=pl.col("key") % 5).key_by("group")
        groups.agg(seen=ab.count(), name="second").write(self.sink)
        checked = make_settings(checkpoint=self.checkpoint, slots=SLOTS, takeover=True, **settings)
        return LocalRun(flow, checked, executors=executors, make_steering=make_steering)

    def homes(self, run: LocalRun) -> dict[SlotId, str]:
        """What the last manifest says."""
        latest = run.run.checkpoint.latest()
        assert latest is not None
        return dict(latest.engine.homes.executors)

    def decisions(self) -> list[tuple[int, str, str, str]]:
        rows = ab.history(self.checkpoint, kind="decision").select("batch", "operator", "action", "sender").rows()
        return [row for row in rows if row[2] in ("home", "provision", "release")]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def tell(run: LocalRun, *words: Any, operator: str | None = None) -> str:
    arguments = dict(zip(("slot", "place"), words, strict=False))
    reply = run.run.submit(Command("1", "home", operator, arguments))
    return f"{'ok' if reply.ok else 'refused'}: {reply.text}"


def test_homes_stay_from_batch_to_batch_and_over_a_restart(stage: Stage) -> None:
    executors = PlayedExecutors()
    run = stage.open(executors)
    run.step()
    first = stage.homes(run)
    assert first.keys() == {(level, slot) for level in (1, 2) for slot in range(SLOTS)}
    assert set(first.values()) == {"0", "1", "2"}
    run.step()
    run.close()
    run = stage.open(executors)
    run.step()
    run.close()
    assert [{slot: home.executor for slot, home in told.items()} for told in stage.told] == [first] * 3
    assert stage.decisions() == [(0, "first", "home", "placement"), (0, "second", "home", "placement")]


def test_slots_of_a_lost_executor_move_and_the_others_stay(stage: Stage) -> None:
    executors = PlayedExecutors()
    run = stage.open(executors)
    run.step()
    before = stage.homes(run)
    executors.lose("1")
    run.step()
    after = stage.homes(run)
    run.close()
    assert "1" not in after.values()
    assert all(after[slot] == home for slot, home in before.items() if home != "1")
    assert {row for row in stage.decisions() if row[0] == 1} == {
        (1, "first", "home", "placement"),
        (1, "second", "home", "placement"),
    }


def test_people_say_where_a_slot_runs_from_the_next_batch_on_and_after_a_restart(stage: Stage) -> None:
    executors = PlayedExecutors()
    run = stage.open(executors)
    assert tell(run, 0, "2").startswith("refused: slots of this flow have no homes")
    run.step()
    (slot,) = [slot for (level, slot), home in stage.homes(run).items() if (level, home) == (1, "1")][:1]
    assert tell(run, slot, "2", operator="first").startswith(f"ok: slot {slot} of level 1 is at home on executor 2")
    run.step()
    assert stage.told[-1][1, slot].executor == "1"
    run.step()
    assert stage.told[-1][1, slot].executor == "2"
    shown = run.run.submit(Command("2", "show")).data
    told = {home["slot"]: home for home in shown["operators"][0]["homes"]}
    assert told[slot] == {"slot": slot, "executor": "2", "host": "a", "pinned": "executor"}
    assert [executor["id"] for executor in shown["executors"]] == ["0", "1", "2"]
    run.close()
    # Another application on other hosts: the host counts, and then nobody is there who could be meant.
    run = stage.open(PlayedExecutors(hosts=("b", "a"), application="played-2"))
    run.step()
    assert stage.told[-1][1, slot] == Home("1", "a")
    run.close()
    run = stage.open(PlayedExecutors(hosts=("c",), application="played-3"))
    run.step()
    assert stage.told[-1][1, slot].host == "c"
    latest = run.run.checkpoint.latest()
    assert latest is not None and latest.engine.homes.pins == {}
    run.close()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((0, "9"), "there is no executor and no host '9'; the executors are 0 on a, 1 on b, 2 on a"),
        ((0, "1"), "executor 1 on b is leaving"),
        ((7, "0"), "there is no slot 7; level 1 has 4, from 0 to 3"),
    ],
)
def test_a_home_that_cannot_be_is_refused_and_nothing_changes(stage: Stage, words: Any, why: str) -> None:
    executors = PlayedExecutors()
    run = stage.open(executors)
    run.step()
    executors.decommission(["1"])
    run.step()
    before = stage.homes(run)
    assert tell(run, *words).startswith(f"refused: {why}")
    run.step()
    assert stage.homes(run) == before
    run.close()


class Elastic(Rebalancer):
    """Asks for executors and lets them go after batches that a test names."""

    plan: Mapping[int, ExecutorChange] = MappingProxyType({})

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        decided = super().decide(batch, routes)
        return Decision(batch, decided.routes, decided.homes, self.plan.get(batch))


def test_executors_come_warm_up_and_get_slots_and_those_that_leave_lose_theirs(stage: Stage) -> None:
    executors = PlayedExecutors(2)
    plan = {0: ExecutorChange(2, reason="it is late"), 5: ExecutorChange(release=("0",), reason="nights are quiet")}
    steering = type("Planned", (Elastic,), {"plan": plan})
    run = stage.open(executors, lambda program: steering(program, lambda: 0.0))
    seen = []
    for _ in range(8):
        run.step()
        seen.append(sorted(set(stage.homes(run).values())))
    run.close()
    assert executors.asked == ["request 4", "decommission 0"]
    assert seen[0] == seen[1] == ["0", "1"]
    # They are there one look before they are warm.
    assert seen.index(["0", "1", "2", "3"]) > 2
    assert seen[5] == ["0", "1", "2", "3"] and seen[6] == seen[7] == ["1", "2", "3"]
    assert [row for row in stage.decisions() if row[1] == "executors"] == [
        (0, "executors", "provision", "elasticity"),
        (5, "executors", "release", "elasticity"),
    ]


def test_a_cluster_that_refuses_is_told_as_a_failure_and_the_flow_goes_on(stage: Stage) -> None:
    steering = type("Planned", (Elastic,), {"plan": {0: ExecutorChange(1, reason="it is late")}})
    run = stage.open(None, lambda program: steering(program, lambda: 0.0))
    run.step()
    run.step()
    run.close()
    failed = ab.history(stage.checkpoint, kind="failure")
    assert failed.select("batch", "ends_run").rows() == [(0, False)]
    assert "one process; run the flow on a cluster" in failed["reason"][0]
    assert stage.told == [{}, {}]


def test_read_tasks_follow_the_cores_of_executors(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.engine import flow_run

    pack, tasks = flow_run.pack, []

    def spy(entries: Any, count: int, levels: Any) -> Any:
        tasks.append(count)
        return pack(entries, count, levels)

    monkeypatch.setattr(flow_run, "pack", spy)
    executors = PlayedExecutors()
    run = stage.open(executors)
    run.step()
    executors.lose("2")
    run.step()
    run.close()
    assert tasks == [6, 4]


def test_answers_are_those_of_one_process_whatever_executors_do(stage: Stage, tmp_path: Path) -> None:
    executors = PlayedExecutors()
    run = stage.open(executors, trigger="available-now", drain=True)
    for number in range(BATCHES):
        run.step()
        if number == 2:
            executors.lose("0")
        if number == 4:
            executors.request(3)
        if number == 6:
            tell(run, 1, "a")
    run.close()
    wild = stage.sink.frame().sort("group", "seen")
    (tmp_path / "alone").mkdir()
    alone = Stage(tmp_path / "alone", pytest.MonkeyPatch())
    run = alone.open(None, trigger="available-now", drain=True)
    for _ in range(BATCHES):
        run.step()
    run.close()
    assert wild.equals(alone.sink.frame().sort("group", "seen"))


def test_anchors_turned_off_leave_slots_without_homes(stage: Stage) -> None:
    run = stage.open(PlayedExecutors(), anchors=False)
    run.step()
    assert stage.told == [{}] and stage.homes(run) == {}
    assert tell(run, 0, "1").startswith("refused")
    run.close()


def test_while_only_one_executor_is_warm_slots_are_told_to_stay_there(stage: Stage) -> None:
    executors = PlayedExecutors(1)
    run = stage.open(executors)
    run.step()
    assert stage.told == [{}], "there is but one"
    executors.request(2)
    while len(executors.list()) < 2:
        pass
    executors.looks -= 1
    run.step()
    # The other one is there and cold: without homes, tasks would start its processes in the middle of a batch.
    assert {home.executor for home in stage.told[-1].values()} == {"0"} and len(stage.told[-1]) == 2 * SLOTS
    run.step()
    assert {home.executor for home in stage.told[-1].values()} == {"0", "1"}
    run.close()


SHARES = (1.3, 1.04, 0.77, 0.89)
"""What slots of four executors take, over the mean: sixteen slots of zipf keys, as they are dealt."""


@pytest.mark.parametrize(
    ("quota", "busy", "is_evened"),
    [(0.3, 0.6, True), (None, 0.6, True), (4.0, 0.6, True), (0.3, 0.1, False), (4.0, 0.1, False)],
)
def test_slots_are_evened_out_by_what_executors_have_however_little_that_is(
    quota: float | None, busy: float, is_evened: bool
) -> None:
    limits = Elasticity() if quota is None else Elasticity(cores_per_executor=quota)
    homes = SlotHomes(PlayedExecutors(4, cores=1), None, limits)

    def settle() -> dict[SlotId, str]:
        homes.look()
        homes.begin([16], homes.kept)
        homes.end({})
        return dict(homes.kept.executors)

    dealt = settle()
    assert set(Counter(dealt.values()).values()) == {4}
    batch_seconds = 10.0
    whole_seconds = batch_seconds * busy * (quota or 1.0)
    tasks = [
        TaskMeasure(level, slot, id, "a", SHARES[int(id)] * whole_seconds / 4, 0.0, 0)
        for (level, slot), id in dealt.items()
    ]
    for _ in range(UNEVEN_BATCHES):
        assert settle() == dealt, "few batches are no reason to move state"
        homes.learn(tasks, batch_seconds)
    after = settle()
    assert (after != dealt) == is_evened
    cpu_seconds: Counter[str] = Counter()
    for task in tasks:
        cpu_seconds[after[task.level, task.slot]] += task.cpu_seconds  # type: ignore[assignment]
    assert (max(cpu_seconds.values()) <= 1.15 * sum(cpu_seconds.values()) / 4) == is_evened
    assert settle() == after


def test_memory_of_executors_is_what_settings_say_where_they_do() -> None:
    there = PlayedExecutors(2)
    told = SlotHomes(there, None, Elasticity(memory_mb_per_executor=1.5))
    told.look()
    assert [one.memory_bytes for one in told.executors] == [3 * 2**19] * 2
    known = SlotHomes(there, None, Elasticity())
    known.look()
    assert [one.memory_bytes for one in known.executors] == [0, 0], "nobody knows, so that it does not count"
