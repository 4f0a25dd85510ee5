"""Sources that disagree about time, fall silent or have a wrong clock do each other no harm."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from flows.running import SCHEMA, START, FlowBench, frames_of, reading

SIXTY_DAYS = timedelta(days=60)


def count_windows(source: Any, **clock: Any) -> tuple[ab.Flow, Any, Any]:
    """Return a flow that counts rows in windows of 10 s, its sink, and its dead letters."""
    flow, sink, dead = ab.Flow("test"), ab.to_memory(), ab.to_memory()
    flow.dead_letter(dead)
    flow.read(source).key_by("key").watermark("ts", **clock).window("10s").agg(rows=ab.count()).write(sink)
    return flow, sink, dead


def counted(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """Return (key, second at which the window began, rows), sorted."""
    return sorted((row["key"], round((row["window_start"] - START).total_seconds()), row["rows"]) for row in rows)


def in_partitions(*batches: tuple[str, list[dict[str, Any]]]) -> Any:
    source = ab.memory(schema=SCHEMA)
    for partition, rows in batches:
        source.add(frames_of([rows])[0], partition)
    return source


@pytest.mark.parametrize(
    ("per", "late_rows", "of_south"), [("flow", 2, [(2, 0, 1)]), ("partition", 0, [(2, 0, 2), (2, 30, 1)])]
)
def test_slow_partition_is_waited_for_where_time_is_kept_per_partition(
    bench: FlowBench, per: str, late_rows: int, of_south: list[tuple[int, int, int]]
) -> None:
    source = in_partitions(
        ("north", [reading(1, 3)]),
        ("south", [reading(2, 2)]),
        ("north", [reading(1, 100)]),
        ("south", [reading(2, 5)]),
        ("south", [reading(2, 30)]),
    )
    flow, sink, _ = count_windows(source, per=per)
    got = bench.run_flow(flow, [sink])
    assert got.late_rows == late_rows
    assert counted(got.rows) == [(1, 0, 1), (1, 100, 1), *of_south]


def wrong_clock(bad: datetime) -> Any:
    """Return batches of three good keys and of one whose clock is wrong; rows of all windows come twice."""
    batches = []
    for half in range(2):
        for second in (1, 11, 21):
            rows = [reading(key, second + half) for key in (1, 2, 3)]
            batches.append([*rows, {**reading(9, 0), "ts": bad}])
    # Both halves of a window come one after the other.
    return ab.memory(*frames_of([batches[index] for index in (0, 3, 1, 4, 2, 5)]))


GOOD = [(key, second, 2) for key in (1, 2, 3) for second in (0, 10, 20)]


def test_clock_in_the_future_closes_nobodys_windows(bench: FlowBench) -> None:
    bad = datetime.now(UTC).replace(tzinfo=None) + SIXTY_DAYS
    flow, sink, dead = count_windows(wrong_clock(bad))
    got = bench.run_flow(flow, [sink])
    assert counted(got.rows) == GOOD
    assert (got.late_rows, got.dead_rows) == (0, 6)
    reasons = dead.frame().get_column("reason").unique().to_list()
    assert all("more than 1d ahead of the clock" in reason for reason in reasons)


def test_clock_that_was_never_set_goes_to_dead_letters(bench: FlowBench) -> None:
    flow, sink, dead = count_windows(wrong_clock(datetime(1904, 1, 1)), per="key")
    got = bench.run_flow(flow, [sink])
    assert counted(got.rows) == GOOD
    assert (got.late_rows, got.dead_rows) == (0, 6)
    assert "before 1970-01-01" in dead.frame().get_column("reason")[0]


def test_clock_in_the_future_closes_its_own_keys_windows_only(bench: FlowBench) -> None:
    bad = START + SIXTY_DAYS
    flow, sink, _ = count_windows(wrong_clock(bad), per="key", future=None)
    got = bench.run_flow(flow, [sink])
    assert [row for row in counted(got.rows) if row[0] != 9] == GOOD
    assert got.late_rows == 0


def test_mixed_zones_in_one_column_are_one_time_and_the_ambiguous_ones_dead_letters(
    bench: FlowBench, tmp_path: Path
) -> None:
    texts = [
        "2026-10-25T00:30:05Z",
        "2026-10-25T02:30:04+02:00",
        "2026-10-24T19:30:03-05:00",
        "2026-10-25T02:30:02",
        "2026-10-25T01:30:01",
    ]
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"key": key, "ts": text}) for key, text in enumerate(texts)]
    (tmp_path / "in" / "a.json").write_text("\n".join(lines) + "\n")
    schema = {"key": pl.Int64, "ts": pl.Datetime("ms", "Europe/Berlin")}
    flow, sink, dead = count_windows(ab.files(tmp_path / "in", schema=schema))
    got = bench.run_flow(flow, [sink])
    found = sorted((row["key"], row["window_start"]) for row in got.rows)
    assert found == [(key, datetime(2026, 10, 25, 0, 30)) for key in (0, 1, 2)] + [(4, datetime(2026, 10, 24, 23, 30))]
    (reason,) = dead.frame().get_column("reason")
    assert "no single moment in Europe/Berlin" in reason
    assert "write times with their offset" in reason
