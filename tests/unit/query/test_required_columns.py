"""Which columns of its sources a flow cannot do without."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from anabranch.operators.aggregates.functions import count
from anabranch.query import FlowGraph, Stream
from anabranch.query.required_columns import required_columns
from unit.query.fakes import FakeSink, FakeSource, read_readings


def find(build: Callable[[Stream], Stream]) -> dict[int, tuple[str, ...]]:
    flow = FlowGraph("readings")
    build(read_readings(flow)).agg(rows=count()).write(FakeSink())
    return required_columns(flow.nodes)


def test_keys_and_event_times_are_required_and_nothing_else() -> None:
    assert find(lambda rows: rows.filter("volts > 0").watermark("ts", "2s").key_by("sensor", "region")) == {
        0: ("region", "sensor", "ts")
    }


@pytest.mark.parametrize(
    "rename",
    [
        lambda rows: rows.select(pl.col("sensor").alias("id"), "volts"),
        lambda rows: rows.select("sensor AS id"),
        lambda rows: rows.with_columns(id="sensor"),
        lambda rows: rows.with_columns(id=pl.col("sensor")),
    ],
)
def test_renamed_key_is_required_under_its_own_name(rename: Callable[[Stream], Stream]) -> None:
    assert find(lambda rows: rename(rows).key_by("id")) == {0: ("sensor",)}


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows.with_columns(sensor=pl.col("sensor").fill_null(0)),
        lambda rows: rows.with_columns("coalesce(sensor, 0) AS sensor"),
        lambda rows: rows.select(pl.col("sensor") % 10),
        lambda rows: rows.map_batches(lambda frame: frame),
    ],
)
def test_key_that_is_made_from_a_column_may_lack_it(make: Callable[[Stream], Stream]) -> None:
    assert find(lambda rows: make(rows).key_by("sensor")) == {}


def test_sources_of_a_union_are_told_apart() -> None:
    flow = FlowGraph("readings")
    first = flow.read(FakeSource(schema={"a": pl.Int64(), "b": pl.Int64()})).select(k="a")
    second = flow.read(FakeSource(schema={"k": pl.Int64(), "b": pl.Int64()})).select("k")
    first.union(second).key_by("k").agg(rows=count()).write(FakeSink())
    assert required_columns(flow.nodes) == {0: ("a",), 1: ("k",)}


def test_columns_behind_an_aggregate_are_none_of_the_source() -> None:
    flow = FlowGraph("readings")
    totals = read_readings(flow).key_by("sensor").agg(rows=count(), name="first")
    totals.key_by("rows").agg(sensors=count()).write(FakeSink())
    assert required_columns(flow.nodes) == {0: ("sensor",)}
