"""Flows that cannot run are refused before the first batch, with a word about the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import EngineError, FlowError
from flows.running import frames_of, reading
from spark.fixtures import SparkBench


@pytest.mark.parametrize("trigger", ["available-now", "once"])
def test_an_endless_generator_is_refused_where_a_run_must_end(bench: SparkBench, trigger: str) -> None:
    flow = ab.Flow("test")
    flow.read(ab.generate(100)).write(ab.to_memory())
    checkpoint = bench.new_checkpoint()
    with pytest.raises(FlowError, match=r"set generate\(total_rows=…\)"):
        bench.run_flow(flow, [], checkpoint=checkpoint, trigger=trigger)
    with pytest.raises(FlowError, match=r"set generate\(total_rows=…\)"):
        flow.backfill(checkpoint, spark=bench.spark)
    assert not Path(checkpoint).exists()


def test_a_spark_connect_session_is_refused_with_the_reason(bench: SparkBench) -> None:
    def make(name: str) -> Any:
        return type("SparkSession", (), {"__module__": name})()

    flow = ab.Flow("test")
    flow.read(ab.memory(*frames_of([[reading(1, 0)]]))).write(ab.to_memory())
    checkpoint = bench.new_checkpoint()
    # Databricks' sessions are Connect sessions of another module.
    for session in (make("pyspark.sql.connect.session"), make("databricks.connect.session")):
        with pytest.raises(EngineError, match=r"its driver is another process.*without \.remote\(\)"):
            flow.start(checkpoint, spark=session)
    assert not Path(checkpoint).exists()


def test_a_real_spark_connect_session_is_refused(bench: SparkBench) -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    flow = ab.Flow("test")
    flow.read(ab.memory(*frames_of([[reading(1, 0)]]))).write(ab.to_memory())
    # Made without a server: what refuses it must not need one either.
    with pytest.raises(EngineError, match="Spark Connect session"):
        flow.start(bench.new_checkpoint(), spark=object.__new__(ConnectSession))
