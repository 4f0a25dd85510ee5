"""Folders of files as a source: which files, in which order, cut how, and what happens when they change."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.connectors import files
from anabranch.connectors.filesystem.cuts import SPLIT_BYTES, measure_file
from anabranch.connectors.filesystem.listing import FileEntry
from anabranch.connectors.filesystem.source import FileSource
from anabranch.errors import SourceError
from anabranch.model import Source

from .conftest import Drained, drain_source, write_frame

Write = Callable[..., Path]
Drain = Callable[[Source], Drained]
SCHEMA = {"k": pl.Int64}


def json_rows(*keys: int) -> str:
    return "".join(f'{{"k":{key}}}\n' for key in keys)


def keys_of(source: FileSource) -> list[int]:
    return drain_source(source).frame["k"].to_list()


def plan_keys(
    source: FileSource, position: dict[str, Any] | None, now_seconds: float
) -> tuple[list[int], dict[str, Any], tuple[str, ...]]:
    planned = source.planner().plan(position, now_seconds)
    keys = [key for split in planned.splits for outcome in source.read(split) for key in outcome.frame["k"]]
    return keys, planned.position, planned.problems


def test_files_are_read_oldest_first_and_equal_ages_by_name(tmp_path: Path, write: Write) -> None:
    write("b.json", json_rows(3), mtime_ns=20)
    write("c.json", json_rows(1), mtime_ns=10)
    write("a.json", json_rows(2), mtime_ns=20)
    assert keys_of(files(tmp_path, schema=SCHEMA)) == [1, 2, 3]


def test_hidden_temporary_and_empty_files_are_left_alone(tmp_path: Path, write: Write) -> None:
    for name in (".a.json", "_b.json", "c.json.tmp", "d.json.inprogress"):
        write(name, json_rows(9))
    write("empty.json", "")
    write("e.json", json_rows(1))
    assert keys_of(files(tmp_path, schema=SCHEMA)) == [1]


def test_pattern_and_recursion_choose_files(tmp_path: Path, write: Write) -> None:
    write("a.json", json_rows(1))
    write("a.txt", json_rows(2))
    write("day/b.json", json_rows(3))
    write("_hidden/c.json", json_rows(4))
    assert keys_of(files(tmp_path, schema=SCHEMA, pattern="*.json")) == [1]
    assert keys_of(files(tmp_path, schema=SCHEMA, pattern="*.json", recursive=True)) == [1, 3]


def test_folder_of_a_file_is_the_partition_of_its_splits(tmp_path: Path, write: Write) -> None:
    for name in ("flat.json", "north/a.json", "north/b.json", "south/deep/c.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(name, '{"k": 1}\n')
    source = files(tmp_path, schema={"k": int}, recursive=True)
    found = {Path(split["path"]).name: split.get("partition") for split in source.planner().plan(None, 0.0).splits}
    assert found == {"flat.json": None, "a.json": "north", "b.json": "north", "c.json": "south/deep"}


@pytest.mark.parametrize("format", ["json", "csv", "parquet", "arrow"])
@pytest.mark.parametrize("max_rows", [None, 1, 300])
def test_every_format_gives_all_rows_in_order(tmp_path: Path, drain: Drain, format: str, max_rows: int | None) -> None:
    rows = 20 if max_rows == 1 else 700
    frame = pl.DataFrame({"k": range(rows), "name": [f"n{row % 7}" for row in range(rows)]})
    write_frame(frame, format, tmp_path / f"a.{format}")
    drained = drain(files(tmp_path, format=format, schema=dict(frame.schema), max_rows=max_rows))  # type: ignore[arg-type]
    assert drained.frame.equals(frame)
    assert drained.rejected == []


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_max_rows_is_exact_where_files_tell_their_rows(tmp_path: Path, drain: Drain, format: str) -> None:
    for name in ("a", "b"):
        frame = pl.DataFrame({"k": range(250)})
        write_frame(frame, format, tmp_path / name)
    drained = drain(files(tmp_path, format=format, schema=SCHEMA, max_rows=100))  # type: ignore[arg-type]
    assert drained.rows_per_batch == [100] * 5


def test_parquet_is_cut_between_row_groups(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    frame = pl.DataFrame({"k": chance.integers(0, 2**62, 6_000_000)})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=700_000, compression="uncompressed")
    groups = [*range(0, 6_000_000, 700_000), 6_000_000]
    planned = files(tmp_path, format="parquet", schema=SCHEMA).planner().plan(None, 0.0)
    assert len(planned.splits) > 1
    assert all(split["from"] in groups and split["to"] in groups for split in planned.splits)
    limited = files(tmp_path, format="parquet", schema=SCHEMA, max_bytes=20_000_000).planner().plan(None, 0.0)
    assert [(split["from"], split["to"]) for split in limited.splits] == [(0, 2_100_000)]


def test_max_rows_is_an_estimate_for_text(tmp_path: Path, write: Write, drain: Drain) -> None:
    write("a.json", json_rows(*range(1000, 9000)))
    drained = drain(files(tmp_path, schema=SCHEMA, max_rows=1000))
    assert all(abs(rows - 1000) <= 1 for rows in drained.rows_per_batch[:-1])
    assert drained.frame["k"].to_list() == list(range(1000, 9000))


def test_max_files_and_max_bytes_limit_a_batch(tmp_path: Path, write: Write, drain: Drain) -> None:
    for number in range(5):
        write(f"{number}.json", json_rows(number))
    assert drain(files(tmp_path, schema=SCHEMA, max_files=2)).rows_per_batch == [2, 2, 1]
    assert drain(files(tmp_path, schema=SCHEMA, max_bytes=8)).rows_per_batch == [1, 1, 1, 1, 1]


def test_large_text_file_is_cut_into_ranges(tmp_path: Path, write: Write) -> None:
    write("a.json", (json_rows(*range(1000)) * 4000).encode())
    source = files(tmp_path, schema=SCHEMA)
    planned = source.planner().plan(None, 0.0)
    assert len(planned.splits) > 1
    assert all(split["bytes"] <= 2 * SPLIT_BYTES for split in planned.splits)
    rows = sum(outcome.frame.height for split in planned.splits for outcome in source.read(split))
    assert rows == 4_000_000


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_files_are_read_whole(tmp_path: Path, write: Write, drain: Drain, ending: str) -> None:
    text = json_rows(*range(5000)).encode()
    data = gzip.compress(text) if ending == "gz" else pa.compress(text, "zstd", asbytes=True)
    write(f"a.json.{ending}", data)
    write("b.json", json_rows(-1))
    drained = drain(files(tmp_path, schema=SCHEMA, max_rows=10))
    assert drained.frame["k"].to_list() == [*range(5000), -1]
    assert drained.rows_per_batch == [5000, 1]


def test_compressed_csv_with_header_is_read(tmp_path: Path, write: Write, drain: Drain) -> None:
    write("a.csv.gz", gzip.compress(b"x,k\na,1\nb,2\n"))
    assert drain(files(tmp_path, format="csv", schema=SCHEMA)).frame["k"].to_list() == [1, 2]


def test_damaged_compressed_file_gives_its_rows_and_one_rejection(tmp_path: Path, write: Write, drain: Drain) -> None:
    write("a.json.gz", gzip.compress(json_rows(*range(100)).encode())[:-8])
    drained = drain(files(tmp_path, schema=SCHEMA))
    assert drained.frame["k"].to_list() == list(range(100))
    assert len(drained.rejected) == 1
    assert "a.json.gz: gzip data ends early" in drained.rejected[0][0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.lists(st.integers(1, 120), min_size=1, max_size=4), header=st.booleans())
def test_csv_is_the_same_however_batches_cut_it(tmp_path: Path, limits: list[int], header: bool) -> None:
    text = ("k,s\n" if header else "") + "".join(f'{row},"v,{row}"\r\n' for row in range(40))
    (tmp_path / "a.csv").write_text(text, newline="")
    found = []
    position = None
    for step in range(1000):
        source = files(
            tmp_path,
            format="csv",
            schema={"k": int, "s": str},
            header=header,
            max_bytes=limits[step % len(limits)],
        )
        planned = source.planner().plan(position, float(step))
        if not planned.splits:
            break
        position = planned.position
        found += [row for split in planned.splits for outcome in source.read(split) for row in outcome.frame.rows()]
    assert found == [(row, f"v,{row}") for row in range(40)]


def test_new_files_are_picked_up_and_old_ones_not_read_again(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA)
    write("a.json", json_rows(1))
    keys, position, _ = plan_keys(source, None, 0.0)
    assert keys == [1]
    assert plan_keys(source, position, 1.0)[0] == []
    write("b.json", json_rows(2))
    keys, position, _ = plan_keys(source, position, 2.0)
    assert keys == [2]


def test_old_file_that_appears_late_is_still_read(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA)
    write("b.json", json_rows(2), mtime_ns=2_000_000_000)
    _, position, _ = plan_keys(source, None, 0.0)
    write("a.json", json_rows(1), mtime_ns=1)
    assert plan_keys(source, position, 1.0)[0] == [1]


def test_directory_is_listed_at_most_once_a_poll(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA, poll_seconds=10.0)
    planner = source.planner()
    assert planner.plan(None, 100.0).splits == ()
    write("a.json", json_rows(1))
    assert planner.plan(None, 105.0).splits == ()
    assert len(planner.plan(None, 110.0).splits) == 1
    write("b.json", json_rows(2))
    position = planner.plan(None, 111.0).position
    assert len(planner.plan(position, 50.0).splits) == 1, "a clock that was set back must not silence the source"


def test_files_that_come_after_the_bound_are_left_for_the_next_run(tmp_path: Path, write: Write) -> None:
    write("a.json", json_rows(1))
    planner = files(tmp_path, schema=SCHEMA).planner()
    planner.bound()
    write("b.json", json_rows(2))
    planned = planner.plan(None, 0.0)
    assert len(planned.splits) == 1
    assert not planner.more(planned.position)


def test_position_stays_small_as_files_come_and_go(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA)
    position = None
    sizes = []
    for day in range(20):
        for path in tmp_path.iterdir():
            path.unlink()
        for number in range(10):
            write(f"{day}-{number}.json", json_rows(number))
        _, position, _ = plan_keys(source, position, day * 86_400.0 + 1)
        sizes.append(len(position["seen"]))
    assert max(sizes) <= 4 * 10 * 16 * 4 // 3
    assert sizes[-1] == sizes[-5]


def test_directory_that_is_away_for_an_hour_is_not_read_again(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path / "in", schema=SCHEMA)
    write("in/a.json", json_rows(1))
    _, position, _ = plan_keys(source, None, 0.0)
    os.rename(tmp_path / "in" / "a.json", tmp_path / "away.json")
    write("in/b.json", json_rows(2))
    _, position, _ = plan_keys(source, position, 1.0)
    os.rename(tmp_path / "away.json", tmp_path / "in" / "a.json")
    assert plan_keys(source, position, 3600.0)[0] == []


def test_file_that_grew_after_it_was_planned_is_read_as_planned_and_reported_once(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA)
    path = write("a.json", json_rows(1))
    planned = source.planner().plan(None, 0.0)
    with path.open("a") as file:
        file.write(json_rows(2))
    [split] = planned.splits
    assert [key for outcome in source.read(split) for key in outcome.frame["k"]] == [1]
    write("b.json", json_rows(3))
    keys, position, problems = plan_keys(source, planned.position, 1.0)
    assert keys == [3]
    assert [problem.partition(" ")[0] for problem in problems] == [str(path)]
    assert "changed after it was planned (it has 16 bytes now)" in problems[0]
    assert plan_keys(source, position, 2.0)[2] == ()


def test_problem_is_told_again_until_a_position_that_knows_of_it_comes_back(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA)
    write("a.json", json_rows(1))
    planner = source.planner()
    position = planner.plan(None, 0.0).position
    write("a.json", json_rows(9))
    told = planner.plan(position, 1.0)
    assert len(told.problems) == 1
    assert len(planner.plan(position, 2.0).problems) == 1
    assert planner.plan(told.position, 3.0).problems == ()


def test_file_that_vanished_between_plan_and_read_stops_the_flow(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA)
    path = write("a.json", json_rows(1))
    [split] = source.planner().plan(None, 0.0).splits
    path.unlink()
    with pytest.raises(SourceError, match=r"a\.json was planned but is gone"):
        list(source.read(split))


def test_file_that_vanished_half_read_stops_the_flow(tmp_path: Path, write: Write) -> None:
    source = files(tmp_path, schema=SCHEMA, max_rows=1)
    path = write("a.json", json_rows(1, 2, 3))
    position = source.planner().plan(None, 0.0).position
    path.unlink()
    with pytest.raises(SourceError, match=r"a\.json was read in part and is gone"):
        source.planner().plan(position, 1.0)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_file_that_is_not_complete_yet_is_told_of_and_read_when_it_is(
    tmp_path: Path, write: Write, format: str
) -> None:
    frame = pl.DataFrame({"k": [1, 2]})
    whole = tmp_path / "whole"
    write_frame(frame, format, whole)
    data = whole.read_bytes()
    whole.unlink()
    source = files(tmp_path, format=format, schema=SCHEMA)  # type: ignore[arg-type]
    write("a", data[:-20])
    planner = source.planner()
    planned = planner.plan(None, 0.0)
    assert planned.splits == ()
    assert f"is no complete {format} file" in planned.problems[0]
    assert planner.plan(planned.position, 1.0).problems == ()
    assert not planner.more(planned.position)
    write("a", data)
    keys, _, _ = plan_keys(source, planned.position, 2.0)
    assert keys == [1, 2]


def test_file_without_rows_does_not_keep_a_bounded_run_from_ending(tmp_path: Path) -> None:
    pl.DataFrame(schema=SCHEMA).write_parquet(tmp_path / "empty.parquet")
    planner = files(tmp_path, format="parquet", schema=SCHEMA).planner()
    planner.bound()
    planned = planner.plan(None, 0.0)
    assert planned.splits == ()
    assert not planner.more(planned.position)


def test_rewritten_parquet_file_is_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"k": range(10)}).write_parquet(path)
    source = files(tmp_path, format="parquet", schema=SCHEMA)
    [split] = source.planner().plan(None, 0.0).splits
    pl.DataFrame({"k": range(5000)}).write_parquet(path)
    with pytest.raises(SourceError, match="was replaced after it was planned"):
        list(source.read(split))


@pytest.mark.parametrize("format", ["json", "parquet", "arrow"])
def test_disk_that_fails_does_not_make_a_file_unreadable_for_good(format: str) -> None:
    # Address 0 of a process is never mapped: reading there fails as a broken disk does.
    entry = FileEntry(0, "mem", "/proc/self/mem", 100)
    with pytest.raises(OSError, match="Input/output error"):
        measure_file(entry, format)
