"""Drivers of a flow whose slots are partitions, killed with −9: the output is that of an undisturbed run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from lab.drivers import DRIVER_ENVIRONMENT
from oracle import assert_same_rows
from sharing import make_once

SCRIPT = Path(__file__).with_name("ahead_under_test.py")
PARTITIONS, FILES, ROWS = 3, 6, 80
FAULTS = (("in-slot-after-state", 1), ("before-manifest", 2), ("after-manifest", 3))


def write_input(folder: Path) -> None:
    """Write one file a partition and batch."""
    chance = random.Random(11)
    partitioner = ab.Partitioner("hash", partitions=PARTITIONS, keys="key")
    for number in range(FILES):
        times = [datetime(2026, 1, 1) + timedelta(seconds=number * 6 + chance.randrange(-8, 8)) for _ in range(ROWS)]
        frame = pl.DataFrame(
            {
                "key": [chance.randrange(20) for _ in range(ROWS)],
                "ts": times,
                "whole": [chance.randrange(-1000, 1000) for _ in range(ROWS)],
            }
        ).cast({"ts": pl.Datetime("ms")})
        for partition, part in partitioner.split_frame(frame):
            path = folder / "in" / str(partition) / f"{number}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_parquet(path)
            seconds = 1_700_000_000 + number * PARTITIONS + partition
            os.utime(path, (seconds, seconds))


def run(folder: Path, master: str = "local[2]", environment: Mapping[str, str] | None = None) -> int:
    """Run the flow until it ends, or is ended."""
    known = {**os.environ, **DRIVER_ENVIRONMENT, **(environment or {})}
    with (folder / "stderr").open("ab") as errors:
        command = [sys.executable, str(SCRIPT), str(folder), master]
        return subprocess.run(command, env=known, stdout=errors, stderr=errors, timeout=400, check=False).returncode


def results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what each sink has, with the batch that it came in."""
    found: dict[str, list[dict[str, Any]]] = {}
    for sink in ("totals", "windows"):
        found[sink] = [
            {**row, "batch": path.name.split("-")[1]}
            for path in sorted((folder / "out" / sink).glob("part-*"))
            for row in pl.read_parquet(path).to_dicts()
        ]
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    def finish(folder: Path) -> None:
        write_input(folder)
        assert run(folder) == 0, (folder / "stderr").read_text()[-2000:]

    found = results(make_once(tmp_path_factory, "undisturbed-ahead", finish))
    assert len(found["windows"]) > 40
    return found


def test_a_driver_killed_at_fault_points_leaves_the_undisturbed_output(
    tmp_path: Path, undisturbed: dict[str, list[dict[str, Any]]]
) -> None:
    write_input(tmp_path)
    for moment, batch in FAULTS:
        assert run(tmp_path, environment={"ANABRANCH_FAULT": f"{moment}:{batch}"}) != 0, moment
    assert run(tmp_path) == 0, (tmp_path / "stderr").read_text()[-2000:]
    for sink, rows in results(tmp_path).items():
        assert_same_rows(rows, undisturbed[sink], sink)


def test_slots_on_several_executors_leave_the_same_output(
    tmp_path: Path, undisturbed: dict[str, list[dict[str, Any]]]
) -> None:
    write_input(tmp_path)
    assert run(tmp_path, "local-cluster[2,1,1024]") == 0, (tmp_path / "stderr").read_text()[-2000:]
    for sink, rows in results(tmp_path).items():
        assert_same_rows(rows, undisturbed[sink], sink)
