"""Files of object stores as a source, and places that are out of reach."""

from __future__ import annotations

import gzip
import io
import itertools
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors import files, json_lines, parquet
from anabranch.connectors.feedback_loops import refuse_loops
from anabranch.connectors.filesystem.locations import open_file
from anabranch.connectors.filesystem.source import FileSource
from anabranch.errors import FlowError, SinkError, SourceError
from anabranch.state.objects import open_objects
from property_tests import tries

from .conftest import drain_source, write_frame

_numbers = itertools.count()


@pytest.fixture
def place() -> str:
    return f"memory://bucket-{next(_numbers)}/in"


def put(place: str, name: str, content: bytes | str) -> None:
    root, _, folder = place.rpartition("/")
    obstore.put(open_objects(root), f"{folder}/{name}", content.encode() if isinstance(content, str) else content)


def source_of(place: str, **options: Any) -> FileSource:
    return files(place, **{"schema": {"k": int}, **options})


@pytest.mark.parametrize("limits", [{}, {"max_rows": 7}])
@pytest.mark.parametrize("format", ["json", "csv", "parquet", "arrow"])
def test_objects_are_read_as_files_are(tmp_path: Path, place: str, format: str, limits: dict[str, int]) -> None:
    frame = pl.DataFrame({"k": range(50), "s": [f"name {key}" for key in range(50)]})
    for name, part in (("a", frame[:30]), ("b", frame[30:])):
        write_frame(part, format, tmp_path / name)
        put(place, name, (tmp_path / name).read_bytes())
    source = source_of(place, format=format, schema={"k": int, "s": str}, **limits)
    assert drain_source(source).frame.equals(frame)
    assert files(place, format=format).schema == frame.schema  # type: ignore[arg-type]


def test_only_the_row_groups_of_a_split_are_fetched(place: str) -> None:
    frame = pl.DataFrame({"k": range(10_000)})
    held = io.BytesIO()
    frame.write_parquet(held, row_group_size=1000)
    put(place, "a.parquet", held.getvalue())
    source = source_of(place, format="parquet", max_rows=2500)
    drained = drain_source(source)
    assert drained.rows_per_batch == [2500] * 4
    assert drained.frame.equals(frame)


def test_names_are_chosen_as_in_directories(place: str) -> None:
    for name in ("a.json", "_b.json", ".c.json", "d.json.tmp", "e.txt", "deep/f.json", "_hidden/g.json"):
        put(place, name, f'{{"k": {ord(name[0])}}}\n')
    put(place, "empty.json", "")
    assert drain_source(source_of(place, pattern="*.json")).frame["k"].to_list() == [ord("a")]
    found = drain_source(source_of(place, pattern="*.json", recursive=True)).frame["k"].to_list()
    assert sorted(found) == [ord("a"), ord("d")]


def test_compressed_objects_are_read(place: str) -> None:
    put(place, "a.json.gz", gzip.compress(b'{"k": 1}\n{"k": 2}\n'))
    assert drain_source(source_of(place)).frame["k"].to_list() == [1, 2]


def test_object_that_is_gone_or_replaced_is_noticed(place: str) -> None:
    put(place, "a.json", '{"k": 1}\n')
    source = source_of(place)
    [split] = source.planner().plan(None, 0.0).splits
    put(place, "a.json", '{"k": 2}\n')
    with pytest.raises(SourceError, match=rf"{place}/a\.json was replaced after it was planned"):
        list(source.read(split))
    obstore.delete(open_objects(place.removesuffix("/in")), "in/a.json")
    with pytest.raises(SourceError, match=rf"{place}/a\.json was planned but is gone"):
        list(source.read(split))


@tries(60)
@given(content=st.binary(min_size=1, max_size=5000), cuts=st.lists(st.integers(0, 5200), max_size=8))
def test_object_is_read_as_a_local_file_is(content: bytes, cuts: list[int]) -> None:
    put("memory://as-local/in", "a", content)
    local = io.BytesIO(content)
    with open_file("memory://as-local/in/a") as file:
        for start, length in itertools.pairwise(cuts):
            assert file.seek(start) == local.seek(start)
            assert file.read(length) == local.read(length)
            assert file.readline() == local.readline()
            assert file.tell() == local.tell()


def test_store_that_is_out_of_reach_is_told_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "ftp://127.0.0.1:1")
    with pytest.raises(SourceError, match=r"cannot list s3://bucket/in: .*come from the environment"):
        source_of("s3://bucket/in").check()


def test_file_urls_are_local_directories(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    (folder / "a.json").write_text('{"k": 1}\n')
    url = f"file://{tmp_path}/with%20blank"
    assert source_of(url).directory == str(folder)
    assert drain_source(source_of(url)).frame["k"].to_list() == [1]
    assert parquet(url).directory == json_lines(url).directory == str(folder)


@pytest.mark.parametrize("make", [lambda url: files(url, schema={"k": int}), parquet, json_lines])
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "hdfs://name:9000/in",
            r"hdfs://name:9000/in is out of reach: .* no hdfs://; give the path .*through Spark: ab\.",
        ),
        ("ftp://host/in", r"no ftp://"),
        ("file://host/in", r"names the host 'host'; file URLs have three slashes"),
    ],
)
def test_place_out_of_reach_is_refused_with_a_way_out(make: Any, url: str, expected: str) -> None:
    with pytest.raises(FlowError, match=expected):
        make(url)


def test_flow_that_would_read_what_it_writes_is_refused_in_object_stores_too() -> None:
    sinks = {"a sink": json_lines("s3://bucket/in/out/")}
    with pytest.raises(SinkError, match="would feed on its own results"):
        refuse_loops([source_of("s3://bucket/in", recursive=True)], sinks)
    refuse_loops([source_of("s3://bucket/in"), source_of("s3://bucket/inner", recursive=True)], sinks)
