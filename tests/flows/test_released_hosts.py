"""Hosts that are released because load is low wait until the replicas that stand there are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine import local_run
from anabranch.engine.batches import cluster_readings
from anabranch.engine.batches.replicas.release import RELEASE_WAIT_SECONDS
from anabranch.engine.batches.replicas.tier import ReplicaTier
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model.cluster import Executor, SlotId
from anabranch.placement.elasticity import ClusterReading, read_cluster
from anabranch.state.copies.hot import name_copy
from anabranch.state.store import LocalStore
from flows.hosted_jobs import HostedJobs
from flows.played_executors import PlayedExecutors, place_readers

SECONDS = 10.0
"""From batch to batch, by the clock of the test."""
ROWS = 60
CORES_A_LOAD = 1.2
"""That so many rows keep busy, of the eight that four hosts have."""
HIGH, LOW = 4, 6
LOADS = (*[HIGH] * LOW, *[1] * 44)
MOST_STEPS = 40
ENERGY = ab.Energy(
    latency_seconds=20, min_hosts=2, windows_down=2, cool_down_seconds=60, power={"*": (60, 90, 150, 300)}
)
ELASTICITY = ab.Elasticity(
    min_executors=2, max_executors=4, samples_down=2, seconds_down=20, cool_down_seconds=20, slots_per_executor=2
)
SCHEMA: dict[str, pl.DataType] = {"key": pl.Int64(), "value": pl.Int64()}


def _read_played(tasks: Any, executors: Sequence[Executor], *, rows: int, **given: Any) -> ClusterReading:
    """Read a cluster on which rows take as long as the test says, the same in every task, wherever it runs."""
    cpu_seconds = CORES_A_LOAD * SECONDS * rows / ROWS / len(tasks)
    played = [replace(task, cpu_seconds=cpu_seconds, starting_seconds=0.0) for task in place_readers(tasks, executors)]
    coming = {"offered_rows_per_second": rows / SECONDS, "waiting_rows": 0}
    return read_cluster(played, executors, rows=rows, **given | coming)


class Stage:
    """A flow with replicas on four hosts, half of which are to be released when load is low."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.checkpoint = str(folder / "state")
        self.now = 1_000.0
        self.executors = PlayedExecutors(4, hosts="abcd")
        self.made: list[HostedJobs] = []
        self.sink = ab.to_memory(folder / "results")
        frames = [
            pl.DataFrame({"key": [(batch + row) % 97 for row in range(rows)], "value": range(rows)})
            for batch, rows in enumerate(ROWS * load for load in LOADS)
        ]
        flow = ab.Flow("thrifty")
        rows = flow.read(ab.memory(*frames, schema=SCHEMA, max_frames=1)).key_by("key")
        rows.agg(total=ab.sum("value")).write(self.sink)
        told = {"checkpoint": self.checkpoint, "trigger": f"{SECONDS:g}s", "slots": 8, "replicas": {"degree": 2}}
        self.run = LocalRun(flow, make_settings(**told | settings), clock=lambda: self.now, executors=self.executors)

    def step(self) -> None:
        self.now += SECONDS
        assert self.run.step() is not None

    def step_until(self, condition: Callable[[], bool]) -> int:
        """Run batches, each followed by replicas as far as they can, until something is so; return how many."""
        for number in range(MOST_STEPS):
            if condition():
                return number
            self.step()
            tier = cast(ReplicaTier, self.run.run._replicas)
            while tier.copy_once():
                pass
        raise AssertionError(f"not in {MOST_STEPS} batches: {self.actions()}")

    @property
    def jobs(self) -> HostedJobs:
        return self.made[0]

    @property
    def released(self) -> set[str]:
        """The hosts that were let go."""
        ids = [asked.split()[1:] for asked in self.executors.asked if asked.startswith("decommission")]
        return {self.executors.hosts[int(id)] for each in ids for id in each}

    def actions(self) -> list[str]:
        told = ab.history(self.checkpoint, kind="decision").filter(pl.col("operator") == "executors")
        return told["action"].to_list()

    def reasons(self, action: str) -> list[str]:
        told = ab.history(self.checkpoint, kind="decision").filter(operator="executors", action=action)
        return told["reason"].to_list()

    def copies(self) -> dict[SlotId, set[str]]:
        """Return by slot with state the hosts that hold all of it as replicas, at home not counted."""
        latest = self.run.run.checkpoint.latest()
        assert latest is not None
        homes = {slot: home.host for slot, home in latest.engine.homes.homes.items()}
        held = {host: set(self.jobs.replicas(host).list_held()) for host in "abcd" if host not in self.released}
        return {
            (1, slot): {
                host
                for host, names in held.items()
                if host != homes[1, slot] and {name_copy(run.file) for run in latest.levels[0].refs_of(slot)} <= names
            }
            for slot in range(latest.levels[0].slots)
            if latest.levels[0].refs_of(slot)
        }

    def close(self) -> None:
        self.run.close()
        self.jobs.close()


@pytest.fixture(params=["energy", "elasticity"])
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Stage]:
    # Runs lie as far away as if they were objects: nobody may map them.
    near = LocalStore.local_path
    monkeypatch.setattr(
        LocalStore, "local_path", lambda store, name: None if name.startswith("state") else near(store, name)
    )
    monkeypatch.setattr(cluster_readings, "read_cluster", _read_played)
    # Replicas follow when the test says so, and not in a thread of their own.
    monkeypatch.setattr(ReplicaTier, "_wake", lambda tier: None)
    made: list[HostedJobs] = []

    def make(program: Any, ahead: Any) -> HostedJobs:
        made.append(HostedJobs(program, ahead))
        return made[-1]

    monkeypatch.setattr(local_run, "LocalJobs", make)
    policy = {"energy": ENERGY} if request.param == "energy" else {"elasticity": ELASTICITY}
    opened = Stage(tmp_path, **policy)
    opened.made = made
    yield opened
    opened.close()


def test_hosts_are_released_once_the_replicas_that_stood_there_are_elsewhere(stage: Stage) -> None:
    stage.step_until(lambda: "offload" in stage.actions())
    stage.step_until(lambda: bool(stage.released))
    assert stage.actions()[-3:] == ["offload", "hold", "release"]
    assert "are not let go yet: copies of state that stand on" in stage.reasons("hold")[0]
    assert len(stage.released) == 2
    assert all(stage.copies().values()), "each slot has a replica on a host that stays"
    # Another host that is lost now costs nothing.
    latest = stage.run.run.checkpoint.latest()
    assert latest is not None
    home = latest.engine.homes.homes[1, 0]
    stage.executors.lose(home.executor)
    stage.jobs.lose_memory(home.host)
    stage.step()
    slots = ab.history(stage.checkpoint, kind="recovery")["slots"][-1]
    assert len(slots) and all(one["store_runs"] == 0 and one["replica_runs"] > 0 for one in slots)


def test_while_copies_cannot_be_made_elsewhere_hosts_stay_but_not_for_ever(stage: Stage) -> None:
    stage.step_until(lambda: "offload" in stage.actions())
    stage.jobs.is_cut = True
    waited = stage.step_until(lambda: bool(stage.released))
    assert RELEASE_WAIT_SECONDS <= waited * SECONDS <= RELEASE_WAIT_SECONDS + 5 * SECONDS
    assert stage.actions().count("hold") == 1
    (reason,) = stage.reasons("release")
    assert "nobody waits longer than" in reason and reason.endswith("to be all elsewhere: the wire is cut")
