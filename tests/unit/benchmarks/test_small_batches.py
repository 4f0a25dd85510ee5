"""A small batch taken apart: what each part takes, whose it is, and what is left out where nobody measured it."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from anabranch.model import BatchProgress
from anabranch.model.measures import BatchMeasures, TaskMeasure
from benchmarks.keyed_window.report import KeyedWindowReport, print_report
from benchmarks.keyed_window.small_batches import BatchPart, take_apart
from benchmarks.shared.peers.our_outcome import add_spark_ms, describe_batch
from benchmarks.shared.report import write_json

SPARK_MS = {
    "triggerExecution": 110,
    "latestOffset": 12,
    "walCommit": 8,
    "queryPlanning": 3,
    "getBatch": 1,
    "addBatch": 76,
    "commitOffsets": 9,
}
PHASES = {"trigger": 0.024, "job": 0.060, "commit": 0.004, "publish": 0.002}


def batch(**others: Any) -> dict[str, Any]:
    tasks = {"0": 0.015, "1": 0.020}
    return {"rows": 1_000, "phase_seconds": PHASES, "task_seconds": tasks, "spark_ms": SPARK_MS, **others}


def commits(count: int, seconds: float = 0.12) -> list[tuple[float, int]]:
    return [(10 + seconds * number, 1_000 * (number + 1)) for number in range(count)]


def milliseconds(parts: list[BatchPart], whose: str | None = None) -> list[float]:
    return [part.milliseconds for part in parts if whose in (None, part.whose)]


def test_every_part_of_a_batch_has_its_median_and_says_whose_it_is() -> None:
    # Cold batches, and one that is slow once, are in no median.
    cold = batch(phase_seconds=dict.fromkeys(PHASES, 9.0))
    parts = take_apart(commits(34), [*[cold] * 4, *[batch()] * 29, cold])
    assert milliseconds(parts, "Spark's") == pytest.approx([10, 8, 4, 10, 9])
    assert milliseconds(parts, "ours") == pytest.approx([12, 15, 20, 4, 2])
    assert milliseconds(parts, "both") == pytest.approx([25])
    assert sum(milliseconds(parts)) == pytest.approx(119)


def test_parts_that_nobody_measured_are_left_out() -> None:
    parts = take_apart(commits(31), [batch(spark_ms={}, task_seconds={})] * 31)
    assert [part.name for part in parts] == ["commit: time, manifest", "publish; look at loads, sweep"]


def test_batches_without_rows_have_no_commit_and_no_part() -> None:
    tick = batch(rows=0, phase_seconds=dict.fromkeys(PHASES, 5.0))
    assert take_apart(commits(31), [batch(), tick, *[batch()] * 30]) == take_apart(commits(31), [batch()] * 31)


def test_too_few_batches_are_not_taken_apart() -> None:
    assert take_apart(commits(30), [batch()] * 30) == []


def test_clocks_that_differ_never_give_less_than_nothing() -> None:
    parts = take_apart(commits(31, seconds=0.1), [batch()] * 31)
    assert min(milliseconds(parts)) == 0.0


def test_a_batch_says_how_long_its_longest_tasks_took_and_what_spark_says_of_its_trigger() -> None:
    tasks = [(0, 0, 0.01), (0, 1, 0.03), (1, 0, 0.02), (1, 1, 0.005)]
    measures = BatchMeasures(tuple(TaskMeasure(level, slot, "e", "h", 0.0, wall, 0) for level, slot, wall in tasks))
    progress = BatchProgress.from_json(
        dict.fromkeys(("rows_out", "late_rows", "dead_rows", "state_rows", "state_bytes", "exchanged_bytes"), 0)
        | {"batch": 7, "rows_in": 5, "batch_seconds": 0.1, "watermark_us": None, "slot_rows": [], "slot_seconds": []}
    )
    described = [describe_batch(replace(progress, measures=measures, phase_seconds=PHASES)), describe_batch(progress)]
    assert described[0]["task_seconds"] == {"0": 0.03, "1": 0.02}
    assert described[1]["task_seconds"] == {}
    waiting = {"batchId": 7, "durationMs": {"triggerExecution": 3, "latestOffset": 3}}
    add_spark_ms(described[:1], [{"batchId": 7, "durationMs": SPARK_MS}, waiting, {"batchId": 8, "durationMs": {}}])
    assert described[0]["spark_ms"] == SPARK_MS


def test_the_report_keeps_the_parts_and_shows_them(tmp_path: Path) -> None:
    parts = [BatchPart("Spark's offset log", "Spark's", 8.25), BatchPart("read tasks, in Python", "ours", 15.0)]
    report = KeyedWindowReport(workload={}, figures={"answers_equal": 1}, systems=[], seed=7, small_batch_parts=parts)
    write_json(report, tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["small_batch_parts"][0] == {"name": "Spark's offset log", "whose": "Spark's", "milliseconds": 8.25}
    assert {"systems", "curves"} <= set(written)
    text = StringIO()
    print_report(report, Console(file=text, width=80))
    assert "Spark's offset log" in text.getvalue()
    assert "8.2" in text.getvalue()
