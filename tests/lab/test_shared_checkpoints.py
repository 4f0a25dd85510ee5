"""Checkpoints that hosts share: a directory, and a store that speaks S3. Drivers and executors are killed with −9."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from anabranch.lab.standalone import list_loopback_hosts, standalone_cluster
from anabranch.state import Checkpoint, open_store
from benchmarks.servers.jars import S3_FILES, ServerMissing
from lab.disturbing import kill_at
from lab.drivers import assert_same_results, driver, results
from lab.executors import IMPATIENT, Traps, cluster_arguments, executor_of
from servers.programs import skip_or_fail
from servers.s3 import S3Server

FAULTS = (
    # (moment, batch of the kill, last batch that is committed then)
    ("in-slot-after-state", 1, 0),
    ("before-manifest", 1, 0),
    ("between-sinks", 2, 2),
)
ONE_TRY = "spark.task.maxFailures=1"
"""A task that is killed wherever it runs need not be tried four times, in each of three jobs."""


def disturb(folder: Path, place: str, environment: Mapping[str, str], config: Mapping[str, str]) -> None:
    """Run the flow on two hosts, over kills of the driver at named moments and of an executor in its work."""
    environment = {**environment, "UNDER_TEST_CHECKPOINT": place}
    with standalone_cluster(folder, list_loopback_hosts(2)) as master:
        settings = [*IMPATIENT, "spark.executor.memory=768m", *(f"{name}={value}" for name, value in config.items())]
        arguments = cluster_arguments(master, *settings)
        for moment, batch, last in FAULTS:
            kill_at(folder, moment, batch, environment, [*arguments, "--conf", ONE_TRY])
            assert Checkpoint(open_store(place)).batches()[-1] == last, moment
        traps = Traps(folder, "first-wait")
        environment["UNDER_TEST_TRAPS"] = str(traps.folder)
        with driver(folder, *arguments, environment=environment) as process:
            executor_of(traps.wait_until_sprung(1, process)).send_signal(signal.SIGKILL)
            traps.let_go(1)
            assert process.wait() == 0, process.lines[-3:]
        assert traps.left() == []


def test_kills_on_two_hosts_that_share_a_directory_leave_the_undisturbed_output(
    folder: Path, undisturbed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    disturb(folder, str(tmp_path_factory.mktemp("shared") / "checkpoint"), {}, {})
    assert_same_results(results(folder), undisturbed)


def test_kills_on_two_hosts_with_a_checkpoint_on_s3_leave_the_undisturbed_output(
    folder: Path, undisturbed: dict[str, Any], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        jars = sorted(map(str, S3_FILES.find().glob("*.jar")))
    except ServerMissing as missing:
        skip_or_fail(missing)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    in_tasks = {f"spark.executorEnv.{name}": value for name, value in s3.environment.items()}
    config = {**s3.spark_settings, **in_tasks, "spark.jars": ",".join(jars)}
    disturb(folder, f"{s3.make_bucket()}/flows/under-test", s3.environment, config)
    assert not (folder / "checkpoint").exists()
    assert_same_results(results(folder), undisturbed)
