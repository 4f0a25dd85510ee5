"""What windows may be told, and what their results look like."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model import AggregateSpec, CountWindowSpec, TopKSpec
from anabranch.operators.aggregates.functions import count
from anabranch.query import FlowGraph, Stream
from anabranch.query.explain.plans import explain_text
from anabranch.query.nodes import Stateful
from anabranch.query.plan import make_plan
from unit.query.fakes import FakeSink, read_readings, timed_readings


def spec_of(stream: Stream) -> Any:
    operation = stream.node.operation
    assert isinstance(operation, Stateful)
    return operation.spec


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"late": "keep"}, "late='keep' is unknown; late rows can be drop, side, update"),
        ({"late": "update"}, 'late="update" and a lateness belong together'),
        ({"lateness": "1m"}, "got late='drop', lateness='1m'"),
        ({"late": "side", "lateness": "1m"}, "got late='side', lateness='1m'"),
    ],
)
def test_lateness_goes_with_updates_only(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=re.escape(message)):
        timed_readings().window("10s", **arguments)
    with pytest.raises(FlowError, match=re.escape(message)):
        timed_readings().session("10s", **arguments)


def test_early_results_need_an_interval() -> None:
    with pytest.raises(FlowError, match="early must be positive, got '0s'"):
        timed_readings().window("10s", early="0s")


@pytest.mark.parametrize("arguments", [{"early": "1s"}, {"late": "update", "lateness": "1m"}])
def test_results_that_may_come_again_say_which_emission_they_are(arguments: dict[str, Any]) -> None:
    windows = timed_readings().window("10s", **arguments)
    assert list(windows.agg(rows=count()).schema) == ["window_start", "window_end", "emission", "sensor", "rows"]
    assert "emission" in windows.top_k(2, by="volts").schema
    assert "emission" not in timed_readings().window("10s", late="side").agg(rows=count()).schema


def test_a_key_named_like_the_emission_is_refused_where_there_is_one() -> None:
    stream = read_readings().with_columns(emission="sensor").key_by("emission").watermark("ts")
    with pytest.raises(FlowError, match="'emission' would be written over"):
        stream.session("10s", late="update", lateness="1m")
    assert "emission" in stream.session("10s").agg(rows=count()).schema


def test_count_windows_need_no_watermark() -> None:
    stream = read_readings().key_by("sensor").count_window(100, every=10).agg(rows=count())
    assert stream.schema == {"window": pl.Int64(), "sensor": pl.Int64(), "rows": pl.Int64()}
    assert stream.node.time is None
    assert spec_of(stream).count_window == CountWindowSpec(100, 10)
    assert spec_of(stream).window is None


def test_best_rows_of_count_windows() -> None:
    stream = read_readings().key_by("sensor").count_window(100).top_k(3, by="volts", columns=["region"])
    assert set(stream.schema) == {"window", "sensor", "volts", "region", "rank"}
    assert isinstance(spec_of(stream), TopKSpec)


def test_the_last_kind_of_window_that_is_named_counts() -> None:
    by_rows = spec_of(timed_readings().window("10s").count_window(5).agg(rows=count()))
    by_time = spec_of(timed_readings().count_window(5).window("10s").agg(rows=count()))
    assert isinstance(by_rows, AggregateSpec) and isinstance(by_time, AggregateSpec)
    assert (by_rows.window, by_rows.count_window) == (None, CountWindowSpec(5, 5))
    assert by_time.window is not None and by_time.count_window is None


@pytest.mark.parametrize(("rows", "every"), [(0, None), (3, 0), (3, 4), (-2, None)])
def test_impossible_count_windows_are_refused(rows: int, every: int | None) -> None:
    with pytest.raises(FlowError, match="must be at least 1, and every at most the rows"):
        read_readings().key_by("sensor").count_window(rows, every=every)


@pytest.mark.parametrize("rows", ["10s", 2.5, True])
def test_count_windows_go_by_whole_rows(rows: Any) -> None:
    with pytest.raises(FlowError, match=r"goes by rows, got .*\.window\('10s'\)"):
        read_readings().key_by("sensor").count_window(rows)


def test_count_windows_need_keys_and_take_no_ttl() -> None:
    with pytest.raises(FlowError, match="count_window works per key"):
        read_readings().count_window(5)
    counted = read_readings().key_by("sensor").count_window(5)
    with pytest.raises(FlowError, match="windows end by themselves"):
        counted.agg(rows=count(), ttl="1h")
    with pytest.raises(FlowError, match="distinct has no windows"):
        counted.distinct()
    with pytest.raises(FlowError, match="'window' would be written over"):
        read_readings().with_columns(window="sensor").key_by("window").count_window(5)


def test_count_windows_are_explained_without_a_local_merge_or_a_watermark() -> None:
    flow = FlowGraph("counted")
    timed_readings(flow).count_window(100, every=10).agg(rows=count()).write(FakeSink("console"))
    text = explain_text(make_plan(flow, slots=4))
    assert "agg rows=count by sensor over windows of 100 rows every 10" in text
    assert "no local merge" in text
    assert "the watermark:" not in text
