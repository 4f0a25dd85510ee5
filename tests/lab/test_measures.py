"""What tasks take on two executors, on two addresses of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.lab.standalone import list_loopback_hosts, standalone_cluster
from lab.drivers import DRIVER_ENVIRONMENT
from lab.measured_flow import BATCHES, ROWS

SCRIPT = Path(__file__).with_name("measured_flow.py")
ADDRESSES = [host.address for host in list_loopback_hosts(2)]


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """What the history tells of a run's batches."""
    folder = tmp_path_factory.mktemp("measured")
    with standalone_cluster(folder, list_loopback_hosts(2)) as master:
        command = [sys.executable, str(SCRIPT), master, str(folder / "state")]
        environment = {**os.environ, **DRIVER_ENVIRONMENT}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return ab.history(folder / "state", kind="batch")


def test_every_task_names_its_executor_and_the_executor_s_host(batches: pl.DataFrame) -> None:
    tasks = batches.select("batch", "tasks").explode("tasks").unnest("tasks")
    assert tasks.group_by("batch").len()["len"].to_list() == [9] * BATCHES, "a reader and twice four slots"
    assert set(tasks["executor"]) == {"0", "1"}
    assert set(tasks["host"]) == set(ADDRESSES)
    assert tasks.select(pl.col("host").n_unique().over("executor").max()).item() == 1


def test_processor_time_and_memory_are_those_of_processes_that_work(batches: pl.DataFrame) -> None:
    executors = batches.select("batch", "batch_seconds", "executors").explode("executors").unnest("executors")
    assert executors.filter(pl.col("cpu_seconds") <= 0).is_empty()
    # The first batch has nothing to compare an executor's own counters with.
    later = executors.filter(pl.col("batch") > 0)
    assert later.group_by("executor").agg(pl.col("process_cpu_seconds").sum()).filter(process_cpu_seconds=0).is_empty()
    assert later.filter(pl.col("utilisation") > 1.5).is_empty()
    assert executors["memory_bytes"].min() > 50_000_000  # type: ignore[operator]
    assert batches["utilisation"].is_between(0, 1.2).all()


def test_bytes_go_between_the_hosts_that_the_slots_are_on(batches: pl.DataFrame) -> None:
    tasks = batches.select("batch", "tasks").explode("tasks").unnest("tasks")
    assert tasks.filter(level=0)["rows"].to_list() == [ROWS] * BATCHES
    sums = tasks.group_by("batch").agg(pl.col("received_bytes", "all_sent_bytes").sum())
    assert sums["received_bytes"].to_list() == sums["all_sent_bytes"].to_list()
    pairs = batches.select("batch", "host_bytes").explode("host_bytes").unnest("host_bytes")
    assert set(pairs.select("sender", "receiver").iter_rows()) == {
        (sender, receiver) for sender in ADDRESSES for receiver in ADDRESSES
    }
    assert (
        pairs.group_by("batch").agg(pl.col("bytes").sum()).sort("batch")["bytes"].to_list()
        == sums.sort("batch")["all_sent_bytes"].to_list()
    )


def test_the_hosts_found_out_how_far_they_are_from_each_other(batches: pl.DataFrame) -> None:
    tried = batches.select("latency_seconds").explode("latency_seconds").unnest("latency_seconds").drop_nulls()
    assert set(tried["sender"]) | set(tried["receiver"]) == set(ADDRESSES)
    assert tried["seconds"].is_between(0, 1).all()
