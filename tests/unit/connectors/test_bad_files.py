"""Files that cannot be used: told of with a way out, set aside where that is wanted, and never read as another."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.connectors import files
from anabranch.connectors.filesystem.bad_files import SetAsideFiles
from anabranch.connectors.filesystem.source import FileSource
from anabranch.errors import FlowError, SourceError, StateDamaged
from anabranch.model import ReadOutcome
from property_tests import tries

from .conftest import write_frame

Write = Callable[..., Path]
SCHEMA = {"k": pl.Int64}
FORMATS = ["json", "csv", "parquet", "arrow"]


def source_of(folder: Path, format: str = "json", **options: Any) -> FileSource:
    return files(folder / "in", format=format, schema=SCHEMA, **options)  # type: ignore[arg-type]


def keys_of(source: FileSource, splits: tuple[dict[str, Any], ...]) -> list[int]:
    return [
        key for split in json.loads(json.dumps(splits)) for outcome in source.read(split) for key in outcome.frame["k"]
    ]


def bad_file_of(source: FileSource, split: dict[str, Any]) -> tuple[str, str] | None:
    [outcome] = source.read(split)
    assert outcome.frame.height == 0
    return outcome.bad_file


def replace_content(path: Path, content: bytes) -> None:
    """Put other bytes into a file, with the times that it had."""
    facts = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("format", FORMATS)
def test_file_replaced_by_one_of_the_same_size_and_time_is_noticed(tmp_path: Path, format: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    write_frame(pl.DataFrame({"k": [1, 2]}), format, path)
    source = source_of(tmp_path, format)
    [split] = source.planner().plan(None, 0.0).splits
    other = tmp_path / "other"
    write_frame(pl.DataFrame({"k": [3, 4]}), format, other)
    assert other.stat().st_size == path.stat().st_size
    replace_content(path, other.read_bytes())
    with pytest.raises(SourceError, match=r"in/a was replaced after it was planned: .*put the original back"):
        list(source.read(split))
    write_frame(pl.DataFrame({"k": [1, 2]}), format, path)
    assert keys_of(source, (split,)) == [1, 2]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_file_replaced_by_a_larger_one_is_no_file_that_grew(tmp_path: Path, write: Write, name: str) -> None:
    def pack(*keys: int) -> bytes:
        text = "".join(f'{{"k": {key}}}\n' for key in keys).encode()
        return gzip.compress(text, mtime=0) if name.endswith(".gz") else text

    path = write(f"in/{name}", pack(1, 2))
    source = source_of(tmp_path)
    planned = source.planner().plan(None, 0.0)
    path.write_bytes(pack(1, 2) + pack(3))
    assert keys_of(source, planned.splits) == [1, 2]
    path.write_bytes(pack(4, 5, 6, 7, 8))
    with pytest.raises(SourceError, match="was replaced after it was planned"):
        keys_of(source, planned.splits)


@tries(40)
@given(rows=st.integers(1, 20_000), added=st.integers(0, 3), shift=st.integers(1, 9))
def test_grown_file_is_read_as_planned_and_a_rewritten_one_is_not(
    tmp_path_factory: pytest.TempPathFactory, rows: int, added: int, shift: int
) -> None:
    folder = tmp_path_factory.mktemp("grown")
    (folder / "in").mkdir()
    path = folder / "in" / "a.json"
    lines = [f'{{"k": {key:06d}}}\n'.replace(" 0", " 1") for key in range(rows)]
    path.write_text("".join(lines))
    source = source_of(folder)
    planned = source.planner().plan(None, 0.0)
    expected = keys_of(source, planned.splits)
    path.write_text("".join(lines + lines[:added]))
    assert keys_of(source, planned.splits) == expected
    # Another order of the same rows: the size is the same, and so may be much of the content.
    turned = lines[shift % rows :] + lines[: shift % rows]
    if turned != lines:
        path.write_text("".join(turned))
        with pytest.raises(SourceError, match="was replaced after it was planned"):
            keys_of(source, planned.splits)


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_rest_of_a_file_that_was_replaced_half_read_is_not_read(tmp_path: Path, format: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    write_frame(pl.DataFrame({"k": range(100)}), format, path)
    source = source_of(tmp_path, format, max_rows=10)
    position = json.loads(json.dumps(source.planner().plan(None, 0.0).position))
    write_frame(pl.DataFrame({"k": range(1000, 1200)}), format, path)
    with pytest.raises(SourceError, match=r"in/a was read in part and is another file now; put the original back"):
        source.planner().plan(position, 1.0)


def test_split_planned_before_there_were_marks_is_read(tmp_path: Path, write: Write) -> None:
    write("in/a.json", '{"k": 1}\n')
    source = source_of(tmp_path)
    [split] = source.planner().plan(None, 0.0).splits
    assert keys_of(source, ({name: value for name, value in split.items() if name != "mark"},)) == [1]


def test_error_that_stops_the_flow_names_the_command_that_leads_out(tmp_path: Path, write: Write) -> None:
    path = write("in/a.json", '{"k": 1}\n')
    source = source_of(tmp_path).told((), SetAsideFiles("state/first"), False)
    [split] = source.planner().plan(None, 0.0).splits
    path.unlink()
    expected = (
        rf"planned but is gone; put it back .*anabranch state skip {path} state/first; .*on_bad_file=\"quarantine\""
    )
    with pytest.raises(SourceError, match=expected):
        list(source.read(split))


@pytest.mark.parametrize("format", FORMATS)
def test_vanished_file_is_reported_for_quarantine(tmp_path: Path, format: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    write_frame(pl.DataFrame({"k": [1]}), format, path)
    source = source_of(tmp_path, format, on_bad_file="quarantine")
    [split] = source.planner().plan(None, 0.0).splits
    path.unlink()
    assert bad_file_of(source, split) == (str(path), "was planned but is gone")


def test_directory_that_is_gone_makes_no_file_a_bad_one(tmp_path: Path, write: Write) -> None:
    write("in/a.json", '{"k": 1}\n')
    source = source_of(tmp_path, on_bad_file="quarantine")
    [split] = source.planner().plan(None, 0.0).splits
    (tmp_path / "in").rename(tmp_path / "away")
    with pytest.raises(SourceError, match=r"its directory .*/in is gone; bring it back"):
        list(source.read(split))


@pytest.mark.parametrize("format", ["csv", "parquet", "arrow"])
def test_file_with_other_columns_is_reported_for_quarantine(tmp_path: Path, format: str) -> None:
    (tmp_path / "in").mkdir()
    write_frame(pl.DataFrame({"other": [1]}), format, tmp_path / "in" / "a")
    source = source_of(tmp_path, format, on_bad_file="quarantine")
    [split] = source.planner().plan(None, 0.0).splits
    found = bad_file_of(source, split)
    assert found is not None
    assert found[1].startswith("has no column 'k'")


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_file_with_damaged_rows_is_reported_for_quarantine(tmp_path: Path, format: str) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    frame = pl.DataFrame({"k": range(2000)})
    if format == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_ipc(path, compression="zstd")
    data = bytearray(path.read_bytes())
    # Neither has checksums: what is damaged here is the head of a page, or a compressed buffer.
    start = 4 if format == "parquet" else data.index(b"\x28\xb5\x2f\xfd")
    data[start : start + 36] = b"\xff" * 36
    path.write_bytes(data)
    source = source_of(tmp_path, format, on_bad_file="quarantine")
    [split] = source.planner().plan(None, 0.0).splits
    found = bad_file_of(source, split)
    assert found is not None
    assert found[1].startswith(f"cannot be read as {format}")


def test_half_read_file_that_is_gone_is_set_aside_by_the_planner(tmp_path: Path, write: Write) -> None:
    path = write("in/a.json", '{"k": 1}\n{"k": 2}\n{"k": 3}\n')
    write("in/b.json", '{"k": 4}\n')
    source = source_of(tmp_path, max_rows=1, on_bad_file="quarantine")
    position = source.planner().plan(None, 0.0).position
    path.unlink()
    planned = source.planner().plan(position, 1.0)
    assert planned.problems == (f"{path} is set aside, its rows are not read: was read in part and is gone",)
    outcomes = [outcome for split in planned.splits for outcome in source.read(split)]
    assert outcomes[0].rejected == (("file set aside: was read in part and is gone", str(path)),)
    assert keys_of(source, planned.splits) == [4]


def test_set_aside_file_is_passed_over_with_one_letter(tmp_path: Path, write: Write) -> None:
    path = write("in/a.json", '{"k": 1}\n')
    write("in/b.json", '{"k": 2}\n')
    set_aside = SetAsideFiles(str(tmp_path / "state"))
    set_aside.add(str(path), "it is odd")
    set_aside.add(str(path), "another reason")
    source = source_of(tmp_path).told((), set_aside, False)
    planner = source.planner()
    planner.bound()
    planned = planner.plan(None, 0.0)
    assert planned.problems == (f"{path} is set aside, its rows are not read: it is odd",)
    first, second = (list(source.read(split)) for split in planned.splits)
    assert first == [ReadOutcome(first[0].frame, (("file set aside: it is odd", str(path)),))]
    assert second[0].frame["k"].to_list() == [2]
    assert not planner.more(planned.position)


def test_rest_of_a_half_read_file_is_passed_over_once_it_is_set_aside(tmp_path: Path, write: Write) -> None:
    path = write("in/a.json", '{"k": 1}\n{"k": 2}\n{"k": 3}\n')
    set_aside = SetAsideFiles(str(tmp_path / "state"))
    source = source_of(tmp_path, max_rows=1).told((), set_aside, False)
    planner = source.planner()
    position = planner.plan(None, 0.0).position
    set_aside.add(str(path), "it is odd")
    planned = planner.plan(position, 1.0)
    assert keys_of(source, planned.splits) == []
    assert planner.plan(planned.position, 2.0).splits == ()


def test_oldest_file_that_is_set_aside_or_was_read_long_ago_does_not_keep_a_flow_from_starting(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    pl.DataFrame({"k": ["one"]}).write_parquet(path)
    os.utime(path, ns=(1, 1))
    pl.DataFrame({"k": [1]}).write_parquet(tmp_path / "in" / "b")
    source = source_of(tmp_path, "parquet")
    set_aside = SetAsideFiles(str(tmp_path / "state"))
    with pytest.raises(FlowError, match="has the column 'k' as String"):
        source.told((), set_aside, False).check()
    source.told((), set_aside, True).check()
    set_aside.add(str(path), "it is odd")
    source.told((), set_aside, False).check()


def test_quarantine_takes_one_odd_file_and_refuses_a_schema_that_fits_none(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        pl.DataFrame({"k": ["one"]}).write_parquet(tmp_path / "in" / f"{number}")
    source = source_of(tmp_path, "parquet", on_bad_file="quarantine")
    with pytest.raises(FlowError, match="has the column 'k' as String"):
        source.check()
    pl.DataFrame({"k": [1]}).write_parquet(tmp_path / "in" / "fitting")
    source.check()


def test_unknown_choice_names_the_alternatives(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="on_bad_file is 'skip'; use one of stop, quarantine"):
        source_of(tmp_path, on_bad_file="skip")


def test_source_outside_of_a_flow_passes_nothing_over(tmp_path: Path) -> None:
    assert replace(source_of(tmp_path)).bad_files.passed_over() == {}


@tries(40)
@given(place=st.integers(0, 200), flipped=st.booleans())
def test_damaged_record_of_a_set_aside_file_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: int, flipped: bool
) -> None:
    folder = tmp_path_factory.mktemp("state")
    set_aside = SetAsideFiles(str(folder))
    set_aside.add("in/odd.parquet", "it is odd")
    [record] = (folder / "set-aside").iterdir()
    content = bytearray(record.read_bytes())
    place %= len(content)
    if flipped:
        content[place] ^= 1
    record.write_bytes(content if flipped else content[:place])
    with pytest.raises(StateDamaged, match=record.name):
        set_aside.load()
