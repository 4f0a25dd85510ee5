"""Replicas of state in hosts' memory: a lost host's slots go on from them, and nothing bad is ever read."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.engine import local_run
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks import spec
from anabranch.errors import FlowError
from anabranch.model import RunRef
from anabranch.model.cluster import Home, SlotId
from anabranch.model.replicas import ReplicaProgress
from anabranch.state.copies.hot import name_copy
from anabranch.state.runs import RunFiles
from anabranch.state.store import LocalStore
from flows.hosted_jobs import HostedJobs
from flows.played_executors import PlayedExecutors
from flows.running import SCHEMA, Batches, frames_of, make_batches

BATCHES = 12
SLOTS = 4
PATIENCE_SECONDS = 20.0


def make_flow(source: Any, sink: Any) -> ab.Flow:
    flow = ab.Flow("copied")
    rows = flow.read(source).key_by("key").agg(rows=ab.count(), total=ab.sum("whole"), name="first")
    rows.with_columns(group=pl.col("key") % 5).key_by("group").agg(seen=ab.count(), name="second").write(sink)
    return flow


def make_windowed_flow(source: Any, sink: Any) -> ab.Flow:
    flow = ab.Flow("windows")
    rows = flow.read(source).key_by("key").watermark("ts", delay="5s").window("10s")
    rows.agg(rows=ab.count(), total=ab.sum("whole")).write(sink)
    return flow


class Stage:
    """A flow of two levels on three hosts or more, whose checkpoint is far away."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        hosts: str = "abc",
        *,
        is_mounted: bool = False,
        executors: int | None = None,
        batches: Batches | None = None,
        make: Callable[[Any, Any], ab.Flow] = make_flow,
        hot_copies: bool | None = None,
        **replicas: Any,
    ) -> None:
        self.checkpoint = str(folder / "state")
        if not is_mounted:
            # Runs lie as far away as if they were objects: nobody may map them.
            near = LocalStore.local_path
            monkeypatch.setattr(
                LocalStore, "local_path", lambda store, name: None if name.startswith("state") else near(store, name)
            )
        self.executors = PlayedExecutors(executors or len(hosts), hosts)
        self.source = ab.memory(*frames_of(batches or make_batches(BATCHES)), schema=SCHEMA, max_frames=1)
        self.sink = ab.to_memory()
        self.made: list[HostedJobs] = []

        def make_jobs(program: Any, ahead: Any) -> HostedJobs:
            self.made.append(HostedJobs(program, ahead))
            return self.made[-1]

        monkeypatch.setattr(local_run, "LocalJobs", make_jobs)
        settings = make_settings(
            checkpoint=self.checkpoint,
            slots=SLOTS,
            replicas={"degree": 2, **replicas},
            trigger="available-now",
            hot_copies=hot_copies,
        )
        self.run = LocalRun(make(self.source, self.sink), settings, executors=self.executors)
        self.jobs = self.made[0]

    def step(self) -> None:
        assert self.run.step() is not None

    def settle(self, steps: int = 1) -> ReplicaProgress:
        """Run batches, and wait until replicas have followed."""
        for _ in range(steps):
            self.step()
        wait_until(lambda: self.shown.lag_bytes == 0 and self.shown.current == self.shown.wanted, lambda: self.shown)
        return self.shown

    @property
    def shown(self) -> ReplicaProgress:
        return ReplicaProgress.from_json(self.run.run.submit(Command("1", "show")).data["replicas"])

    @property
    def kept_homes(self) -> Mapping[SlotId, Home]:
        latest = self.run.run.checkpoint.latest()
        assert latest is not None
        return latest.engine.homes.homes

    @property
    def homes(self) -> dict[SlotId, str]:
        return {slot: home.host for slot, home in self.kept_homes.items()}

    def lose(self, host: str) -> None:
        """Let a host be gone, with its executor and its memory."""
        number = self.executors.hosts.index(host)
        self.executors.lose(str(number))
        self.jobs.lose_memory(host)

    def reads(self) -> set[str]:
        latest = self.run.run.progress.latest
        assert latest is not None and latest.measures is not None
        return set(latest.measures.run_reads)

    def store_bytes(self) -> dict[SlotId, int]:
        """Return what slots read from the store in the last batch."""
        latest = self.run.run.progress.latest
        assert latest is not None and latest.measures is not None
        return {task.id: task.run_reads.get("store", (0, 0))[1] for task in latest.measures.tasks if task.level}

    def runs_of(self, slot: SlotId) -> list[RunRef]:
        latest = self.run.run.checkpoint.latest()
        assert latest is not None
        return list(latest.levels[slot[0] - 1].refs_of(slot[1]))

    def told(self) -> list[str]:
        rows = ab.history(self.checkpoint, kind="recovery")
        return rows.filter(rows["action"] == "replica")["reason"].to_list()

    def finish(self) -> list[dict[str, Any]]:
        """Run what is left, and return the results."""
        while self.run.step() is not None:
            pass
        self.close()
        return self.sink.frame().sort("group", "seen").to_dicts()

    def close(self) -> None:
        self.run.close()
        self.jobs.close()


