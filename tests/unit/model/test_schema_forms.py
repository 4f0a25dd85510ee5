"""Schemas as PySpark users write them, read without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import types as spark

import anabranch as ab
from anabranch.cli.loading import load
from anabranch.errors import FlowError
from anabranch.model.schema_forms import declared_columns

DDL = "id bigint, ts timestamp, tags array<string>, s struct<a:int>"
COLUMNS: dict[str, pl.DataType] = {
    "id": pl.Int64(),
    "ts": pl.Datetime("us", "UTC"),
    "tags": pl.List(pl.String()),
    "s": pl.Struct({"a": pl.Int32()}),
}


@pytest.mark.parametrize(
    ("ddl", "columns"),
    [
        (DDL, COLUMNS),
        ("ID: Long NOT NULL COMMENT 'a, b', x double", {"ID": pl.Int64(), "x": pl.Float64()}),
        ("`odd name` decimal(10, 2), `a``b` dec", {"odd name": pl.Decimal(10, 2), "a`b": pl.Decimal(10, 0)}),
        (
            "x array<struct<a: tinyint, b: array<array<float>>>>",
            {"x": pl.List(pl.Struct({"a": pl.Int8(), "b": pl.List(pl.List(pl.Float32()))}))},
        ),
        ("t timestamp_ntz, v varchar(10), d date", {"t": pl.Datetime("us"), "v": pl.String(), "d": pl.Date()}),
        ("t Datetime(ms, UTC), k UInt16", {"t": pl.Datetime("ms", "UTC"), "k": pl.UInt16()}),
    ],
)
def test_ddl_is_read_as_spark_means_it(ddl: str, columns: dict[str, pl.DataType]) -> None:
    assert dict(declared_columns(ddl)) == columns


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("id", "expected the type of 'id', found its end"),
        ("id bigint,", "expected the name of a column, found its end"),
        ("a int b int", "expected a comma, found 'b int'"),
        ("x array<int", "expected '>', found its end"),
        ("s struct<>", "expected the name of a column, found '>'"),
        ("a int, a int", "has the column 'a' twice"),
        ("id bigintt", "column 'id' has the type 'bigintt'"),
        ("s struct<m: map<string, int>>", "column 's.m' has the type 'map', .*list of structs with key and value"),
        ("d decimal(50, 2)", "1 to 38 digits"),
        ("id 'x", "column 'id' has the type"),
    ],
)
def test_what_is_no_ddl_is_refused_with_the_place(ddl: str, expected: str) -> None:
    with pytest.raises(FlowError, match=expected):
        declared_columns(ddl)


def test_struct_type_is_read_without_a_session() -> None:
    given = spark.StructType(
        [
            spark.StructField("id", spark.LongType()),
            spark.StructField("ts", spark.TimestampType()),
            spark.StructField("tags", spark.ArrayType(spark.StringType())),
            spark.StructField("s", spark.StructType([spark.StructField("a", spark.IntegerType())])),
        ]
    )
    assert dict(declared_columns(given)) == COLUMNS


@pytest.mark.parametrize("given", [spark.LongType(), ["id"], 3, spark.StructType])
def test_what_is_no_schema_is_refused_with_the_forms(given: Any) -> None:
    with pytest.raises(
        FlowError, match=r"a schema is columns with their types, .*Spark's DDL, .*or a StructType; found"
    ):
        declared_columns(given)


def test_every_place_that_takes_a_schema_takes_ddl(tmp_path: Path) -> None:
    assert ab.files(tmp_path, schema=DDL).schema == COLUMNS
    assert ab.memory(schema=DDL).schema == COLUMNS
    assert {**ab.kafka("localhost:1", "t", schema=DDL).schema} == COLUMNS
    rows = ab.Flow("f").read(ab.memory(schema="id bigint"))
    assert rows.map_batches(lambda frame: frame, schema="id bigint, s string").schema == {
        "id": pl.Int64(),
        "s": pl.String(),
    }
    assert rows.flat_map(lambda row: [row], schema="n int").schema == {"n": pl.Int32()}
    with pytest.raises(FlowError, match="map_batches: the schema 'id' cannot be read"):
        rows.map_batches(lambda frame: frame, schema="id")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "flow.yaml",
            "flow: f\nsources: {a: {files: {path: in/, schema: 'id bigint, s struct<a:int>'}}}\n"
            "streams:\n  b:\n    from: a\n    to: console\n"
            "    steps: [{map_batches: {function: 'os.path:join', schema: id bigint}}]\n",
        ),
        (
            "flow.xml",
            "<flow name='f'><source name='a'><files path='in/' schema='id bigint, s struct&lt;a:int&gt;'/></source>"
            "<stream name='b' from='a'><map_batches function='os.path:join'><schema>id bigint</schema></map_batches>"
            "<to><console/></to></stream></flow>",
        ),
    ],
)
def test_flow_files_take_ddl(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / name).write_text(text)
    flow = load(str(tmp_path / name)).graph
    assert flow.sources[0].schema == {"id": pl.Int64(), "s": pl.Struct({"a": pl.Int32()})}
    assert [node.schema for node in flow.nodes.values()][1] == {"id": pl.Int64()}
