"""Spark DataFrames as sources, and Spark as a sink."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import SinkError
from anabranch.model import StagedFile
from contracts.column_values import ALL
from flows.running import frames_of, reading
from oracle import Windows, answer_flow, assert_same_batches, assert_same_rows, compute
from spark.fixtures import SparkBench

SECOND_US = 1_000_000
BATCHES = [[reading(1, 0), reading(2, 4)], [reading(1, 11), reading(3, 12)], [reading(2, 25)]]


def tens() -> Windows:
    def shape(group: Any) -> list[dict[str, Any]]:
        return [compute(group, {"rows": ("count", None), "total": ("sum", "real")})]

    return Windows(["key"], shape, 10 * SECOND_US, 10 * SECOND_US)


def make_flow(source: Any) -> tuple[ab.Flow, Any]:
    flow, sink = ab.Flow("test"), ab.to_memory()
    windows = flow.read(source).watermark("ts").key_by("key").window("10s")
    windows.agg(rows=ab.count(), total=ab.sum("real")).write(sink)
    return flow, sink


def write_parquet_files(folder: Path) -> None:
    folder.mkdir()
    for number, frame in enumerate(frames_of(BATCHES)):
        path = folder / f"{number}.parquet"
        frame.with_columns(pl.col("ts").dt.replace_time_zone("UTC")).write_parquet(path)
        # Spark reads the oldest file first, to the millisecond.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_a_spark_stream_is_read_batch_by_batch_and_goes_on_after_a_restart(bench: SparkBench, tmp_path: Path) -> None:
    write_parquet_files(tmp_path / "in")
    schema = bench.spark.read.parquet(str(tmp_path / "in")).schema
    stream = bench.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    flow, sink = make_flow(ab.from_spark(stream))
    checkpoint = bench.new_checkpoint()
    first = bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    assert sum(entry.rows_in for entry in first.progress) == 5
    bench.run_flow(flow, [sink], checkpoint=checkpoint)
    assert_same_rows(sink.frame().to_dicts(), answer_flow(BATCHES, [tens()], time="ts", drain=True).rows)


def test_a_static_dataframe_gives_the_answers_of_a_stream(bench: SparkBench, tmp_path: Path) -> None:
    write_parquet_files(tmp_path / "in")
    flow, sink = make_flow(ab.from_spark(bench.spark.read.parquet(str(tmp_path / "in"))))
    got = bench.run_flow(flow, [sink])
    assert sum(entry.rows_in for entry in got.progress) == 5
    everything = [[row for batch in BATCHES for row in batch]]
    assert_same_rows(got.rows, answer_flow(everything, [tens()], time="ts", drain=True).rows)


def test_a_spark_stream_and_a_source_of_our_own_unite(bench: SparkBench, tmp_path: Path) -> None:
    write_parquet_files(tmp_path / "in")
    stream = bench.spark.read.parquet(str(tmp_path / "in"))
    schema = stream.schema
    stream = bench.spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    flow, sink = ab.Flow("test"), ab.to_memory()
    spark_rows = flow.read(ab.from_spark(stream)).select("key", "whole")
    own_rows = flow.read(ab.memory(*frames_of(BATCHES))).select("key", "whole")
    spark_rows.union(own_rows).key_by("key").agg(rows=ab.count()).write(sink)
    got = bench.run_flow(flow, [sink])
    final = {row["key"]: row["rows"] for row in got.rows}
    assert final == {1: 4, 2: 4, 3: 2}


def test_a_callback_gets_every_batch_as_a_spark_dataframe_with_its_id(bench: SparkBench) -> None:
    seen: dict[int, list[dict[str, Any]]] = {}

    def keep(frame: Any, batch: int) -> None:
        seen[batch] = [row.asDict() for row in frame.collect()]

    flow = ab.Flow("test")
    windows = flow.read(ab.memory(*frames_of(BATCHES))).watermark("ts").key_by("key").window("10s")
    windows.agg(rows=ab.count(), total=ab.sum("real")).write(ab.foreach(keep))
    bench.run_flow(flow, [])
    expected = answer_flow(BATCHES, [tens()], time="ts", drain=True)
    assert sorted(batch for batch, rows in seen.items() if rows) == sorted(expected.batches)
    for batch, rows in expected.batches.items():
        assert_same_rows(seen[batch], rows)


def test_spark_reads_every_type_that_a_callback_is_given(bench: SparkBench, tmp_path: Path) -> None:
    seen: list[list[Any]] = []
    sink = ab.foreach(lambda frame, batch: seen.append(frame.toArrow().to_pylist()))
    taken = {}
    for name, column in ALL.items():
        try:
            sink.check({"x": column.dtype})
        except SinkError:
            assert any(word in name for word in ("128", "Float16", "Time)", "Null", "Struct()")) or name == "Time"
        else:
            taken[f"c{len(taken)}"] = column
    rows = pl.DataFrame(taken)
    content = sink.encode(rows)
    (tmp_path / "staged.parquet").write_bytes(content)
    staged = StagedFile("staged.parquet", rows.height, len(content), 0)
    sink.publish(0, [(staged, str(tmp_path / "staged.parquet"))], {"flow": "test", "epoch": 1, "spark": bench.spark})
    (got,) = seen
    assert [tuple(row[name] is None for name in rows.columns) for row in got] == rows.select(pl.all().is_null()).rows()


def test_a_callback_that_fails_gets_the_same_batch_again_at_the_next_start(bench: SparkBench) -> None:
    calls: list[tuple[int, list[tuple[int, int]]]] = []

    def fail_first(frame: Any, batch: int) -> None:
        calls.append((batch, sorted((row["key"], row["rows"]) for row in frame.collect())))
        if len(calls) == 1:
            raise ConnectionError("the database is away")

    flow = ab.Flow("test")
    flow.read(ab.memory(*frames_of(BATCHES))).key_by("key").agg(rows=ab.count()).write(ab.foreach(fail_first))
    checkpoint = bench.new_checkpoint()
    with pytest.raises(SinkError, match="fail_first failed at batch 0: ConnectionError: the database is away"):
        bench.run_flow(flow, [], checkpoint=checkpoint)
    bench.run_flow(flow, [], checkpoint=checkpoint)
    assert calls == [
        (0, [(1, 1), (2, 1)]),
        (0, [(1, 1), (2, 1)]),
        (1, [(1, 2), (3, 1)]),
        (2, [(2, 2)]),
    ]


@pytest.mark.parametrize(
    "ddl",
    [
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date",
        "a timestamp, b timestamp_ntz, c decimal(20, 3), d decimal, e array<struct<x: int, y: array<timestamp>>>",
        "`a b` byte, c short NOT NULL, d long COMMENT 'x, y', e real, g struct<h: struct<i: date>>",
    ],
)
def test_ddl_means_what_spark_takes_it_for(bench: SparkBench, ddl: str) -> None:
    frame = bench.spark.createDataFrame([], ddl)
    expected = ab.from_spark(frame).schema
    assert ab.memory(schema=ddl).schema == expected
    assert ab.memory(schema=frame.schema).schema == expected


def test_file_sinks_hold_the_same_rows_and_read_back(bench: SparkBench, tmp_path: Path) -> None:
    flow = ab.Flow("test")
    windows = flow.read(ab.memory(*frames_of(BATCHES))).watermark("ts").key_by("key").window("10s")
    memory = ab.to_memory()
    results = windows.agg(rows=ab.count(), total=ab.sum("real"))
    results.write(ab.parquet(tmp_path / "parquet")).write(ab.json_lines(tmp_path / "json")).write(memory)
    bench.run_flow(flow, [memory])
    expected = answer_flow(BATCHES, [tens()], time="ts", drain=True)
    assert_same_batches(memory.batches(), expected.batches)
    assert_same_rows(pl.read_parquet(tmp_path / "parquet" / "*.parquet").to_dicts(), expected.rows)
    json_rows = pl.read_ndjson(tmp_path / "json" / "*.json", schema=memory.frame().schema).to_dicts()
    assert_same_rows(json_rows, expected.rows)
