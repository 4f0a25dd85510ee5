"""What a folder of files is declared to hold: found wrong before the first batch, or at the latest when it is read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from anabranch.connectors import files
from anabranch.errors import FlowError, SourceError
from anabranch.model import Source

from .conftest import Drained, drain_source, write_frame

Write = Callable[..., Path]
Drain = Callable[[Source], Drained]
SCHEMA = {"k": pl.Int64}


def test_missing_directory_is_named_with_what_its_parent_holds(tmp_path: Path) -> None:
    (tmp_path / "readings").mkdir()
    with pytest.raises(SourceError, match=r"no directory .*reading; its nearest parent .* holds readings"):
        files(tmp_path / "reading", schema=SCHEMA).check()


def test_file_instead_of_a_directory_is_refused_with_the_way_out(write: Write) -> None:
    path = write("a.json", '{"k":1}\n')
    with pytest.raises(
        SourceError, match=r"is a file, not a directory; give its directory, and its name as pattern='a\.json'"
    ):
        files(path, schema=SCHEMA).check()


@pytest.mark.parametrize("format", ["csv", "parquet", "arrow"])
def test_file_without_any_declared_column_is_found_before_the_first_batch(tmp_path: Path, format: str) -> None:
    frame = pl.DataFrame({"sensor": [1], "volts": [2.5]})
    write_frame(frame, format, tmp_path / "a")
    with pytest.raises(FlowError, match=r"has no column 'sensr', and none of the declared .*\['sensor', 'volts'\]"):
        files(tmp_path, format=format, schema={"sensr": int}).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_wrong_type_is_found_before_the_first_batch(tmp_path: Path, format: str) -> None:
    frame = pl.DataFrame({"sensor": ["a"]})
    write_frame(frame, format, tmp_path / "a")
    expected = r"has the column 'sensor' as String, declared as Int64: .*; correct the schema if it is wrong"
    with pytest.raises(FlowError, match=expected):
        files(tmp_path, format=format, schema={"sensor": int}).check()  # type: ignore[arg-type]


def test_json_of_which_no_row_fits_is_found_before_the_first_batch(tmp_path: Path, write: Write) -> None:
    write("a.json", '{"k":"one"}\n' * 5000)
    expected = r"none of the first 1000 rows of .*a\.json fits the schema: column 'k' is declared as Int64"
    with pytest.raises(FlowError, match=expected):
        files(tmp_path, schema=SCHEMA).check()


def test_csv_of_which_no_row_fits_is_found_before_the_first_batch(tmp_path: Path, write: Write) -> None:
    write("a.csv.gz", gzip.compress(b"k;v\n" + b"1;2\n" * 10))
    with pytest.raises(FlowError, match=r"has no column 'k', .* it has \['k;v'\]"):
        files(tmp_path, format="csv", schema=SCHEMA).check()
    files(tmp_path, format="csv", schema=SCHEMA, separator=";").check()


def test_later_file_without_any_declared_column_stops_the_flow(tmp_path: Path) -> None:
    pl.DataFrame({"other": [1]}).write_parquet(tmp_path / "a.parquet")
    source = files(tmp_path, format="parquet", schema=SCHEMA)
    [split] = source.planner().plan(None, 0.0).splits
    with pytest.raises(SourceError, match=r"has no column 'k', and none of the declared .* it has \['other'\]"):
        list(source.read(split))


@pytest.mark.parametrize("format", ["json", "csv", "parquet", "arrow"])
def test_undeclared_schema_is_taken_from_the_oldest_file(tmp_path: Path, format: str) -> None:
    frame = pl.DataFrame({"k": [1, 2], "v": [0.5, 1.5], "s": ["a", "b"]})
    write_frame(frame, format, tmp_path / "a")
    source = files(tmp_path, format=format)  # type: ignore[arg-type]
    assert source.schema == frame.schema
    assert source.label == f"files {tmp_path} ({format}, schema taken from a)"
    assert drain_source(source).frame.equals(frame)


def test_undeclared_schema_of_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match=r"has no file '\*' to take the schema from; declare it"):
        files(tmp_path)


@pytest.mark.parametrize("format", ["json", "csv", "parquet", "arrow"])
def test_only_the_columns_asked_for_come_back(tmp_path: Path, format: str) -> None:
    frame = pl.DataFrame({"k": [1, 2], "v": [0.5, 1.5], "s": ["a", "b"]})
    write_frame(frame, format, tmp_path / "a")
    source = files(tmp_path, format=format, schema=dict(frame.schema))  # type: ignore[arg-type]
    [split] = source.planner().plan(None, 0.0).splits
    [outcome] = source.read(split, columns=["s", "k"])
    assert outcome.frame.equals(frame.select("k", "s"))


def test_unknown_format_and_type_name_the_alternatives(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="format 'xml'; use one of json, csv, parquet, arrow"):
        files(tmp_path, format="xml", schema=SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r"column 'k': unknown type 'integer'; types are Boolean, Int8"):
        files(tmp_path, schema={"k": "integer"})


def test_types_may_be_polars_types_python_types_or_names(tmp_path: Path) -> None:
    source = files(
        tmp_path, schema={"a": pl.Int32, "b": pl.Datetime("ms"), "c": float, "d": "Datetime[ms]", "e": pl.Datetime}
    )
    assert list(source.schema.values()) == [
        pl.Int32(),
        pl.Datetime("ms"),
        pl.Float64(),
        pl.Datetime("ms"),
        pl.Datetime("us"),
    ]


def test_limit_that_lets_nothing_through_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="max_rows is 0, so no batch could read anything"):
        files(tmp_path, schema=SCHEMA, max_rows=0)
