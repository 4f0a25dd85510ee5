"""Who writes Spark's own logs: on a local disk the manager that starts few processes, unless the user chose one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engine.settings import make_settings
from anabranch.spark.flow_query import FILE_MANAGER, LOCAL_FILE_MANAGER, FlowQuery
from flows.running import frames_of, reading
from spark.fixtures import SparkBench

SPARKS_OWN = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


def run(bench: SparkBench) -> Any:
    """Run a flow, and return the manager that its streaming query was given."""
    flow, sink = ab.Flow("logged"), ab.to_memory()
    source = ab.memory(*frames_of([[reading(1, 0)], [reading(2, 1)]]))
    flow.read(source).key_by("key").agg(rows=ab.count()).write(sink)
    handle = flow.start(bench.new_checkpoint(), spark=bench.spark, trigger="available-now", slots=2)
    handle.wait()
    assert handle.totals.rows_in == 2
    return handle.spark.conf.get(FILE_MANAGER, None)


def test_logs_on_a_local_disk_are_written_by_the_manager_that_starts_few_processes(bench: SparkBench) -> None:
    assert run(bench) == LOCAL_FILE_MANAGER
    # The session that the flow was given is left as it is.
    assert bench.spark.conf.get(FILE_MANAGER, None) is None


def test_a_manager_that_the_user_chose_stands(bench: SparkBench) -> None:
    bench.spark.conf.set(FILE_MANAGER, SPARKS_OWN)
    try:
        assert run(bench) == SPARKS_OWN
    finally:
        bench.spark.conf.unset(FILE_MANAGER)


@pytest.mark.parametrize(("place", "chosen"), [(None, None), ("/somewhere/spark", LOCAL_FILE_MANAGER)])
def test_logs_on_an_object_store_are_left_to_spark(spark: SparkSession, place: str | None, chosen: str | None) -> None:
    session = spark.newSession()
    store: Any = SimpleNamespace(local_path=lambda _: place, url="s3://bucket/state")
    query = FlowQuery(session, {}, make_settings(checkpoint="s3://bucket/state"), store, None)  # type: ignore[arg-type]
    query._write_logs_without_processes()
    assert session.conf.get(FILE_MANAGER, None) == chosen