Opens = Callable[..., Stage]


def wait_until(condition: Callable[[], bool], seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited too long; now it is {seen()}"
        time.sleep(0.01)


@pytest.fixture
def open_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opens]:
    opened: list[Stage] = []

    def make(**given: Any) -> Stage:
        opened.append(Stage(tmp_path, monkeypatch, **given))
        return opened[-1]

    yield make
    for stage in opened:
        stage.jobs.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The answers of a flow that nothing happens to, and that has no replicas."""
    frame = run_undisturbed(tmp_path_factory.mktemp("undisturbed"), make_batches(BATCHES), make_flow)
    return frame.sort("group", "seen").to_dicts()


def run_undisturbed(folder: Path, batches: Batches, make: Callable[[Any, Any], ab.Flow]) -> pl.DataFrame:
    source = ab.memory(*frames_of(batches), schema=SCHEMA, max_frames=1)
    sink = ab.to_memory()
    settings = make_settings(checkpoint=str(folder / "state"), slots=SLOTS, trigger="available-now")
    run = LocalRun(make(source, sink), settings)
    run.run_to_end()
    run.close()
    return sink.frame()


def test_slots_of_a_lost_host_go_on_from_replicas_and_the_store_is_not_read(
    open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage()
    settled = stage.settle(2)
    assert (settled.wanted, settled.placed, settled.problem) == (2 * SLOTS, 2 * SLOTS, "")
    assert stage.reads() == {"hot"}
    before = stage.homes
    stage.step()
    # Spark is told where slots can go on in the middle of a batch, too: never where they are at home.
    assert stage.jobs.fallbacks.keys() == before.keys()
    assert all(hosts and before[slot] not in hosts for slot, hosts in stage.jobs.fallbacks.items())
    stage.settle()
    lost = {slot for slot, host in before.items() if host == "b"}
    assert lost
    stage.lose("b")
    stage.step()
    assert stage.reads() == {"hot", "replica"}
    after = stage.homes
    assert all(after[slot] != "b" for slot in lost)
    assert all(after[slot] == host for slot, host in before.items() if host != "b")
    (told,) = stage.told()
    assert f"executor 1 on b is gone: of {len(lost)} slots {len(lost)} went on from replicas on" in told
    assert "from replica; results of batch" in told and "from store" not in told
    recovered = ab.history(stage.checkpoint, kind="recovery").row(0, named=True)
    assert recovered["batch"] == 4 and 0 < recovered["seconds"] < PATIENCE_SECONDS
    assert recovered["silent_seconds"] >= recovered["seconds"] and recovered["batches"] >= 0
    each = {(one["level"], one["slot"]): one for one in recovered["slots"]}
    assert each.keys() == lost and {one["lost_host"] for one in each.values()} == {"b"}
    assert {slot: one["host"] for slot, one in each.items()} == {slot: stage.homes[slot] for slot in lost}
    assert sum(one["replica_runs"] for one in each.values()) > 0
    assert not any(one["store_runs"] or one["hot_runs"] for one in each.values())
    batches = ab.history(stage.checkpoint, kind="batch")
    assert [each["source"] for each in batches["run_reads"][-1]] == ["hot", "replica"]
    tasks = batches.select("batch", "tasks").explode("tasks").unnest("tasks").filter(batch=4)
    told = {
        (level, slot): {read["source"] for read in reads}
        for level, slot, reads in tasks["level", "slot", "run_reads"].rows()
    }
    assert all(sources == {"replica" if slot in lost else "hot"} for slot, sources in told.items() if sources)
    assert batches["replicas"].struct.field("wanted").to_list() == [2 * SLOTS] * 5
    # It is read from memory as long as it is not merged with anything, and by then it is the host's own.
    stage.step()
    assert "store" not in stage.reads()
    assert stage.finish() == undisturbed


def test_of_a_replica_that_lacks_the_last_run_only_that_is_read_from_the_store(
    open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage(hosts="abcd")
    stage.settle(2)
    stage.jobs.is_cut = True
    stage.step()
    wait_until(lambda: stage.shown.problem == "the wire is cut", lambda: stage.shown)
    lost = {slot for slot, host in stage.homes.items() if host == "b" and stage.runs_of(slot)}
    uncopied = {slot: sum(run.bytes for run in stage.runs_of(slot) if run.batch == 2) for slot in lost}
    whole = {slot: sum(run.bytes for run in stage.runs_of(slot)) for slot in lost}
    assert lost and all(0 < uncopied[slot] < whole[slot] for slot in lost)
    stage.lose("b")
    stage.step()
    read = stage.store_bytes()
    assert all(0 < read[slot] <= uncopied[slot] for slot in lost)
    assert "that may lack something; they read" in stage.told()[0] and "had none" not in stage.told()[0]
    stage.jobs.is_cut = False
    stage.settle()
    assert stage.finish() == undisturbed


def test_a_slot_that_spark_ran_elsewhere_in_the_middle_of_a_batch_goes_on_there(
    open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage(hosts="abcd", degree=3)
    stage.settle(2)
    stage.step()
    stage.settle()
    lost = {slot for slot, host in stage.homes.items() if host == "b"}
    assert lost
    # The last of the hosts that Spark was told: nothing but where it ran speaks for it.
    stage.jobs.fallbacks_taken = -1
    stage.jobs.lost, stage.jobs.is_cut = {"b"}, True
    stage.step()
    ran = {slot: stage.jobs.fallbacks[slot][-1] for slot in lost}
    wait_until(lambda: stage.shown.problem == "the wire is cut", lambda: stage.shown)
    stage.lose("b")
    stage.step()
    assert {slot: stage.homes[slot] for slot in lost} == ran
    assert not any(stage.store_bytes().values()) and f"{len(lost)} went on from replicas on" in stage.told()[0]
    stage.jobs.is_cut = False
    assert stage.settle().problem == ""
    assert stage.finish() == undisturbed


def test_a_slot_whose_executor_is_lost_goes_on_in_the_memory_of_its_host(
    open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage(hosts="abc", executors=6)
    stage.jobs.is_cut = True
    for _ in range(3):
        stage.step()
    lost = {slot for slot, home in stage.kept_homes.items() if home.executor == "1"}
    assert lost and {stage.homes[slot] for slot in lost} == {"b"}
    stage.executors.lose("1")
    stage.step()
    assert stage.reads() == {"hot"} and {stage.homes[slot] for slot in lost} == {"b"}
    assert stage.finish() == undisturbed


def flip_byte(content: bytes, _other: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def cut_short(content: bytes, _other: bytes) -> bytes:
    return content[:-1]


def put_another(_content: bytes, other: bytes) -> bytes:
    return other


def take_away(_content: bytes, _other: bytes) -> None:
    return None


@pytest.mark.parametrize("damage", [flip_byte, cut_short, put_another, take_away])
def test_a_replica_that_is_not_what_the_manifest_says_is_never_used(
    open_stage: Opens, undisturbed: list[dict[str, Any]], damage: Callable[[bytes, bytes], bytes | None]
) -> None:
    stage = open_stage()
    stage.settle(4)
    stage.lose("b")
    for host in "ac":
        paths = sorted(stage.jobs.replicas(host).folder.iterdir())
        contents = [path.read_bytes() for path in paths]
        for number, path in enumerate(paths):
            damaged = damage(contents[number], contents[number - 1])
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
    stage.step()
    assert "replica" not in stage.reads() and "store" in stage.reads()
    assert "from store" in stage.told()[0]
    assert stage.finish() == undisturbed


def test_every_run_is_copied_once_to_each_host_that_is_to_have_it(open_stage: Opens) -> None:
    stage = open_stage(degree=3)
    for _ in range(5):
        stage.settle()
    sent = [(one.target, one.run.file) for order in stage.jobs.orders for one in order.round.stretches]
    assert len(sent) == len(set(sent)) > 5 * 2 * SLOTS
    sizes = [order.round.copied_bytes for order in stage.jobs.orders if order.round.stretches]
    latest = stage.run.run.checkpoint.latest()
    assert latest is not None and sizes[-1] < 2 * latest.state_bytes, "not all of the state is sent again"
    stage.close()


def test_hosts_hold_what_the_manifest_names_and_nothing_else(open_stage: Opens) -> None:
    stage = open_stage(degree=3)
    stage.settle(5)
    latest = stage.run.run.checkpoint.latest()
    assert latest is not None
    named = {name_copy(ref.file) for level in latest.levels for ref in level.refs()}

    def held() -> set[str]:
        return {name for host in "abc" for name in stage.jobs.replicas(host).list_held()}

    wait_until(lambda: held() == named, lambda: held() ^ named)
    stage.close()


def test_runs_whose_windows_are_over_are_neither_sent_nor_read(
    open_stage: Opens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = make_batches(10)
    stage = open_stage(hosts="abcd", make=make_windowed_flow, batches=batches)
    stage.jobs.is_cut = True
    written: dict[str, RunRef] = {}
    for _ in range(6):
        stage.step()
        written |= {run.file: run for slot in range(SLOTS) for run in stage.runs_of((1, slot))}
    live = {run.file for slot in range(SLOTS) for run in stage.runs_of((1, slot))}
    over = written.keys() - live
    assert over and live
    stage.jobs.is_cut = False
    stage.settle()
    sent = {one.run.file for order in stage.jobs.orders for one in order.round.stretches}
    assert sent and not sent & over
    still = {run.file for slot in range(SLOTS) for run in stage.runs_of((1, slot))}
    fetched: list[str] = []
    fetch = RunFiles.fetch

    def note(files: RunFiles, run: RunRef) -> Any:
        # The thread that copies reads what the batch has just written.
        if threading.current_thread() is threading.main_thread():
            fetched.append(run.file)
        return fetch(files, run)

    monkeypatch.setattr(RunFiles, "fetch", note)
    stage.lose("b")
    stage.step()
    assert fetched and set(fetched) <= still and "store" not in stage.reads()
    while stage.run.step() is not None:
        pass
    stage.close()
    expected = run_undisturbed(tmp_path / "undisturbed", batches, make_windowed_flow)
    assert expected.height > 0 and stage.sink.frame().sort(pl.all()).equals(expected.sort(pl.all()))


def test_replicas_that_were_lost_are_placed_again(open_stage: Opens, undisturbed: list[dict[str, Any]]) -> None:
    stage = open_stage(hosts="abcd", degree=3)
    stage.settle(3)
    stage.lose("c")
    stage.step()
    settled = stage.settle()
    assert settled.current == settled.wanted == 2 * 2 * SLOTS
    assert "c" not in stage.homes.values()
    # The next host that goes finds them there.
    stage.lose("a")
    stage.step()
    assert "store" not in stage.reads()
    placed = ab.history(stage.checkpoint, kind="decision").filter(pl.col("action") == "replicate")["reason"]
    assert len(placed) >= 2 and all("(mrp)" in reason for reason in placed)
    assert stage.finish() == undisturbed


def test_commits_do_not_wait_for_replicas_and_their_lag_is_shown(
    open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage()
    settled = stage.settle(2)
    assert settled.lag_batches == 0
    stage.jobs.is_cut = True
    for lag in (1, 2, 3):
        stage.step()
        wait_until(lambda: stage.shown.problem == "the wire is cut", lambda: stage.shown)
        assert stage.shown.lag_batches == lag and stage.shown.lag_bytes > 0
    progress = stage.run.run.progress.latest
    assert progress is not None and progress.replicas is not None and progress.replicas.lag_batches == 3
    stage.lose("b")
    stage.step()
    assert "store" in stage.reads(), "replicas are there, and too old"
    stage.jobs.is_cut = False
    assert stage.settle().problem == ""
    assert stage.finish() == undisturbed


def test_replicas_keep_to_the_memory_that_is_said(open_stage: Opens, undisturbed: list[dict[str, Any]]) -> None:
    limit_mb = 0.008
    stage = open_stage(memory_mb=limit_mb)
    for _ in range(4):
        stage.step()
    # It is found while placing, or only by the host that is to take more: state grew meanwhile.
    wait_until(
        lambda: any(why in stage.shown.problem for why in ("lack memory", "there is no room")), lambda: stage.shown
    )
    for host in "abc":
        assert sum(stage.jobs.replicas(host).list_held().values()) <= limit_mb * 2**20
    assert stage.finish() == undisturbed


def test_a_checkpoint_that_all_hosts_mount_has_replicas_too(
    open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage(is_mounted=True)
    stage.settle(3)
    # Files of a mounted store are mapped as they lie: there are no other copies.
    assert stage.reads() == {"store"}
    number = stage.executors.hosts.index("b")
    stage.executors.lose(str(number))
    stage.step()
    assert "replica" in stage.reads()
    assert "from replica; results of batch" in stage.told()[0]
    assert stage.finish() == undisturbed


def test_a_directory_that_hosts_share_has_hot_copies_and_replicas(
    open_stage: Opens, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "lies_on_network", lambda folder: True)
    stage = open_stage(is_mounted=True)
    stage.settle(3)
    # What slots of a host wrote, they read from its memory; nobody asks the directory.
    assert stage.reads() == {"hot"}
    stage.lose("b")
    stage.step()
    assert stage.reads() == {"hot", "replica"}
    assert stage.finish() == undisturbed


@pytest.mark.parametrize(("hot_copies", "reads"), [(True, {"hot"}), (False, {"store"})])
def test_whether_there_are_hot_copies_can_be_said(
    hot_copies: bool, reads: set[str], open_stage: Opens, undisturbed: list[dict[str, Any]]
) -> None:
    stage = open_stage(is_mounted=hot_copies, hot_copies=hot_copies)
    stage.settle(3)
    assert stage.reads() == reads
    assert stage.finish() == undisturbed


def test_where_there_is_one_process_the_flow_goes_on_and_says_why_there_are_no_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's local mode has jobs that could copy, and nowhere to copy to.
    monkeypatch.setattr(local_run, "LocalJobs", HostedJobs)
    sink = ab.to_memory()
    source = ab.memory(*frames_of(make_batches(2)), schema=SCHEMA, max_frames=1)
    settings = make_settings(checkpoint=str(tmp_path / "state"), replicas=ab.Replicas(degree=2))
    run = LocalRun(make_flow(source, sink), settings)
    progress = run.step()
    run.close()
    assert progress is not None and progress.replicas is not None
    assert "driver and executor are one process" in progress.replicas.problem
    opened = run.run.program.replica_copies(1)
    assert opened is not None
    shutil.rmtree(opened.folder.parent)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"replicas": {"degree": 0}}, "degree is 0; it counts the slot's own state as well"),
        ({"replicas": {"degree": 2.5}}, "degree is 2.5; give a whole number"),
        ({"replicas": {"placement": "mpr"}}, "did you mean 'mrp'"),
        ({"replicas": {"memory": 5}}, "there is no setting 'memory'"),
        ({"replicas": {"memory_mb": 0}}, "memory_mb is 0"),
        ({"replicas": ab.Replicas(), "anchors": False}, "leave one of them out"),
    ],
)
def test_replicas_that_cannot_be_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(FlowError, match=why):
        make_settings(checkpoint="state", **given)
