"""The command with a real Spark, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from anabranch.state.checkpoint import Checkpoint
from anabranch.state.repair import verify
from anabranch.state.store import open_store
from quick_jvm import SPARK_ENVIRONMENT

FILES = 5
ROWS_A_FILE = 200
ENDS_WITHIN_SECONDS = 400
FLOW = """\
flow: low-voltage
sources:
  readings:
    files: {path: readings, format: json, max_files: 1, schema: {sensor: Int64, ts: Datetime(ms), volts: Float64}}
streams:
  alerts:
    from: readings
    steps:
      - filter: volts > 0
      - map_batches: checks:check
      - key_by: sensor
      - watermark: {column: ts, delay: 1s}
      - window: 10s
      - agg: {readings: count, lowest: {min: volts}}
    to: {parquet: alerts}
run: {checkpoint: state, slots: 2, trigger: available-now, drain: true}
"""
HARMLESS = "def check(frame):\n    return frame\n"
HARMFUL = """\
def check(frame):
    if frame.height:
        raise ValueError("the meter [7] is broken")
    return frame
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A flow file with its code, and readings of 10 seconds a file."""
    (tmp_path / "readings").mkdir()
    (tmp_path / "flow.yaml").write_text(FLOW, encoding="utf-8")
    (tmp_path / "checks.py").write_text(HARMLESS, encoding="utf-8")
    for number in range(FILES):
        lines = [json.dumps(reading(number * ROWS_A_FILE + row)) for row in range(ROWS_A_FILE)]
        path = tmp_path / "readings" / f"{number}.json"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return tmp_path


def reading(number: int) -> dict[str, object]:
    moment = pl.select(pl.from_epoch(pl.lit(1_760_000_000_000 + number * 50), "ms")).item()
    return {"sensor": number % 7, "ts": moment.isoformat(timespec="milliseconds"), "volts": 230 - number % 31 / 4}


def first_moment() -> object:
    return pl.select(pl.from_epoch(pl.lit(1_760_000_000_000), "ms")).item()


def expected() -> pl.DataFrame:
    rows = pl.DataFrame([reading(number) for number in range(FILES * ROWS_A_FILE)])
    return (
        rows.with_columns(pl.col("ts").str.to_datetime(time_unit="us").dt.truncate("10s").alias("window_start"))
        .group_by("sensor", "window_start")
        .agg(pl.len().cast(pl.Int64).alias("readings"), pl.col("volts").min().alias("lowest"))
        .sort("window_start", "sensor")
    )


def results(folder: Path) -> pl.DataFrame:
    parts = pl.concat(pl.read_parquet(path) for path in sorted((folder / "alerts").glob("part-*.parquet")))
    return parts.select("sensor", "window_start", "readings", "lowest").sort("window_start", "sensor")


@contextmanager
def command(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process group of its own, as a shell does, and leave nothing of it behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "run", "flow.yaml", "--master", "local[2]", "--memory", "1g", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **SPARK_ENVIRONMENT, "NO_COLOR": "1", "TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def batches_in(output: str) -> list[dict[str, str]]:
    return [
        dict(pair.split("=", 1) for pair in line.split(" "))
        for line in output.splitlines()
        if line.startswith("batch=")
    ]


def test_ctrl_c_ends_after_the_batch_and_the_next_run_goes_on_from_there(folder: Path) -> None:
    with command(folder, "--trigger", "2s", "--no-drain") as first:
        assert first.stdout is not None
        line = first.stdout.readline()
        assert line.startswith("batch=0 rows=200 "), line
        os.killpg(first.pid, signal.SIGINT)
        rest, errors = first.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert first.returncode == 0, errors
    assert "ending after the running batch" in errors
    done = batches_in(line + rest)
    assert len(done) < FILES, "it was interrupted before its end"
    checkpoint = Checkpoint(open_store(folder / "state"))
    assert checkpoint.batches()[-1] == int(done[-1]["batch"])
    assert f"committed up to batch {done[-1]['batch']}" in rest
    assert verify(checkpoint) == []

    with command(folder, "--plain") as second:
        output, errors = second.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert second.returncode == 0, errors
    # Whatever Spark and its workers print, nothing of it comes through.
    assert errors == ""
    again = [batch for batch in batches_in(output) if "replayed" not in batch]
    rows = sum(int(batch["rows"]) for batch in [*done, *again])
    assert rows == FILES * ROWS_A_FILE
    assert again[-1]["drained"] == "yes" and again[-1]["state_rows"] == "0"
    assert results(folder).equals(expected())
    assert list(folder.glob("anabranch-spark-*.log")) == []


def test_a_flow_that_fails_ends_with_1_and_says_reason_step_row_and_line(folder: Path) -> None:
    (folder / "checks.py").write_text(HARMFUL, encoding="utf-8")
    with command(folder) as process:
        output, errors = process.communicate(timeout=ENDS_WITHIN_SECONDS)
    assert process.returncode == 1
    assert output == ""
    assert [line.strip() for line in errors.splitlines()] == [
        "error: ValueError: the meter [7] is broken",
        "in the step: map_batches check",
        f"with the row: {reading(0) | {'ts': first_moment()}}",
        f'File "{folder}/checks.py", line 3, in check',
        'raise ValueError("the meter [7] is broken")',
        "batch 0 is not committed; correct the flow or its input, and start again",
    ]
    assert list(folder.glob("anabranch-spark-*.log")) == []
    assert Checkpoint(open_store(folder / "state")).batches() == []
