"""Ahead KeyBy in plans: where *auto* comes to it, what it refuses, and how it is explained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli.loading import load
from anabranch.engine.ahead.level import check_ahead, find_partitioner, pack_by_partition
from anabranch.errors import FlowError
from anabranch.query.plan import Plan, make_plan
from anabranch.query.streams import Stream
from anabranch.state.split_log import LogEntry

SCHEMA = {"sensor": pl.Int64, "ts": pl.Datetime("us"), "volts": pl.Float64}
BY_SENSOR = ab.Partitioner("hash", partitions=4, keys="sensor")


def plan_of(
    build: Callable[[Stream], Stream], partitioner: ab.Partitioner | None = BY_SENSOR, parallelism: Any = "operator-set"
) -> Plan:
    flow = ab.Flow("test")
    source = ab.files("in", schema=SCHEMA, recursive=True, partitioned_by=partitioner)
    build(flow.read(source)).write(ab.to_memory())
    return make_plan(flow, 4, parallelism)


def kinds(plan: Plan) -> list[str]:
    return [decision.kind for decision in plan.exchanges.values()]


def counted(stream: Stream) -> Stream:
    return stream.agg(rows=ab.count())


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: counted(rows.key_by("sensor")),
        lambda rows: counted(rows.filter("volts > 0").watermark("ts").key_by("sensor").window("10s")),
        lambda rows: counted(rows.with_columns(pl.col("volts") * 2, low=pl.col("volts") < 207).key_by("sensor")),
        lambda rows: counted(rows.select("sensor", half=pl.col("volts") / 2).key_by("sensor")),
        lambda rows: rows.key_by("sensor").distinct(),
        # Rows of a site and sensor are rows of a sensor.
        lambda rows: counted(rows.key_by("ts", "sensor")),
    ],
)
def test_auto_needs_no_exchange_where_the_source_is_partitioned_by_the_keys(build: Any) -> None:
    assert kinds(plan_of(build)) == ["ahead"]


@pytest.mark.parametrize(
    "build",
    [
        lambda rows: counted(rows.key_by("ts")),
        lambda rows: counted(rows.key_by("ts", "sensor", exchange="local")),
        lambda rows: counted(rows.with_columns(sensor=pl.col("sensor") // 2).key_by("sensor")),
        lambda rows: counted(rows.with_columns(pl.col("sensor") // 2).key_by("sensor")),
        lambda rows: counted(rows.with_columns("sensor + 1 AS sensor").key_by("sensor")),
        lambda rows: counted(rows.select(pl.col("sensor") // 2).key_by("sensor")),
        lambda rows: counted(rows.map_batches(lambda frame: frame).key_by("sensor")),
        lambda rows: counted(rows.key_by("sensor", exchange="routed")),
        lambda rows: counted(rows.key_by("sensor", routing="least-count")),
    ],
)
def test_auto_keeps_the_exchange_where_keys_may_be_others(build: Any) -> None:
    assert "ahead" not in kinds(plan_of(build))


def test_auto_trusts_only_partitioners_that_can_be_computed() -> None:
    for partitioner in (None, ab.Partitioner("least-key", partitions=4, keys="sensor")):
        assert "ahead" not in kinds(plan_of(lambda rows: counted(rows.key_by("sensor")), partitioner))


def test_auto_keeps_the_exchange_where_operators_would_share_slots_with_others() -> None:
    def build(rows: Stream) -> Stream:
        counted(rows.key_by("ts")).write(ab.to_memory())
        return counted(rows.key_by("sensor"))

    assert "ahead" not in kinds(plan_of(build))


def test_operators_behind_it_have_an_exchange() -> None:
    def build(rows: Stream) -> Stream:
        return counted(rows.key_by("sensor").agg(lowest=ab.min("volts")).key_by("sensor"))

    assert kinds(plan_of(build)) == ["ahead", "local"]


def test_explain_says_that_partitions_are_slots_and_why() -> None:
    flow = ab.Flow("test")
    rows = flow.read(ab.files("in", schema=SCHEMA, recursive=True, partitioned_by=BY_SENSOR))
    counted(rows.key_by("sensor")).write(ab.to_memory())
    text = flow.explain()
    assert "no exchange: the source's partitions are the slots" in text
    assert "one slot a partition" in text
    assert "no exchange, partitions are slots (the source is partitioned by its keys: Partitioner('hash'" in text
    for format in ("mermaid", "svg"):
        assert "no exchange" in flow.explain(format).replace("\n", " ")


def test_it_is_refused_behind_another_stateful_operator() -> None:
    def build(rows: Stream) -> Stream:
        return counted(rows.key_by("ts").agg(sensor=ab.max("sensor")).key_by("sensor", exchange="ahead"))

    with pytest.raises(FlowError, match="first operator behind a source"):
        check_ahead(plan_of(build), [], None)


def test_sources_that_were_partitioned_differently_are_refused() -> None:
    sources = [
        ab.files("in", schema=SCHEMA, recursive=True, partitioned_by=BY_SENSOR),
        ab.files("in", schema=SCHEMA, recursive=True),
        ab.files("in", schema=SCHEMA, recursive=True, partitioned_by=ab.Partitioner("modulo", partitions=4)),
    ]
    assert find_partitioner(sources[:2]) is BY_SENSOR
    with pytest.raises(FlowError, match="modulo"):
        find_partitioner(sources)


def test_splits_go_to_the_task_of_their_partitions_number() -> None:
    names = ["readings/2", "readings/0", "other/2", "p=0"]
    entry = LogEntry(0, tuple((0, {"partition": name}) for name in names))
    packed = pack_by_partition([entry], {0: "kafka"})
    assert [[ordinal for ordinal, _, _ in pack] for pack in packed] == [[1, 3], [], [0, 2]]


def test_no_splits_make_no_packs() -> None:
    assert pack_by_partition([], {0: "kafka"}) == []


def test_flows_with_partitioners_can_be_pickled(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    source = ab.files(tmp_path, schema=SCHEMA, recursive=True, partitioned_by=BY_SENSOR)
    copied = cloudpickle.loads(cloudpickle.dumps(source))
    assert repr(copied.partitioned_by) == repr(BY_SENSOR)


def test_flow_files_can_name_a_partitioner(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "flow.yaml").write_text(
        """
flow: ahead
sources:
  readings:
    files:
      path: in/
      schema: {sensor: Int64, ts: Datetime(ms)}
      recursive: true
      partitioned_by: {partitioner: {strategy: hash, partitions: 8, keys: sensor}}
streams:
  counts:
    from: readings
    steps:
      - key_by: sensor
        exchange: ahead
      - agg: {rows: count}
    to: [console]
"""
    )
    graph = load(str(tmp_path / "flow.yaml")).graph
    assert kinds(make_plan(graph, 4)) == ["ahead"]
    assert repr(graph.sources[0].partitioned_by) == "Partitioner('hash', partitions=8, keys=('sensor',))"
