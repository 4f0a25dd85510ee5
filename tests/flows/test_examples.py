"""The applications in ``examples/``: each run as ``anabranch run`` would, its answers against a plain oracle."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.model import BatchProgress
from anabranch.query import load_flow
from flows.running import FlowBench

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = os.environ.get("ANABRANCH_EXAMPLE_DATA")
TWO_HOURS = timedelta(hours=2)
QUARTER = timedelta(minutes=15)


@pytest.fixture(autouse=True)
def _writes_here_and_makes_up_its_input(bench: FlowBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_EXAMPLE_FOLDER", str(bench.folder))
    monkeypatch.delenv("ANABRANCH_EXAMPLE_DATA", raising=False)


def run_example(bench: FlowBench, name: str) -> list[BatchProgress]:
    flow = load_flow(EXAMPLES / f"{name}.py", flow_class=ab.Flow).graph
    progress = bench.run_flow(flow, []).progress
    assert sum(batch.dead_rows for batch in progress) == 0
    return progress


def read_input(folder: Path) -> pl.DataFrame:
    """Return the rows in the order they arrive, with the number of their file."""
    files = [pl.read_ndjson(path) for path in sorted(folder.glob("*.json"))]
    whole = pl.concat(frame.with_columns(pl.lit(number).alias("file")) for number, frame in enumerate(files))
    return whole.with_columns(pl.col("ts").str.to_datetime(time_unit="ms"))


def read_results(folder: Path) -> pl.DataFrame:
    """Return what was written, with the number of the batch that wrote it."""
    parts = [(int(path.name.split("-")[1]), pl.read_parquet(path)) for path in sorted(folder.glob("part-*.parquet"))]
    return pl.concat(frame.with_columns(pl.lit(batch).alias("batch")) for batch, frame in parts)


def test_rides_are_alerted_once_two_hours_after_their_start_and_before_they_end(bench: FlowBench) -> None:
    progress = run_example(bench, "long_ride")
    events = read_input(bench.folder / "events")
    alerts = read_results(bench.folder / "alerts")

    rides = events.pivot("event", index="ride", values=["ts", "file"])
    due = pl.col("ts_START") + TWO_HOURS
    long = rides.filter(pl.col("ts_END").is_null() | (pl.col("ts_END") >= due))
    expected = long.select("ride", started="ts_START", alerted=due)
    assert long["ts_END"].null_count() > 50
    assert_frame_equal(alerts.drop("batch"), expected, check_row_order=False)

    # Some START came a batch after its END, and was late; none of those rides was long.
    assert rides.filter(pl.col("file_START") > pl.col("file_END")).height == sum(p.late_rows for p in progress) > 0

    # A file is a batch, and half an hour: by the next file but one, the watermark has passed what was due before.
    batch_of_file = [batch.batch for batch in progress if batch.rows_in]
    assert len(batch_of_file) == events["file"].n_unique()
    last_file = len(batch_of_file) - 1
    ended = long.filter((pl.col("ts_END") > due + timedelta(minutes=90)) & (pl.col("file_END") < last_file))
    known = ended.join(alerts, on="ride").select(
        "batch", ended=pl.col("file_END").replace_strict(dict(enumerate(batch_of_file)))
    )
    assert known.height > 30
    assert (known["batch"] < known["ended"]).all()


def find_low(readings: pl.DataFrame, low_volts: float) -> pl.DataFrame:
    """Return the windows with low voltage, by plain Polars."""
    return (
        readings.group_by("sensor", pl.col("ts").dt.cast_time_unit("us").dt.truncate("15m").alias("window_start"))
        .agg(
            pl.len().cast(pl.Int64).alias("readings"),
            (pl.col("volts") < low_volts).mean().alias("low_share"),
            pl.col("volts").min().alias("lowest"),
        )
        .filter(pl.col("low_share") > 0)
    )


def last_results(folder: Path) -> pl.DataFrame:
    """Return of each window the result with the most readings."""
    results = read_results(folder)
    finals = results.filter(pl.col("emission") == "final").select("sensor", "window_start")
    assert finals.n_unique() == finals.height
    last = results.sort("readings").group_by("sensor", "window_start").last()
    return last.select("sensor", "window_start", "readings", "low_share", "lowest")


def count_late(readings: pl.DataFrame, delay: timedelta) -> int:
    """Return how many rows come after their own sensor has passed their window, file by file."""
    latest: dict[int, Any] = {}
    late = 0
    for _, batch in readings.group_by("file", maintain_order=True):
        seen = dict(latest)
        for sensor, ts in batch.select("sensor", "ts").rows():
            window_end = ts - timedelta(minutes=ts.minute % 15, seconds=ts.second) + QUARTER
            late += sensor in latest and window_end <= latest[sensor] - delay
            seen[sensor] = max(ts, seen.get(sensor, ts))
        latest = seen
    return late


def test_low_voltage_is_right_in_the_end_whatever_the_sensors_clocks_say(bench: FlowBench) -> None:
    progress = run_example(bench, "low_voltage")
    readings = read_input(bench.folder / "readings")
    expected = find_low(readings, 207)
    assert expected.height > 50
    assert_frame_equal(last_results(bench.folder / "windows"), expected, check_row_order=False)

    emissions = set(read_results(bench.folder / "windows")["emission"])
    late, slot_late, updated = (
        sum(getattr(batch, count) for batch in progress) for count in ("late_rows", "slot_late_rows", "updated_rows")
    )
    assert emissions == {"final", "update"}
    assert late == updated == count_late(readings, timedelta(minutes=2)) > 0
    assert slot_late > 5 * late, "one clock for many sensors makes the slow ones late"


@pytest.mark.skipif(
    DATA is None or not Path(DATA).exists(),
    reason="needs a Parquet file with the columns ts and voltage: ANABRANCH_EXAMPLE_DATA=household_voltage.parquet",
)
def test_low_voltage_of_a_household_is_found_day_by_day(bench: FlowBench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DATA is not None
    monkeypatch.setenv("ANABRANCH_EXAMPLE_DATA", DATA)
    progress = run_example(bench, "low_voltage")
    readings = pl.read_parquet(DATA).select("ts", sensor=pl.col("ts").dt.date(), volts="voltage")
    assert sum(batch.rows_in for batch in progress) == readings.height
    expected = find_low(readings, 228)
    assert expected.height > 0
    assert_frame_equal(last_results(bench.folder / "windows"), expected, check_row_order=False)


def follow_levels(readings: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Return the changes of level of one sensor, whose readings are in the order of their time."""
    names = ["normal", "notice", "warning", "alarm"]
    limits = [(0, 0), (5, 0.8), (10, 1.6), (20, 3.2)]
    times, heights = readings["ts"].to_list(), readings["mm"].to_list()
    changes = []
    level = 0
    for ts, mm in zip(times, heights, strict=True):
        drift = mm - heights[0]
        earlier = bisect_right(times, ts - timedelta(hours=1)) - 1
        rate = (mm - heights[earlier]) / ((ts - times[earlier]) / timedelta(hours=1)) if earlier >= 0 else 0.0
        was = level
        while level > 0 and drift < 0.8 * limits[level][0] and rate < 0.8 * limits[level][1]:
            level -= 1
        while level < 3 and any(drift >= most_mm or rate >= most_rate for most_mm, most_rate in limits[level + 1 :]):
            level += 1
        if level != was:
            changes.append((ts, names[was], names[level], drift, rate))
    return changes


def test_levels_of_a_vault_change_as_its_readings_say_in_the_order_of_their_time(bench: FlowBench) -> None:
    progress = run_example(bench, "vault_monitoring")
    assert sum(batch.late_rows for batch in progress) == 0
    readings = read_input(bench.folder / "readings").sort("sensor", "ts")
    expected = {sensor: follow_levels(rows) for (sensor,), rows in readings.group_by("sensor", maintain_order=True)}
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for sensor, *change in read_results(bench.folder / "levels").drop("batch").sort("ts").rows():
        found[sensor].append(tuple(change))
    assert found == {sensor: changes for sensor, changes in expected.items() if changes}
    levels = [(was, level) for changes in expected.values() for _, was, level, *_ in changes]
    assert {("normal", "notice"), ("notice", "normal"), ("warning", "alarm")} <= set(levels)
