"""What is no source, sink or aggregate is refused as it is written, with what to give instead."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model.balance import Balance
from anabranch.operators.aggregates.functions import count
from anabranch.query import FlowGraph
from unit.query.fakes import FakeSink, FakeSource, read_readings, timed_readings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("readings/", r"read takes a source, found the text 'readings/'; give ab.files\('readings/', …\)"),
        (pl.DataFrame(), r"found a polars DataFrame; give ab.memory\(frame\)"),
        (pd.DataFrame(), r"found a pandas DataFrame; give ab.memory\(frame\)"),
        (7, r"found a int; give ab.files\("),
        (FakeSource, "found the class FakeSource"),
    ],
)
def test_what_is_no_source_is_not_read(given: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        FlowGraph("wrong").read(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("alerts/", r"write takes a sink, found the text 'alerts/'; give ab.parquet\('alerts/'\)"),
        (print, "found the function print; give ab.foreach"),
        (FakeSink, "found the class FakeSink"),
        (None, "found a NoneType; give ab.parquet"),
    ],
)
def test_what_is_no_sink_is_not_written_to(given: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        read_readings().write(given)
    with pytest.raises(FlowError, match=words):
        FlowGraph("wrong").dead_letter(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("count", r"agg: rows is the text 'count', which is no aggregate; write ab.count\(…\)"),
        (count, r"agg: rows is the function count, which is no aggregate; write ab.count\(…\)"),
        ("avg", "which is no aggregate; there are approx_distinct, count, .* as in ab.sum"),
        (pl.col("volts").sum(), "agg: rows is a polars Expr, which is no aggregate; there are approx_distinct"),
    ],
)
def test_what_is_no_aggregate_is_refused_with_those_there_are(given: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        timed_readings().window("10s").agg(rows=given)


def test_an_aggregate_without_a_name_is_refused() -> None:
    with pytest.raises(FlowError, match=r"has no name for its column; write agg\(rows=ab.count\(\)\)"):
        timed_readings().agg(count())


@pytest.mark.parametrize("given", [["sensor"], pl.col("sensor")])
def test_keys_are_named_by_texts(given: Any) -> None:
    with pytest.raises(FlowError, match=r'key_by takes names of columns, as in key_by\("country", "device"\), found a'):
        read_readings().key_by(given)


def test_distinct_speaks_of_itself() -> None:
    with pytest.raises(FlowError, match="distinct: no column 'sensr'; did you mean 'sensor'"):
        read_readings().distinct("sensr")


def test_a_balance_is_one_or_none() -> None:
    off: Any = "off"
    with pytest.raises(FlowError, match=r"balance is 'off'; give ab.Balance\(…\), or None"):
        read_readings().key_by("sensor", balance=off)
    assert read_readings().key_by("sensor", balance=None).routing.balance is None
    assert read_readings().key_by("sensor", balance=Balance(0.2)).routing.balance == Balance(0.2)


def test_declared_types_may_be_classes_and_must_be_types() -> None:
    stream = read_readings().flat_map(lambda row: [row], schema={"sensor": pl.Int64})
    assert stream.schema == {"sensor": pl.Int64()} and isinstance(stream.schema["sensor"], pl.Int64)
    wrong: Any = {"sensor": "whole"}
    for declare in (
        lambda: read_readings().flat_map(lambda row: [row], schema=wrong),
        lambda: read_readings().map_batches(lambda frame: frame, schema=wrong),
    ):
        with pytest.raises(FlowError, match="a schema is columns with Polars types"):
            declare()
