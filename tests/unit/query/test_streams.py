"""Streams refuse what cannot run, while it is written, and name what would."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from typing import Any

import polars as pl
import pytest

from anabranch.errors import FlowError
from anabranch.model import AggregateSpec
from anabranch.model.times import TimeLimits
from anabranch.operators.aggregates.functions import count, max, mean, min, sum
from anabranch.query import FlowGraph, Stream
from anabranch.query.nodes import Stateful, Union, Watermark
from unit.query.fakes import READINGS, FakeSink, FakeSource, read_readings, timed_readings


def spec_of(stream: Stream) -> object:
    assert isinstance(stream.node.operation, Stateful)
    return stream.node.operation.spec


# -- columns and expressions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicate", ["volt > 0", pl.col("volt") > 0])
def test_missing_column_names_the_likely_one_and_all_that_exist(predicate: str | pl.Expr) -> None:
    with pytest.raises(FlowError, match=r"no column 'volt'; did you mean 'volts'\? there are sensor, region, ts"):
        read_readings().filter(predicate)


def test_missing_column_without_a_likely_one_still_names_all() -> None:
    with pytest.raises(FlowError, match="no column 'humidity'; there are sensor, region, ts, volts"):
        read_readings().select("sensor", wet="humidity + 1")


def test_broken_sql_names_the_columns_and_their_types() -> None:
    with pytest.raises(FlowError, match=r"filter volts >: SQL.*columns are sensor Int64, region String"):
        read_readings().filter("volts >")


def test_sql_and_polars_expressions_give_the_same_columns() -> None:
    by_sql = read_readings().select("sensor", kilovolts="volts / 1000", one="1")
    by_polars = read_readings().select(pl.col("sensor"), kilovolts=pl.col("volts") / 1000, one=pl.lit(1))
    assert list(by_sql.schema) == list(by_polars.schema) == ["sensor", "kilovolts", "one"]
    assert by_sql.schema["kilovolts"] == by_polars.schema["kilovolts"] == pl.Float64


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_literal_fills_its_column_however_many_rows_there_are(rows: int) -> None:
    operation = read_readings().with_columns(pl.lit(7).alias("seven"), double="volts * 2").node.operation
    frame = pl.DataFrame({"sensor": [1] * rows, "region": ["n"] * rows, "ts": [None] * rows, "volts": [2.0] * rows})
    result = operation.apply(frame)  # type: ignore[union-attr]
    assert result.get_column("seven").to_list() == [7] * rows
    assert result.get_column("double").to_list() == [4.0] * rows


def test_engine_column_names_are_refused() -> None:
    with pytest.raises(FlowError, match="__hash is a name of the engine's own"):
        read_readings().with_columns(__hash="sensor")


def test_map_batches_learns_its_columns_from_an_empty_frame() -> None:
    stream = read_readings().map_batches(lambda frame: frame.select("sensor", loud=pl.col("volts") > 240))
    assert stream.schema == {"sensor": pl.Int64(), "loud": pl.Boolean()}


def test_map_batches_that_fails_on_an_empty_frame_is_told_about_schema() -> None:
    def first_row(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(first=pl.lit(frame.row(0)[0]))

    with pytest.raises(FlowError, match=r"map_batches first_row: .*declare its columns by schema="):
        read_readings().map_batches(first_row)
    assert "first" in read_readings().map_batches(first_row, schema=READINGS | {"first": pl.Int64()}).schema


def test_map_batches_must_return_a_frame() -> None:
    with pytest.raises(FlowError, match="returned list; return a Polars DataFrame"):
        read_readings().map_batches(lambda frame: frame.rows())  # type: ignore[arg-type,return-value]


def test_map_batches_that_breaks_its_promise_says_which_columns_are_missing() -> None:
    stream = read_readings().map_batches(lambda frame: frame.drop("volts"), schema=READINGS)
    with pytest.raises(FlowError, match="promised columns volts; it returned sensor, region, ts"):
        stream.node.operation.apply(pl.DataFrame(schema=READINGS))  # type: ignore[union-attr]


def test_flat_map_turns_a_row_into_any_number() -> None:
    stream = read_readings().flat_map(
        lambda row: [{"word": letter} for letter in row["region"]], schema={"word": pl.String()}
    )
    frame = pl.DataFrame({"region": ["ab", "", "c"]})
    assert stream.node.operation.apply(frame).to_dict(as_series=False) == {"word": ["a", "b", "c"]}  # type: ignore[union-attr]


def test_a_step_leaves_the_stream_it_starts_from_as_it_was() -> None:
    stream = read_readings()
    stream.select("sensor")
    assert stream.schema == READINGS


# -- union ---------------------------------------------------------------------------------------------------------


def test_union_of_other_columns_shows_both_and_says_what_to_do() -> None:
    flow = FlowGraph("two")
    other = read_readings(flow).select("sensor")
    with pytest.raises(FlowError, match=r"the first stream has sensor .*another has sensor Int64; use select"):
        read_readings(flow).union(other)


def test_union_across_flows_is_refused() -> None:
    with pytest.raises(FlowError, match="one is of 'a', one of 'b'"):
        read_readings(FlowGraph("a")).union(read_readings(FlowGraph("b")))


def test_union_keeps_event_time_only_if_all_have_the_same() -> None:
    flow = FlowGraph("two")
    timed = timed_readings(flow)
    assert timed.union(timed_readings(flow)).node.time == timed.node.time
    assert timed.union(read_readings(flow)).node.time is None
    assert isinstance(timed.union(timed).node.operation, Union)


# -- keys ----------------------------------------------------------------------------------------------------------


def test_float_key_is_refused_with_the_types_that_work() -> None:
    with pytest.raises(FlowError, match=r"'volts' is Float64; keys are integers, strings, enums, bytes, dates"):
        read_readings().key_by("volts")


def test_nested_key_is_refused() -> None:
    source = FakeSource(schema={"tags": pl.List(pl.String)})
    with pytest.raises(FlowError, match="'tags' is List"):
        FlowGraph("nested").read(source).key_by("tags")


def test_key_by_nothing_names_the_columns() -> None:
    with pytest.raises(FlowError, match="key_by needs at least one column; there are sensor"):
        read_readings().key_by()


def test_missing_key_names_the_likely_column() -> None:
    with pytest.raises(FlowError, match=r"key_by: no column 'senser'; did you mean 'sensor'\?"):
        read_readings().key_by("senser")


def test_dropping_the_key_is_refused() -> None:
    with pytest.raises(FlowError, match="select volts: drops the key sensor; keep it"):
        read_readings().key_by("sensor").select("volts")


def test_aggregating_without_a_key_asks_for_one() -> None:
    with pytest.raises(FlowError, match=r"agg works per key: call \.key_by"):
        read_readings().agg(rows=count())


# -- event time and windows ----------------------------------------------------------------------------------------


def test_window_without_a_watermark_asks_for_one() -> None:
    with pytest.raises(FlowError, match=r"windows need event time: call \.watermark"):
        read_readings().key_by("sensor").window("10s")


def test_window_behind_a_union_of_different_watermarks_says_so() -> None:
    flow = FlowGraph("united")
    fast, slow = read_readings(flow).watermark("ts", delay="1s"), read_readings(flow).watermark("ts", delay="2s")
    united = fast.union(slow).filter("volts > 0").key_by("sensor")
    with pytest.raises(FlowError, match=r"the united streams have different watermarks; give them the same, or call"):
        united.window("10s")
    assert fast.union(read_readings(flow).watermark("ts", delay="1s")).key_by("sensor").window("10s").windowing


def test_window_behind_a_step_that_dropped_the_time_names_the_step() -> None:
    rows = read_readings().watermark("ts").select("sensor", "volts").filter("volts > 0")
    with pytest.raises(FlowError, match=r"select sensor, volts leaves no 'ts' to follow; keep it"):
        rows.key_by("sensor").window("10s")


def test_window_behind_windows_of_own_time_is_told_their_last_instant() -> None:
    windows = read_readings().watermark("ts", per="key").key_by("sensor").window("10s").agg(rows=count())
    with pytest.raises(FlowError, match=r"say it anew, by the last instant of a window: .*window_end - INTERVAL '1us'"):
        windows.key_by("sensor").window("1m")
    again = windows.with_columns(at="window_end - INTERVAL '1us'").watermark("at")
    assert again.key_by("sensor").window("1m").agg(rows=count()).schema["rows"] == pl.Int64()


def test_window_without_a_key_asks_for_one() -> None:
    with pytest.raises(FlowError, match="window works per key"):
        read_readings().watermark("ts").window("10s")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"per": "sensor"}, "per='sensor' is unknown; watermarks are kept per flow, partition, slot, group, key"),
        ({"per": "group", "groups": 0}, "groups must be at least 1, got 0"),
        ({"per": "flow", "behind": "1m"}, 'give per="key", per="partition"'),
        ({"per": "key", "behind": "0s"}, "behind must be longer than nothing, got '0s'"),
        ({"idle": "0s"}, "idle must be longer than nothing, got '0s'"),
        ({"idle": 5}, "the watermark's idle is a int"),
        ({"forget": "1d"}, "forget='1d' says when the time of a key that is idle is dropped"),
        ({"per": "group", "idle": "1m", "forget": "1d"}, "got per='group', idle='1m'; give per=\"key\""),
        ({"per": "key", "idle": "1m", "forget": "30s"}, "not before it is idle; got per='key', idle='1m'"),
        ({"per": "key", "idle": "1m", "forget": "0s"}, "forget must be longer than nothing, got '0s'"),
        ({"future": 5}, "the watermark's future is a int"),
        ({"earliest": "yesterday"}, "earliest='yesterday' is no point in time; give '2020-01-01'"),
        ({"earliest": 5}, "earliest=5 is no point in time"),
    ],
)
def test_watermark_that_cannot_be_kept_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FlowError, match=re.escape(message)):
        read_readings().watermark("ts", **arguments)


@pytest.mark.parametrize(
    ("earliest", "expected_us"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00", 3_600_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        (date(1970, 1, 2), 86_400_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=-1))), 3_600_000_000),
        (None, None),
    ],
)
def test_earliest_time_is_in_utc_unless_it_says_otherwise(earliest: Any, expected_us: int | None) -> None:
    operation = read_readings().watermark("ts", earliest=earliest).node.operation
    assert isinstance(operation, Watermark)
    assert operation.limits == TimeLimits(expected_us)


def test_label_of_a_watermark_says_which_limits_are_not_the_usual_ones() -> None:
    stream = read_readings()
    assert stream.watermark("ts", "2s").node.label == "watermark ts, delay 2s"
    narrow = stream.watermark("ts", "2s", per="partition", idle="30s", earliest="2020-01-01", future="10m")
    assert narrow.node.label == (
        "watermark ts, delay 2s per partition, idle after 30s, from 2020-01-01 00:00:00, at most 10m ahead"
    )
    anything = stream.watermark("ts", earliest=None, future=None)
    assert anything.node.label == "watermark ts, delay 0s, no earliest time, however far ahead"


def test_watermark_on_an_integer_shows_how_to_make_it_a_time() -> None:
    source = FakeSource(schema={"sensor": pl.Int64(), "at": pl.Int64()})
    with pytest.raises(FlowError, match=r"'at' is Int64, not a Datetime; .*from_epoch"):
        FlowGraph("epochs").read(source).watermark("at")


@pytest.mark.parametrize("delay", ["two seconds", "10", 5])
def test_delay_that_is_no_duration_shows_those_that_are(delay: str) -> None:
    with pytest.raises(FlowError, match=r"watermark's delay.*'10s'"):
        read_readings().watermark("ts", delay)


@pytest.mark.parametrize(("size", "every"), [("0s", None), ("10s", "20s"), ("10s", "0s")])
def test_impossible_windows_are_refused(size: str, every: str | None) -> None:
    with pytest.raises(FlowError, match="must be positive, and every at most the size"):
        timed_readings().window(size, every=every)


def test_session_needs_a_gap() -> None:
    with pytest.raises(FlowError, match="the gap must be positive"):
        timed_readings().session("0s")


def test_losing_event_time_after_the_window_is_refused() -> None:
    with pytest.raises(FlowError, match=r"event time got lost after window\(\)"):
        timed_readings().window("10s").select("sensor", "volts").agg(rows=count())


def test_a_key_named_like_a_window_column_is_refused() -> None:
    stream = read_readings().with_columns(window_start="sensor").key_by("window_start").watermark("ts")
    with pytest.raises(FlowError, match="'window_start' would be written over"):
        stream.window("10s")


def test_window_results_carry_the_end_of_their_window_as_event_time() -> None:
    stream = timed_readings().window("10s").agg(rows=count(), lowest=min("volts"))
    assert list(stream.schema) == ["window_start", "window_end", "sensor", "rows", "lowest"]
    assert stream.node.time is not None and stream.node.time.column == "window_end"
    assert stream.key_by("sensor").window("1m").agg(windows=count()).schema["windows"] == pl.Int64


def test_running_results_have_no_event_time() -> None:
    assert timed_readings().agg(rows=count()).node.time is None


def test_durations_may_be_timedeltas() -> None:
    by_text = spec_of(timed_readings().window("1m", every="30s").agg(rows=count()))
    by_delta = spec_of(timed_readings().window(timedelta(minutes=1), every=timedelta(seconds=30)).agg(rows=count()))
    assert isinstance(by_text, AggregateSpec) and isinstance(by_delta, AggregateSpec)
    assert by_text.window == by_delta.window


# -- stateful operators --------------------------------------------------------------------------------------------


def test_agg_of_nothing_shows_an_example() -> None:
    with pytest.raises(FlowError, match="agg needs at least one aggregate, such as"):
        read_readings().key_by("sensor").agg()


def test_aggregate_of_a_missing_column_names_those_that_exist() -> None:
    with pytest.raises(FlowError, match=r"humidity.*sensor, region, ts, volts"):
        read_readings().key_by("sensor").agg(wettest=max("humidity"))


def test_sum_of_text_is_refused() -> None:
    with pytest.raises(FlowError, match="region"):
        read_readings().key_by("sensor").agg(total=sum("region"))


@pytest.mark.parametrize("method", ["agg", "top_k"])
def test_ttl_of_windows_is_refused(method: str) -> None:
    stream = timed_readings().window("10s")
    with pytest.raises(FlowError, match=f"{method}: windows end by themselves; a ttl is for running aggregates"):
        if method == "agg":
            stream.agg(rows=count(), ttl="1h")
        else:
            stream.top_k(3, "volts", ttl="1h")


def test_distinct_in_windows_is_refused() -> None:
    with pytest.raises(FlowError, match="distinct has no windows"):
        timed_readings().window("10s").distinct()


def test_top_k_needs_a_positive_k_and_an_existing_column() -> None:
    with pytest.raises(FlowError, match="k must be a whole number, at least 1, got 0"):
        read_readings().key_by("sensor").top_k(0, "volts")
    with pytest.raises(FlowError, match=r"top_k: no column 'volt'; did you mean 'volts'\?"):
        read_readings().key_by("sensor").top_k(3, "volt")


def test_top_k_keeps_every_other_column_and_adds_a_rank() -> None:
    schema = read_readings().key_by("region").top_k(3, "volts").schema
    assert set(schema) == {"region", "rank", "volts", "sensor", "ts"}


def test_distinct_takes_its_columns_as_keys_and_lets_whole_rows_pass() -> None:
    stream = read_readings().distinct("region", "sensor", ttl="1h")
    assert dict(stream.schema) == READINGS
    assert spec_of(stream).keys == ("region", "sensor")  # type: ignore[attr-defined]
    assert spec_of(stream).ttl_us == 3_600_000_000  # type: ignore[attr-defined]


def test_stateful_operators_of_one_name_are_numbered() -> None:
    flow = FlowGraph("names")
    first = read_readings(flow).key_by("sensor").agg(rows=count())
    second = first.key_by("sensor").agg(updates=count())
    assert [node.node.operation.name for node in (first, second)] == ["agg", "agg-2"]  # type: ignore[union-attr]


def test_keys_are_chosen_anew_behind_a_stateful_operator() -> None:
    stream = read_readings().key_by("sensor").agg(average=mean("volts"))
    with pytest.raises(FlowError, match="agg works per key"):
        stream.agg(rows=count())


# -- flows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "low voltage", "a/b"])
def test_flow_name_that_cannot_name_a_file_is_refused(name: str) -> None:
    with pytest.raises(FlowError, match="letters, digits"):
        FlowGraph(name)


def test_flow_without_source_or_sink_cannot_run() -> None:
    flow = FlowGraph("empty")
    with pytest.raises(FlowError, match="reads nothing"):
        flow.check()
    stream = read_readings(flow)
    with pytest.raises(FlowError, match="writes nothing"):
        flow.check()
    stream.write(FakeSink()).write(FakeSink("console"))
    flow.check()
    assert [sink.label for sink in flow.sinks] == ["parquet alerts/", "console"]
