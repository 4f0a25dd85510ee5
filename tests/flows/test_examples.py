"""The applications in ``examples/``: each run as ``anabranch run`` would, its answers against a plain oracle."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter, defaultdict
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


def test_words_are_counted_as_they_are_split_by_hand(bench: FlowBench) -> None:
    run_example(bench, "word_count")
    written = "".join(path.read_text() for path in (bench.folder / "sentences").glob("*.json"))
    expected = Counter(re.findall(r"word\d+", written.lower()))
    told = read_results(bench.folder / "counts").sort("batch")
    # Counts only rise, and the last one told of a word holds.
    assert told.group_by("word").agg(pl.col("count").diff().min().fill_null(1) > 0)["count"].all()
    last = dict(told.group_by("word").agg(pl.col("count").last()).rows())
    assert last == expected and len(expected) > 4_000


def test_each_message_arrives_once_by_its_own_way_through_every_level(bench: FlowBench) -> None:
    progress = run_example(bench, "sol")
    arrived = read_results(bench.folder / "arrived").sort("id")
    assert arrived["id"].to_list() == list(range(2_400)) and set(arrived["bytes"]) == {2_000}
    assert arrived["way"].to_list() == [[(3 * id + 1) % 1_000, (5 * id + 2) % 1_000] for id in range(2_400)]
    # Two exchanges, in which half of the messages or more go to another slot than they were in.
    assert sum(batch.exchanged_bytes for batch in progress) > 2 * 2_400 * 2_000 / 4


def test_sorters_tell_their_newest_messages_in_order_after_every_step_in_which_some_came(bench: FlowBench) -> None:
    run_example(bench, "rolling_sort")
    messages = read_input(bench.folder / "messages").sort("ts")
    steps = messages.group_by("sorter", pl.col("ts").dt.truncate("10s") + timedelta(seconds=10))
    expected = []
    for (sorter, emitted), _ in steps:
        known = messages.filter((pl.col("sorter") == sorter) & (pl.col("ts") < emitted))["message"]
        expected += [(sorter, emitted, rank, text) for rank, text in enumerate(sorted(known.tail(200).to_list()))]
    told = read_results(bench.folder / "chunks").drop("batch")
    assert sorted(told.rows()) == sorted(expected)
    assert told["rank"].max() == 199


def test_words_of_the_last_150_seconds_are_counted_every_30_seconds(bench: FlowBench) -> None:
    progress = run_example(bench, "rolling_count")
    assert sum(batch.late_rows for batch in progress) == 0
    spoken = read_input(bench.folder / "sentences")
    words = spoken.select("ts", word=pl.col("sentence").str.split(" ")).explode("word")
    # Each word is in the window that begins with its half minute, and in the four before.
    begun = [pl.col("ts").dt.truncate("30s") - timedelta(seconds=30 * before) for before in range(5)]
    counted = words.select("word", window_start=pl.concat_list(begun)).explode("window_start")
    expected = counted.group_by("word", "window_start").agg(count=pl.len())
    told = read_results(bench.folder / "counts").select("word", "window_start", "count")
    assert_frame_equal(told, expected, check_row_order=False, check_dtypes=False)


def find_alerts(city: Path) -> pl.DataFrame:
    """Return what is wrong with the plates of a city, by joins over all that was seen."""
    seen = pl.concat(pl.read_ndjson(path) for path in sorted((city / "sightings").glob("*.json")))
    sure = seen.filter(pl.col("sureness") > 0.8).with_columns(pl.col("ts").str.to_datetime(time_unit="ms"))
    known = sure.join(pl.read_parquet(city / "register.parquet"), on="plate", how="left")
    genuine = (pl.col("make") == pl.col("registered_make")) & (pl.col("colour") == pl.col("registered_colour"))
    wanted = sure.join(pl.read_parquet(city / "wanted.parquet"), on="plate")
    before = pl.col("ts", "camera", "x_km", "y_km").shift().over("plate", order_by="ts").name.prefix("before_")
    pairs = sure.with_columns(before).filter(pl.col("before_camera") != pl.col("camera"))
    km = ((pl.col("x_km") - pl.col("before_x_km")) ** 2 + (pl.col("y_km") - pl.col("before_y_km")) ** 2).sqrt()
    seconds = (pl.col("ts") - pl.col("before_ts")).dt.total_milliseconds() / 1_000
    kmh = pairs.with_columns(kmh=km / seconds * 3_600)
    found = {
        "fake": known.filter(~genuine.fill_null(False)),
        "blacklist": wanted,
        "cloned": kmh.filter(pl.col("kmh") > 250),
        "speeding": kmh.filter(pl.col("kmh").is_between(66, 250, closed="right")),
    }
    return pl.concat(rows.select("plate", "ts", "camera", alert=pl.lit(alert)) for alert, rows in found.items())


def test_cameras_tell_of_fake_wanted_cloned_and_fast_cars_within_three_seconds(bench: FlowBench) -> None:
    progress = run_example(bench, "traffic_cameras")
    assert len(pl.read_ndjson(bench.folder / "city" / "sightings" / "second-010.json").columns) == 22
    expected = find_alerts(bench.folder / "city")
    told = read_results(bench.folder / "alerts")
    columns = ["plate", "ts", "camera", "alert"]
    assert_frame_equal(told.select(columns), expected, check_row_order=False, check_dtypes=False)
    assert expected["alert"].value_counts()["count"].min() >= 5 and expected["alert"].n_unique() == 4

    # A file is what arrives in a second, and is read when the second is over; a row is answered when its batch is.
    serial_to_second = read_input(bench.folder / "city" / "sightings").select("plate", "ts", "camera", "file")
    answered = told.join(serial_to_second, on=["plate", "ts", "camera"], how="inner").filter(
        pl.col("batch") < progress[-1].batch
    )
    seconds_waited = (answered["batch"] - answered["file"] + 1).max()
    assert isinstance(seconds_waited, int)
    assert seconds_waited + max(batch.batch_seconds for batch in progress) < 3
