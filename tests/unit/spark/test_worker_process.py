"""A Python worker finds out whose it is, what it takes, and how far other hosts are; none of it fails a task."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.engine.tasks import process_figures
from anabranch.engine.tasks.process_figures import choose_interfaces, read_link_bytes_per_second, sample_executor
from anabranch.model.measures import TaskMeasure
from anabranch.spark import worker_process
from anabranch.spark.worker_process import MOST_PEERS, NOBODY, LatencyProbe, Peers, Worker, WorkerOwner, find_owner


def add_process(proc: Path, number: int, parent: int, *arguments: str) -> None:
    """Write what a kernel tells of a process."""
    folder = proc / str(number)
    folder.mkdir()
    (folder / "stat").write_text(f"{number} (a (strange) name) S {parent} 0 0")
    (folder / "cmdline").write_bytes("\0".join(arguments).encode() + b"\0")


def test_a_worker_belongs_to_the_executor_that_started_its_daemon(tmp_path: Path) -> None:
    backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    add_process(tmp_path, 1, 0, "init")
    add_process(tmp_path, 10, 1, "/jdk/bin/java", "-cp", "x", backend, "--executor-id", "7", "--hostname", "10.0.0.3")
    add_process(tmp_path, 20, 10, "python", "-m", "pyspark.daemon")
    add_process(tmp_path, 30, 20, "python", "-m", "pyspark.daemon")
    assert find_owner(30, tmp_path) == WorkerOwner("7", "10.0.0.3", 10)


def test_what_a_wire_carries_is_what_its_interface_says_or_nobody_knows(tmp_path: Path) -> None:
    assert read_link_bytes_per_second(tmp_path) == math.inf
    for name, speed in (("lo", "9999"), ("virtual0", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    assert read_link_bytes_per_second(tmp_path) == math.inf
    (tmp_path / "wire0").mkdir()
    (tmp_path / "wire0" / "speed").write_text("1000\n")
    assert read_link_bytes_per_second(tmp_path) == 2 * 125e6
    assert read_link_bytes_per_second(tmp_path / "nothing") == math.inf


def test_a_worker_of_local_mode_belongs_to_the_driver(tmp_path: Path) -> None:
    add_process(tmp_path, 1, 0, "init")
    add_process(tmp_path, 9, 1, "python", "flow.py")
    add_process(tmp_path, 10, 9, "/jdk/bin/java", "org.apache.spark.deploy.SparkSubmit")
    add_process(tmp_path, 20, 10, "python", "-m", "pyspark.daemon")
    assert find_owner(20, tmp_path) == WorkerOwner("driver", "", 10)


def test_without_proc_a_worker_is_the_driver_s(tmp_path: Path) -> None:
    assert find_owner(20, tmp_path) == WorkerOwner("driver", "", 0)


def measure(worker: Worker, peers: Peers = NOBODY, work_seconds: float = 0.0) -> TaskMeasure:
    found: list[TaskMeasure] = []
    with worker.measured(peers, found) as meter:
        meter.name(1, 2)
        until = time.process_time() + work_seconds
        while time.process_time() < until:
            pass
    return found[0]


def test_a_task_is_measured_apart_from_what_its_process_did_before() -> None:
    worker = Worker()
    measure(worker)
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    task = measure(worker, work_seconds=0.02)
    assert (task.level, task.slot, task.executor) == (1, 2, "driver")
    assert 0.02 <= task.cpu_seconds < 0.05 <= task.starting_seconds
    assert task.memory_bytes > 1_000_000
    assert 0 < task.measuring_seconds < 0.02


def test_samples_are_taken_no_more_often_than_is_worth_their_time() -> None:
    worker = Worker()
    assert measure(worker).sample is not None
    assert measure(worker).sample is None
    assert measure(worker, work_seconds=0.2).sample is not None


def test_a_task_that_fails_is_not_measured_and_the_next_one_is() -> None:
    worker, found = Worker(), list[TaskMeasure]()
    with pytest.raises(ValueError, match="broken"), worker.measured(NOBODY, found):
        raise ValueError("broken")
    assert found == []
    assert measure(worker).slot == 2


def test_what_cannot_be_measured_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(process: int) -> None:
        raise RuntimeError(process)

    monkeypatch.setattr(worker_process, "sample_executor", fail)
    found: list[TaskMeasure] = []
    with Worker().measured(NOBODY, found) as meter:
        meter.name(1, 0)
    assert found == []


def test_counters_of_this_process_are_read_and_those_of_none_are_zero() -> None:
    own = sample_executor(os.getpid())
    assert own.process_memory_bytes > 1_000_000
    assert sample_executor(2**22 + 1).process_memory_bytes == 0


def test_the_loopback_counts_only_what_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_figures.os.path, "exists", lambda path: path == "/sys/class/net/card0/device")
    assert choose_interfaces(frozenset({"lo", "card0", "docker0", "veth1"})) == ("card0",)
    assert choose_interfaces(frozenset({"lo", "eth0"})) == ("eth0",)
    choose_interfaces.cache_clear()


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def wait_for(probe: LatencyProbe) -> dict[str, float]:
    deadline = time.monotonic() + 10
    while not (found := probe.take()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_other_hosts_are_reached_once_for_each_time_that_it_is_asked() -> None:
    probe = LatencyProbe()
    with listening() as port:
        probe.begin(Peers(1, {"127.0.0.1": port, "10.9.9.9": port}), host="10.9.9.9")
        found = wait_for(probe)
        assert list(found) == ["127.0.0.1"]
        assert 0 < found["127.0.0.1"] < 1
        probe.begin(Peers(1, {"127.0.0.1": port}), host="10.9.9.9")
        time.sleep(0.05)
        assert probe.take() == {}
        probe.begin(Peers(2, {"127.0.0.1": port}), host="10.9.9.9")
        assert list(wait_for(probe)) == ["127.0.0.1"]


def test_a_host_that_cannot_be_reached_is_left_out() -> None:
    probe = LatencyProbe()
    with listening() as port:
        pass
    with listening() as other:
        probe.begin(Peers(1, {"127.0.0.1": port, "localhost": other}), host="a")
        assert set(wait_for(probe)) == {"localhost"}


def test_in_some_turns_every_host_is_reached_from_every_other() -> None:
    hosts = {f"10.0.0.{number}": 1 for number in range(30)}
    tried = {host for turn in range(1, 6) for host in Peers(turn, hosts).choose("10.0.0.4")}
    assert tried == hosts.keys() - {"10.0.0.4"}
    assert len(Peers(1, hosts).choose("10.0.0.4")) == MOST_PEERS
