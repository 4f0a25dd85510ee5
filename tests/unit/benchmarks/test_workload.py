"""The workload: equal seeds give equal bytes, and no row can be late."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from benchmarks.shared.mixed_json import write_events
from benchmarks.shared.workload import (
    FORMATS,
    SCHEMA,
    WATERMARK_DELAY_MS,
    Workload,
    WorkloadError,
    format_writer,
    list_files,
    make_rows,
    plan_workload,
    read_through,
    write_atomically,
    write_lanes,
    write_workload,
)

SMALL = plan_workload(20_000, keys=500, seed=3)


def _read_bytes(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in list_files(folder)]


def test_rows_are_rounded_up_to_whole_files() -> None:
    workload = plan_workload(1_000_001)
    assert workload.rows >= 1_000_001
    assert workload.rows == workload.file_count * workload.rows_per_file


def test_large_workload_has_files_of_half_a_million_rows() -> None:
    assert plan_workload(12_000_000) == Workload(12_000_000, 500_000, 100_000, 7)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(WorkloadError, match="smallest run"):
        plan_workload(3)


def test_no_keys_are_refused() -> None:
    with pytest.raises(WorkloadError, match="at least one key"):
        plan_workload(1_000, keys=0)


@pytest.mark.parametrize("file_format", FORMATS)
def test_equal_seeds_give_equal_bytes(tmp_path: Path, file_format: str) -> None:
    first = write_workload(SMALL, file_format, tmp_path / "a")
    second = write_workload(SMALL, file_format, tmp_path / "b")
    assert _read_bytes(first) == _read_bytes(second)
    assert len(_read_bytes(first)) == SMALL.file_count


def test_other_seed_gives_other_rows() -> None:
    other = plan_workload(20_000, keys=500, seed=4)
    assert not make_rows(SMALL, 0).equals(make_rows(other, 0))


def test_longer_workload_begins_with_the_shorter_one(tmp_path: Path) -> None:
    longer = Workload(SMALL.rows * 2, SMALL.rows_per_file, SMALL.keys, SMALL.seed)
    short_files = _read_bytes(write_workload(SMALL, "csv", tmp_path))
    long_files = _read_bytes(write_workload(longer, "csv", tmp_path))
    assert long_files[: len(short_files)] == short_files


def test_all_formats_hold_the_same_rows(tmp_path: Path) -> None:
    readers = {
        "json": lambda path: pl.read_ndjson(path, schema=SCHEMA),
        "csv": lambda path: pl.read_csv(path, schema=SCHEMA),
        "parquet": pl.read_parquet,
    }
    for file_format, read in readers.items():
        path = list_files(write_workload(SMALL, file_format, tmp_path))[2]
        assert read(path).equals(make_rows(SMALL, 2))


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_json_as_it_comes_holds_the_same_rows_whatever_the_seed(seed: int) -> None:
    rows = make_rows(SMALL, 2)
    events = [json.loads(line) for line in write_events(rows, seed, 2).splitlines()]
    assert [event["reading"]["value"] for event in events] == rows.get_column("value").to_list()
    assert [event["ts"] for event in events] == rows.get_column("ts").to_list()
    # A sensor has one name, however it is written, and no other sensor has it.
    names = {(event["sensor"], sensor) for event, sensor in zip(events, rows.get_column("sensor"), strict=True)}
    assert len(names) == len({name for name, _ in names}) == len({sensor for _, sensor in names})


def test_json_as_it_comes_is_nested_optional_reordered_escaped_and_not_ascii() -> None:
    text = write_events(make_rows(SMALL, 0), 7, 0)
    lines = text.splitlines()
    layouts = {tuple(json.loads(line)) for line in lines}
    assert len(layouts) > 20
    assert len({frozenset(layout) for layout in layouts}) == 8
    assert {b'\\"', b"\\u00e9", "é".encode(), b'": {', b'":{', b"null"} <= {
        part for part in (b'\\"', b"\\u00e9", "é".encode(), b'": {', b'":{', b"null") if part in text
    }
    assert 150 < len(text) / len(lines) < 190
    assert text != write_events(make_rows(SMALL, 0), 8, 0)


def test_no_row_is_late_when_files_are_read_in_order() -> None:
    rows = pl.concat([make_rows(SMALL, index) for index in range(SMALL.file_count)])
    lateness_ms = rows.select((pl.col("ts").cum_max() - pl.col("ts")).max()).item()
    assert 0 < lateness_ms < WATERMARK_DELAY_MS


def test_values_are_quarters_so_that_sums_are_exact() -> None:
    values = make_rows(SMALL, 1).get_column("value") * 4
    assert (values == values.floor()).all()


def test_keys_stay_in_bounds_and_a_few_are_hot() -> None:
    sensors = make_rows(SMALL, 0).get_column("sensor")
    assert sensors.min() >= 0
    assert sensors.max() < SMALL.keys
    counts = sensors.value_counts().get_column("count")
    assert counts.max() > 20 * counts.median()


def test_cached_files_are_not_written_again(tmp_path: Path) -> None:
    folder = write_workload(SMALL, "json", tmp_path)
    before = [path.stat().st_ino for path in list_files(folder)]
    again = write_workload(SMALL, "json", tmp_path)
    assert [path.stat().st_ino for path in list_files(again)] == before


def test_files_are_dated_in_the_order_of_their_event_times(tmp_path: Path) -> None:
    times = [path.stat().st_mtime for path in list_files(write_workload(SMALL, "json", tmp_path))]
    assert times == sorted(set(times))


def test_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def write_half(path: Path) -> None:
        path.write_text("half")
        raise OSError

    with pytest.raises(OSError):
        write_atomically(tmp_path / "file", write_half)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_lanes_hold_the_lines_of_all_files_without_headers(tmp_path: Path, file_format: str) -> None:
    folder = write_workload(SMALL, file_format, tmp_path)
    lanes = write_lanes(folder, 2)
    found = [line for path in sorted(lanes.iterdir()) for line in path.read_text().splitlines()]
    wanted = [line for path in list_files(folder) for line in path.read_text().splitlines() if line[:6] != "sensor"]
    assert sorted(found) == sorted(wanted)
    assert len(found) == SMALL.rows


def test_every_lane_rises_in_event_time(tmp_path: Path) -> None:
    for path in write_lanes(write_workload(SMALL, "json", tmp_path), 2).iterdir():
        ts = pl.read_ndjson(path, schema=SCHEMA).get_column("ts")
        assert (ts.cum_max() - ts).max() < WATERMARK_DELAY_MS


def test_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="json, csv, parquet"):
        format_writer("avro")


def test_reading_through_counts_all_bytes(tmp_path: Path) -> None:
    folder = write_workload(SMALL, "csv", tmp_path)
    assert read_through(folder) == sum(path.stat().st_size for path in list_files(folder))
