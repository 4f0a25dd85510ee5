"""Checkpoints of earlier versions go on as if nothing had happened."""

from __future__ import annotations

import tarfile
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from kept.readings_flow import MADE_ROWS, answers, make_flow, write_inputs
from spark.fixtures import SparkBench

SAMPLES = Path(__file__).parent.parent / "kept"


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    """A folder with the inputs, results and checkpoint that version 0.1 left, and with the second part of the input."""
    with tarfile.open(SAMPLES / "readings-0.1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    write_inputs(tmp_path, "second")
    return tmp_path


def test_a_checkpoint_of_version_0_1_goes_on_and_its_answers_are_those_of_polars(
    bench: SparkBench, readings: Path
) -> None:
    make_flow(readings).run(
        str(readings / "checkpoint"), spark=bench.spark, trigger="available-now", drain=True, buckets=32
    )

    expected = answers()
    found = {name: _read(readings / "results" / name) for name in (*expected, "made")}
    # Running totals come anew in every batch that touches their key: the last ones count.
    found["totals"] = found["totals"].sort("rows").unique("sensor", keep="last")
    for name, wanted in expected.items():
        same = found[name].select(pl.col(column).cast(kind) for column, kind in wanted.schema.items())
        assert_frame_equal(same, wanted, check_row_order=False)
    assert found["made"].group_by("key").agg(pl.col("rows").max())["rows"].sum() == MADE_ROWS
    dead = _read(readings / "checkpoint" / "dead-letter")
    assert dead.height == 6


def _read(folder: Path) -> pl.DataFrame:
    parts = [*folder.glob("part-*.parquet")]
    if parts:
        return pl.concat(pl.read_parquet(part) for part in parts)
    return pl.concat(
        pl.read_ndjson(part).with_columns(pl.col("^window_start$").str.to_datetime(strict=False))
        for part in folder.glob("part-*.json")
    )
