"""Checkpoints of earlier versions go on without Spark, too, as if nothing had happened."""

from __future__ import annotations

import tarfile
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from anabranch.errors import SourceError
from anabranch.state import Checkpoint, open_store
from kept import offers_flow
from kept.gauges_flow import SHARED, answers, make_depots, make_gauges, run_flow, write_inputs, write_strangers

SAMPLES = Path(__file__).parent.parent.parent / "kept"


@pytest.fixture
def gauges(tmp_path: Path) -> Path:
    """A folder with the inputs, results and checkpoints that were left before what tasks report had types."""
    with tarfile.open(SAMPLES / "gauges-0.1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def test_keys_with_their_own_time_shared_keys_held_rows_and_timers_go_on(gauges: Path) -> None:
    write_inputs(gauges, "second")
    run_flow(make_gauges(gauges), gauges / "gauges-checkpoint", trigger="available-now", drain=True)

    found = {name: read(gauges / "results" / name) for name in ("windows", "held", "totals", "alarms")}
    # Running totals come anew in every batch that touches their key: the last ones count.
    found["totals"] = found["totals"].sort("rows").unique("gauge", keep="last")
    for name, rows in found.items():
        assert_same(rows, answers()[name])


def test_partitions_as_slots_go_on(gauges: Path) -> None:
    write_inputs(gauges, "second")
    run_flow(make_depots(gauges), gauges / "depots-checkpoint", trigger="available-now", drain=True)
    assert_same(read(gauges / "results" / "depots"), answers()["depots"])


def test_partitions_are_held_to_what_an_earlier_version_saw_of_their_keys(gauges: Path) -> None:
    write_strangers(gauges)
    with pytest.raises(SourceError, match=rf"the key '{SHARED}' \(gauge\) is in partitions 0 and 1"):
        run_flow(make_depots(gauges), gauges / "depots-checkpoint", trigger="available-now", drain=True)


def test_joins_of_all_kinds_go_on(tmp_path: Path) -> None:
    with tarfile.open(SAMPLES / "offers-0.1.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    offers_flow.write_inputs(tmp_path, "second")

    offers_flow.run_flow(tmp_path, trigger="available-now", drain=True)

    for name, rows in offers_flow.answers().items():
        assert_same(read(tmp_path / "results" / name), rows)


def test_sample_holds_what_it_is_kept_for(gauges: Path) -> None:
    latest = Checkpoint(open_store(str(gauges / "gauges-checkpoint"))).latest()
    assert latest is not None
    split = {level.operator: level.routes["table"]["slots"] for level in latest.levels}
    assert split == {"windows": [0, 1], "held": [0, 1], "totals": [0, 1], "alarms": []}
    assert latest.reader_buffers["held"]


def read(folder: Path) -> pl.DataFrame:
    return pl.concat(pl.read_parquet(part) for part in folder.glob("part-*.parquet"))


def assert_same(found: pl.DataFrame, wanted: pl.DataFrame) -> None:
    same = found.select(pl.col(column).cast(kind) for column, kind in wanted.schema.items())
    assert_frame_equal(same, wanted, check_row_order=False)
