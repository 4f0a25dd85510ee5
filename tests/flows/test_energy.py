"""A flow whose hosts sleep while load is low: slots go together, hosts go and come back; answers stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.engine.batches import cluster_readings
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.errors import AnabranchError, EngineError, FlowError
from anabranch.model.cluster import Cluster, Executor
from anabranch.model.measures import TaskMeasure
from anabranch.placement.elasticity import ClusterReading, read_cluster
from flows.played_executors import PlayedExecutors

SECONDS = 10.0
"""From batch to batch, by the clock of the test and by the trigger that the run is told."""
ROWS = 60
CORES_A_LOAD = 1.2
"""That so many rows keep busy, of the eight that four hosts have."""
ENERGY = ab.Energy(
    latency_seconds=20, windows_down=2, cool_down_seconds=60, restart_seconds=60, power={"*": (60, 90, 150, 300)}
)
HIGH, LOW, BACK = 4, 8, 20
"""The first batch says nothing, and the second begins a window, so that windows end with the 5th and the 8th."""
LOADS = (*[HIGH] * LOW, *[1] * (BACK - LOW), *[HIGH] * 12)
SCHEMA: dict[str, pl.DataType] = {"key": pl.Int64(), "value": pl.Int64()}


def _read_played(tasks: Any, executors: Sequence[Executor], *, rows: int, **given: Any) -> ClusterReading:
    """Read a cluster on which a row takes as long as the test says, a tenth of it to be read, the rest in slots."""
    staying = [one for one in executors if not one.is_leaving]
    readers = [task for task in tasks if task.level == 0]
    total = CORES_A_LOAD * SECONDS * rows / ROWS
    played: list[TaskMeasure] = []
    for place, task in enumerate(tasks):
        share = 0.1 / len(readers) if task.level == 0 else 0.9 / (len(tasks) - len(readers))
        there = staying[place % len(staying)]
        played.append(
            replace(task, executor=there.id, host=there.host, cpu_seconds=share * total, starting_seconds=0.0)
        )
    coming = {"offered_rows_per_second": rows / SECONDS, "waiting_rows": 0}
    return read_cluster(played, executors, rows=rows, **given | coming)


@dataclass
class Stage:
    """A flow on four hosts, a batch at a time, under a load and by a clock that a test plays."""

    folder: Path
    loads: Sequence[float] = LOADS
    executors: PlayedExecutors = field(default_factory=lambda: PlayedExecutors(4, hosts=("a", "b", "c", "d")))
    now: float = 1_000.0
    hosts: list[set[str]] = field(default_factory=list)
    """By batch, the hosts on which slots of the next one are to run."""

    def open(self, energy: Any = ENERGY, **settings: Any) -> LocalRun:
        frames = [
            pl.DataFrame({"key": [row % 97 for row in range(rows)], "value": range(rows)})
            for rows in (int(ROWS * load) for load in self.loads)
        ]
        self.sink = ab.to_memory(self.folder / "results")
        flow = ab.Flow("thrifty")
        rows = flow.read(ab.memory(*frames, schema=SCHEMA, max_frames=1)).key_by("key")
        rows.agg(total=ab.sum("value")).write(self.sink)
        told = {"checkpoint": str(self.folder / "state"), "trigger": f"{SECONDS:g}s", "slots": 8, "energy": energy}
        self.local = LocalRun(flow, make_settings(**told | settings), clock=lambda: self.now, executors=self.executors)
        return self.local

    def step(self) -> None:
        self.now += SECONDS
        self.local.step()
        latest = self.local.run.checkpoint.latest()
        assert latest is not None
        self.hosts.append({home.host for home in latest.engine.homes.homes.values()})

    def run(self, **settings: Any) -> None:
        self.open(**settings)
        for _ in self.loads:
            self.step()
        self.shown = self.local.run.submit(Command("1", "show")).data
        self.progress = self.local.run.progress.read()
        self.local.close()

    def decisions(self) -> list[tuple[int, str]]:
        told = ab.history(str(self.folder / "state"), kind="decision").filter(pl.col("sender") == "energy")
        return told.select("batch", "action").unique(maintain_order=True).rows()

    def answers(self) -> pl.DataFrame:
        return self.sink.frame().sort(pl.all())


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(cluster_readings, "read_cluster", _read_played)
    return Stage(tmp_path)


@pytest.mark.parametrize("policy", ["erdm", "consolidation"])
def test_hosts_sleep_while_load_is_low_and_come_back_with_it_once_each_way(stage: Stage, policy: Any) -> None:
    stage.run(energy=replace(ENERGY, policy=policy))
    everyone = {"a", "b", "c", "d"}
    assert all(hosts == everyone for hosts in stage.hosts[:LOW])
    assert stage.hosts[BACK - 1] == {"a"} and stage.hosts[-1] == everyone
    released, requested = stage.executors.asked
    assert released == "decommission 1 2 3" and requested == "request 4"
    actions = [action for _, action in stage.decisions()]
    assert [action for action in actions if action != "home"] == ["offload", "release", "provision"]
    # Slots leave at one boundary, hosts at the next: nothing runs where something goes.
    (offloaded,) = [batch for batch, action in stage.decisions() if action == "offload"]
    assert (offloaded + 1, "release") in stage.decisions() and stage.hosts[offloaded] == {"a"}
    assert stage.shown["energy"]["changes"] == 2 and stage.shown["energy"]["asleep"] == 0


def test_answers_are_those_of_a_flow_whose_hosts_all_stay_awake(stage: Stage, tmp_path: Path) -> None:
    stage.run()
    still = Stage(tmp_path / "still")
    still.run(energy=replace(ENERGY, policy="awake"))
    assert stage.answers().equals(still.answers())
    assert still.executors.asked == [] and all(hosts == {"a", "b", "c", "d"} for hosts in still.hosts)
    # Without load, a host draws 60 W here, and asleep 2 % of 300 W, by what is assumed.
    asleep, awake = stage.progress[BACK - 1].energy, still.progress[BACK - 1].energy
    assert asleep is not None and awake is not None
    assert awake.joules == pytest.approx(4 * 60 * SECONDS, rel=0.01)
    assert asleep.joules == pytest.approx((60 + 3 * 6) * SECONDS, rel=0.1)
    assert awake.basis == "modelled" and awake.low_joules == pytest.approx(0.9 * awake.joules)


def test_as_many_hosts_stay_awake_as_the_latency_asks(stage: Stage) -> None:
    # On one host a batch would take 6 s of the 10 s between two, and a fifth more if load rose.
    stage.loads = LOADS[:BACK]
    stage.run(energy=replace(ENERGY, latency_seconds=15, policy="consolidation"))
    assert len(stage.hosts[-1]) == 2
    assert stage.shown["energy"]["latency_seconds"] <= 15


def test_load_that_comes_back_at_once_keeps_hosts_that_were_to_go(stage: Stage) -> None:
    stage.open()
    for _ in stage.loads:
        stage.step()
        if (len(stage.hosts) - 1, "offload") in stage.decisions():
            break
    done = len(stage.hosts)
    stage.local.close()
    again = Stage(stage.folder / "again", loads=(*LOADS[: done - 1], *[HIGH] * 6))
    again.run()
    assert [action for _, action in again.decisions() if action != "home"] == ["offload", "keep"]
    assert again.executors.asked == [] and again.hosts[-1] == {"a", "b", "c", "d"}


def test_a_slot_that_people_pinned_stays_and_so_does_its_host(stage: Stage) -> None:
    stage.open()
    stage.step()
    wish = Command("1", "home", None, {"slot": 3, "place": "d"})
    assert stage.local.run.submit(wish).ok
    for _ in stage.loads[1:BACK]:
        stage.step()
    assert stage.hosts[-1] == {"a", "d"}
    stage.local.close()


def test_with_elasticity_hosts_go_by_energy_and_more_than_before_come_by_elasticity(stage: Stage) -> None:
    stage.executors = PlayedExecutors(2, hosts=("a", "b", "c", "d"))
    stage.loads = (*[1] * 12, *[HIGH] * 18)
    grows = ab.Elasticity(max_executors=4, samples_down=2, seconds_down=20, cool_down_seconds=20)
    stage.run(elasticity=grows)
    assert stage.executors.asked[0] == "decommission 1"
    assert "request 4" in stage.executors.asked
    assert stage.hosts[-1] == {"a", "b", "c", "d"}
    assert not any(asked.startswith("decommission") for asked in stage.executors.asked[1:])


def test_a_flow_whose_source_falls_silent_lets_its_hosts_sleep(stage: Stage) -> None:
    stage.loads = LOADS[:LOW]
    run = stage.open()
    for _ in stage.loads:
        stage.step()
    for _ in range(20):
        wake_us = run.wake_us
        if wake_us is None:
            break
        stage.now = max(stage.now, wake_us / 1e6)
        assert run.step() is not None
    assert stage.executors.asked == ["decommission 1 2 3"]
    run.close()


def test_a_cluster_that_refuses_to_let_hosts_go_keeps_using_them(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(ids: Sequence[str]) -> None:
        asked.append(ids)
        msg = "no"
        raise EngineError(msg)

    monkeypatch.setattr(stage.executors, "decommission", refuse)
    stage.run()
    assert asked and stage.hosts[-1] == {"a", "b", "c", "d"}
    assert "no" in ab.history(str(stage.folder / "state"), kind="failure")["reason"].to_list()


def test_energy_is_in_progress_history_and_what_ctl_shows(stage: Stage) -> None:
    stage.loads = (HIGH, HIGH)
    stage.run()
    told = ab.history(str(stage.folder / "state"), kind="batch")
    assert told["energy_basis"].to_list() == ["modelled", "modelled"]
    each = stage.progress[-1].energy_per_million_rows
    assert each is not None and told["joules_per_million_rows"][-1] == pytest.approx(each.joules)
    assert (told["low_joules"] < told["joules"]).all() and (told["joules"] < told["high_joules"]).all()
    assert stage.shown["drawn"]["last batch per million rows"] == each.describe()
    assert stage.shown["drawn"]["source"] == "given by the user"
    assert stage.shown["energy"] == {"policy": "ERDM", "hosts": 4, "asleep": 0, "bound_seconds": 20, "changes": 0}


def test_a_flow_in_one_process_can_tell_energy_and_let_nobody_sleep(tmp_path: Path) -> None:
    def run(policy: Any) -> LocalRun:
        flow = ab.Flow("here")
        flow.read(ab.memory(pl.DataFrame({"key": [1]}))).key_by("key").agg(n=ab.count()).write(ab.to_memory())
        settings = make_settings(checkpoint=str(tmp_path / policy), energy={"latency_seconds": 5, "policy": policy})
        return LocalRun(flow, settings)

    with pytest.raises(AnabranchError, match="neither added nor released: driver and executor are one process"):
        run("erdm")
    local = run("awake")
    progress = local.step()
    assert progress is not None and progress.energy is not None and progress.energy.joules > 0
    local.close()


@pytest.mark.parametrize("obstacle", ["spark.dynamicAllocation.enabled is true; set it to false"])
def test_a_cluster_that_cannot_change_is_refused_at_the_start(stage: Stage, obstacle: str) -> None:
    stage.executors.describe = lambda: Cluster("played", obstacles=(obstacle,))  # type: ignore[method-assign]
    with pytest.raises(AnabranchError, match=f"neither added nor released: {obstacle}"):
        stage.open()


def test_settings_come_by_name_as_files_give_them() -> None:
    given = {"latency_seconds": "4", "windows_down": 3, "policy": "consolidation", "power": {"*": [60, 90, 150, 300]}}
    expected = ab.Energy(4, "consolidation", windows_down=3, power={"*": [60, 90, 150, 300]})
    assert make_settings(checkpoint="state", energy=given).energy == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"window_seconds": 30}, "latency_seconds is missing"),
        ({"latency_seconds": 4, "windows": 3}, "there is no setting 'windows'; did you mean 'windows_down'"),
        ({"latency_seconds": 4, "min_hosts": 1.5}, "min_hosts is 1.5; give a whole number"),
        ({"latency_seconds": 4, "policy": "after LEEDSP"}, "policy is 'after LEEDSP'; give one of erdm"),
        ({"latency_seconds": 4, "power": {"a": [1, 2]}}, r"power of a is \[1, 2\]; give the watts when idle"),
        ({"latency_seconds": 4, "power": [1, 2, 3, 4]}, "give hosts with four watts each"),
        (4, "energy: "),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_to_give(given: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_settings(checkpoint="state", energy=given)


def test_a_bound_that_no_row_could_keep_is_refused() -> None:
    with pytest.raises(FlowError, match="within 20 s, and a row may wait for trigger='30s' as long"):
        make_settings(checkpoint="state", energy=ENERGY, trigger="30s")


def test_slots_that_run_anywhere_cannot_leave_a_host() -> None:
    with pytest.raises(FlowError, match="energy lets slots leave an executor before it goes, and anchors=False"):
        make_settings(checkpoint="state", energy=ENERGY, anchors=False)
