"""Flows made by chance on hosts that a test plays: hosts are lost and come, copying is cut, replicas are damaged,
slots and executors move, drivers take over from each other, all of it by a seed; and answers are the oracle's.

Copying happens where the seed says, in the thread that runs the batches: a seed always does the same.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.connectors.in_memory import MemorySink
from anabranch.engine import local_run
from anabranch.engine.batches import cluster_readings
from anabranch.engine.batches.jobs import BatchInput, JobFailed
from anabranch.engine.batches.replicas.tier import ReplicaTier
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import RunSettings
from anabranch.engine.tasks.blocks import Block
from anabranch.engine.tasks.spec import BatchSpec
from anabranch.errors import Fenced
from anabranch.model import BatchProgress, RunRef
from anabranch.model.cluster import Executor
from anabranch.model.replicas import PLACEMENTS
from anabranch.placement.elasticity import ClusterReading, read_cluster
from anabranch.state import runs as state_runs
from anabranch.state.runs import RunFiles, check_content
from anabranch.state.store import LocalStore
from flows.hosted_jobs import HostedJobs
from flows.played_executors import PlayedExecutors, place_readers
from flows.random_flows import KINDS, RandomFlow, check, make_random_flow
from flows.running import FlowBench, Steer
from flows.wild_steering import WildSteering

HOSTS = "abcdef"
SECONDS = 10.0
"""From batch to batch, by the clock of the test."""
MOST_ROUNDS = 12
"""In so many, everything is copied."""


@dataclass
class Seen:
    """What happened, so that a test can tell that something did."""

    events: list[str] = field(default_factory=list)
    reads: dict[str, int] = field(default_factory=dict)
    lost_slots: int = 0
    spared_stores: int = 0
    """Losses after which the rule held that nobody reads the store."""
    actions: set[str] = field(default_factory=set)


class FragileJobs(HostedJobs):
    """Jobs of which some fail, and in the middle of which something happens."""

    def __init__(self, program: Any, ahead: Any) -> None:
        super().__init__(program, ahead)
        self.fails = 0
        self.in_the_middle: Callable[[], None] = lambda: None

    def run(self, given: BatchInput, spec: BatchSpec) -> list[Block]:
        # Processes that read state come and go: none knows what another has checked.
        state_runs._verified.clear()
        blocks = super().run(given, spec)
        if self.fails:
            self.fails -= 1
            msg = "an executor was lost with what it had computed"
            raise JobFailed(msg, None)
        return blocks

    def _exchange(self, task: Any, blocks: Any, slots: int) -> list[Block]:
        self.in_the_middle()
        return super()._exchange(task, blocks, slots)


class DisturbedBench(FlowBench):
    """Runs flows on played hosts, and disturbs them."""

    def __init__(self, folder: Path, seed: int, degree: int | None = None) -> None:
        super().__init__(folder)
        self.chance = random.Random(f"disturbed {seed}")
        self.seen = Seen()
        self.now = 1_800_000_000.0
        self.clock = lambda: self.now
        self._hosts = HOSTS[: self.chance.randint(3, len(HOSTS))]
        self._replicas = ab.Replicas(
            degree=degree or self.chance.randint(2, 3), placement=self.chance.choice(PLACEMENTS), memory_mb=64
        )
        self._policy = self.chance.choice(["energy", "elasticity", "both", "wild", "none"])
        self._busy_cores = 1.0
        self._damages = self.chance.random() < 0.5
        self._unheard = 0
        """Hosts that were lost in the middle of the last batch: the driver has not heard of it."""
        self._struck: list[str] = []

    def _run(self, flow: ab.Flow, settings: RunSettings, steer: Steer | None) -> list[BatchProgress]:
        self._flow, self._settings = flow, self._disturb_settings(settings)
        self._steer = steer if self._policy == "wild" else None
        self.executors = PlayedExecutors(len(self._hosts), self._hosts)
        self.jobs: list[FragileJobs] = []
        self._named: Mapping[str, str] = {}
        self._batch = 0
        self._progress: list[BatchProgress] = []
        with ExitStack() as stack:
            patched = stack.enter_context(pytest.MonkeyPatch.context())
            self._patch(patched)
            stack.callback(self._close)
            self.runner = self._open()
            self.runner._steps.bound()
            while True:
                self._happen()
                if self._step() is None:
                    break
        self._tell_history()
        return self._progress

    # -- the flow ----------------------------------------------------------------------------------------------------

    def _disturb_settings(self, settings: RunSettings) -> RunSettings:
        energy = ab.Energy(latency_seconds=60, window_seconds=20, windows_down=1, cool_down_seconds=10, headroom=0.1)
        elasticity = ab.Elasticity(
            max_executors=len(self._hosts) + 1, samples_up=1, samples_down=1, seconds_down=0, cool_down_seconds=0
        )
        changes = {
            "replicas": self._replicas,
            "energy": energy if self._policy in ("energy", "both") else None,
            "elasticity": elasticity if self._policy in ("elasticity", "both") else None,
        }
        return settings.model_copy(update=changes)

    def _open(self) -> LocalRun:
        settings = self._settings.model_copy(update={"takeover": bool(self.jobs)})
        return LocalRun(self._flow, settings, make_steering=self._steer, clock=self.clock, executors=self.executors)

    def _step(self) -> BatchProgress | None:
        self.now += SECONDS
        latest = self.runner.run.checkpoint.latest()
        refs = [] if latest is None else [ref for level in latest.levels for ref in level.refs()]
        self._named = {ref.file: ref.checksum for ref in refs}
        self._batch = 0 if latest is None else latest.batch + 1
        progress = self.runner.step()
        if progress is not None and progress.measures is not None:
            for source, (count, _) in progress.measures.run_reads.items():
                self.seen.reads[source] = self.seen.reads.get(source, 0) + count
        if progress is not None:
            # Of all drivers together: each tells of its own batches.
            self._progress.append(progress)
            self._after_loss(progress)
        return progress

    def _close(self) -> None:
        self.runner.close()
        for jobs in self.jobs:
            jobs.close(len(self.jobs))

    def _patch(self, patched: pytest.MonkeyPatch) -> None:
        near = LocalStore.local_path
        patched.setattr(
            LocalStore, "local_path", lambda store, name: None if name.startswith("state") else near(store, name)
        )

        def make(program: Any, ahead: Any) -> FragileJobs:
            self.jobs.append(FragileJobs(program, ahead))
            return self.jobs[-1]

        patched.setattr(local_run, "LocalJobs", make)
        patched.setattr(ReplicaTier, "_wake", lambda tier: None)
        patched.setattr(cluster_readings, "read_cluster", self._read_cluster)
        fetch = RunFiles.fetch

        def fetch_checked(files: RunFiles, ref: RunRef) -> pa.Buffer:
            content = fetch(files, ref)
            check_content(ref, content)
            assert self._named.get(ref.file, ref.checksum) == ref.checksum
            assert ref.file in self._named or ref.batch == self._batch, f"{ref.file} is of no version that counts"
            return content

        patched.setattr(RunFiles, "fetch", fetch_checked)

    def _read_cluster(self, tasks: Any, executors: Sequence[Executor], *, rows: int, **given: Any) -> ClusterReading:
        """Read a cluster on which what comes keeps as many cores busy as chance says."""
        cpu_seconds = self._busy_cores * SECONDS / max(1, len(tasks))
        placed = place_readers(tasks, executors)
        played = [replace(task, cpu_seconds=cpu_seconds, starting_seconds=0.0) for task in placed]
        coming = {"offered_rows_per_second": rows / SECONDS, "waiting_rows": 0, "batch_seconds": 1.0}
        return read_cluster(played, executors, rows=rows, **given | coming)

    @property
    def _tier(self) -> ReplicaTier:
        return cast(ReplicaTier, self.runner.run._replicas)

    @property
    def _epoch(self) -> int:
        return self.runner.run.lease.epoch

    # -- what happens ------------------------------------------------------------------------------------------------

    def _happen(self) -> None:
        chance, jobs = self.chance, self.jobs[-1]
        self._hosts_lost, self._unheard, self._struck = self._unheard, 0, []
        if chance.random() < 0.3:
            self._busy_cores = chance.choice([0.2, 1.0, 3.0, 8.0])
        jobs.is_cut = chance.random() < 0.2
        jobs.lost = set(self._hosts) - self._reachable()
        self._copy(chance.choice([0, 1, 2, MOST_ROUNDS]))
        self._begin_watch()
        for event, likely in (
            (self._come, 0.25),
            (self._lose, 0.3),
            (self._lose_executor, 0.1),
            (self._damage, 0.15),
            (self._fail_job, 0.1),
            (self._take_over, 0.05),
            (self._lose_in_the_middle, 0.25),
        ):
            if chance.random() < likely:
                event()

    def _copy(self, rounds: int) -> None:
        for _ in range(rounds):
            if not self._tier.copy_once():
                return

    def _reachable(self) -> set[str]:
        looks = self.executors.looks
        return {executor.host for executor, _, gone in self.executors._there if gone is None or looks < gone}

    def _living(self) -> list[str]:
        there = {executor.host for executor, _, gone in self.executors._there if gone is None}
        return sorted(there - self.jobs[-1].lost)

    def _tell(self, event: str) -> None:
        self.seen.events.append(f"{event} before batch {self._batch + 1}")

    def _lose(self) -> None:
        """Let a host be gone between two batches."""
        if len(living := self._living()) > 1:
            self._end_host(self.chance.choice(living))

    def _end_host(self, host: str) -> None:
        self._tell(f"lose {host}")
        for executor, _, gone in list(self.executors._there):
            if executor.host == host and gone is None:
                self.executors.lose(executor.id)
        self.jobs[-1].on(host)
        self.jobs[-1].lose_memory(host, self._epoch)
        self.jobs[-1].lost.add(host)
        self._hosts_lost += 1

    def _lose_executor(self) -> None:
        """Let an executor be gone whose host stays."""
        there = [executor.id for executor, _, gone in self.executors._there if gone is None]
        if len(there) > 1:
            self._tell("lose an executor")
            self.executors.lose(self.chance.choice(there))
            self._hosts_lost += 1

    def _lose_in_the_middle(self) -> None:
        """Let a host be gone while a batch runs: Spark runs its slots elsewhere, and the driver hears of it later."""
        level = self.chance.randint(1, 2)
        jobs = self.jobs[-1]

        def strike() -> None:
            nonlocal level
            level -= 1
            living = self._living()
            if level == 0 and len(living) > 1:
                host = self.chance.choice(living)
                self._tell(f"lose {host} in the middle of the batch")
                jobs.lost.add(host)
                self._struck = [*self._struck, host]
                self._copy(self.chance.choice([0, 1]))

        jobs.in_the_middle = strike

    def _come(self) -> None:
        staying = sum(gone is None for _, _, gone in self.executors._there)
        if staying <= len(self._hosts):
            self._tell("an executor comes")
            self.executors.request(staying + 1)

    def _fail_job(self) -> None:
        self._tell("a job fails")
        self.jobs[-1].fails = 1

    def _damage(self) -> None:
        """Let replicas not be what they were."""
        if not self._damages or not self._living():
            return
        host = self.chance.choice(self._living())
        paths = sorted(self.jobs[-1].replicas(host, self._epoch).folder.iterdir())
        contents = {path: path.read_bytes() for path in paths}
        for path in self.chance.sample(paths, min(len(paths), 3)):
            content, other = contents[path], contents[self.chance.choice(paths)]
            if not content:
                continue
            middle = len(content) // 2
            flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            damaged = self.chance.choice([flipped, content[:-1], other, None])
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
        self._tell(f"{len(paths)} replicas on {host} may be damaged")

    def _take_over(self) -> None:
        """Let another driver take the checkpoint, while the one before believes that it is the only one."""
        if self._batch == 0:
            return
        self._tell("another driver takes over")
        before = self.runner
        self.runner = self._open()
        self.runner._steps.bound()
        published = self._list_published()
        with contextlib.suppress(Fenced):
            assert before.step() is None, "a driver goes on that another has taken over from"
        assert self._list_published() == published, "two drivers publish"
        before.abandon()
        self._is_whole = False

    def _list_published(self) -> list[Path]:
        sinks = [sink for sink in self.runner.run.program.sinks.values() if isinstance(sink, MemorySink)]
        return sorted(path for sink in sinks for path in Path(sink.directory).rglob("*") if path.is_file())

    # -- what must hold ----------------------------------------------------------------------------------------------

    def _begin_watch(self) -> None:
        """Note whether every slot has all the replicas that it is to have, for the state of the last batch."""
        told = self._tier.show()["replicas"]
        self._is_whole = (
            not self.jobs[-1].is_cut
            and told["wanted"] > 0
            and told["current"] == told["wanted"]
            and not self._tier.tell_wait().executors
        )

    def _after_loss(self, progress: BatchProgress) -> None:
        jobs = self.jobs[-1]
        jobs.in_the_middle = lambda: None
        before = self._hosts_lost
        for host in self._struck:
            self._end_host(host)
            self._unheard += 1
        company = self.runner.run.events._log.read_tail()
        told = [one.event for one in company if getattr(one.event, "action", "") == "replica"]
        slots = [slot for event in told if event.batch == progress.batch for slot in event.slots]  # type: ignore[union-attr]
        self.seen.lost_slots += len(slots)
        if slots and self._is_whole and not self._damages and not self._struck and before < self._replicas.degree:
            assert not any(slot.store_runs for slot in slots), "fewer hosts failed than there were copies"
            self.seen.spared_stores += 1

    def _tell_history(self) -> None:
        told = ab.history(self._settings.checkpoint, kind="decision")
        self.seen.actions = set(told["action"].to_list())


def make_disturbed_flow(seed: int) -> RandomFlow:
    """Return the flow of a seed: of any kind, and long enough that much can happen."""
    chance = random.Random(f"flow {seed}")
    flow = make_random_flow(chance.choice(KINDS), seed)
    rows = tuple(chance.randint(1, 60) for _ in range(chance.randint(7, 12)))
    return replace(flow, batch_rows=rows, frames_per_batch=1, slots=chance.randint(2, 6))


def check_disturbed(folder: Path, seed: int, degree: int | None = None) -> Seen:
    """Run the flow of a seed, disturbed, and fail unless its answers are the oracle's; return what happened."""
    case = make_disturbed_flow(seed)
    bench = DisturbedBench(folder, seed, degree)
    rows = [row for batch in case.batches() for row in batch][:10]
    try:
        check(bench, case, lambda program: WildSteering(seed, program, rows))
    except BaseException as error:
        error.add_note(f"seed {seed}: {case}; {bench._policy}, {bench._replicas}: {bench.seen.events}")
        raise
    return bench.seen
