"""The Spark session that tests share, as fixtures for the folders that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from quick_jvm import QUICK_JVM
from spark.running import FlowBench

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of the run: two cores, little memory."""
    with pytest.MonkeyPatch.context() as environment:
        # Spark's workers import what flows of benches use.
        environment.setenv("PYTHONPATH", str(PROJECT), prepend=os.pathsep)
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


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> FlowBench:
    """Runs flows in this test's own folder."""
    return FlowBench(spark, tmp_path)
