"""The Spark session that tests share, as fixtures for the folders that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engine.settings import RunSettings
from anabranch.model import BatchProgress
from anabranch.spark.driver import Driver
from flows.running import FlowBench, Steer
from quick_jvm import QUICK_JVM

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of the run: two cores, little memory."""
    with pytest.MonkeyPatch.context() as environment:
        # Spark's workers import what flows of benches and of tests use.
        for folder in (PROJECT, PROJECT / "tests"):
            environment.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        session = ab.local_session(
            "local[2]",
            "1g",
            {
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.extraJavaOptions": QUICK_JVM,
                # Test flows are many and short: by default Spark keeps the plan of every one of their batches.
                "spark.sql.ui.retainedExecutions": "2",
                "spark.sql.streaming.numRecentProgressUpdates": "2",
            },
        )
    yield session
    session.stop()


@dataclass
class SparkBench(FlowBench):
    """Runs flows on a session."""

    spark: SparkSession = field(kw_only=True)

    def _run(self, flow: ab.Flow, settings: RunSettings, steer: Steer | None) -> list[BatchProgress]:
        driver = Driver(flow, settings, lambda: self.spark, make_steering=steer, clock=self.clock)
        driver.start()
        driver.wait()
        return driver.run.progress.read()


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> SparkBench:
    """Runs flows in this test's own folder."""
    return SparkBench(tmp_path, spark=spark)
