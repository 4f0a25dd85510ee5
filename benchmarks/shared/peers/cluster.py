"""What scripts that run flows on a cluster share."""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

from anabranch.spark.executors import list_executors
from benchmarks.shared.registry import BenchError

_PATIENCE_SECONDS = 180.0


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """Return when so many executors have come; raise ``BenchError`` if they do not."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while len(list_executors(spark)) < count:
        if time.monotonic() > deadline:
            found = list_executors(spark)
            msg = f"{len(found)} of {count} executors came within {_PATIENCE_SECONDS:.0f} s; see the workers' logs"
            raise BenchError(msg)
        time.sleep(0.2)
