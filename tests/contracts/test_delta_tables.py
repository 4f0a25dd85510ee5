"""What the sink to Delta Lake does beyond the contract: partitions, application transactions, types."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest

from anabranch.connectors import delta
from anabranch.connectors.filesystem.delta import DeltaSink
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.errors import SinkError
from contracts.database_sinks import SCHEMA, DeltaSubject, Stage, context, make_rows, rows_of


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_every_batch_with_rows_is_one_version_that_names_it(tmp_path: Path, stage: Stage) -> None:
    sink = delta(tmp_path / "t", partition_by=("sensor",))
    sink.check(SCHEMA)
    sink.claim("test", None)
    for batch in (0, 1, 1, 2):
        sink.publish(batch, stage(sink, make_rows(1000, 2 if batch != 1 else 0)), context())
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert table.transaction_version("anabranch/test") == 2
    # The table is made first, without rows.
    assert [entry.get("anabranch.batch") for entry in table.history()] == ["2", "0", None]
    assert table.metadata().partition_columns == ["sensor"]


@pytest.mark.parametrize("keys", [(), ("sensor",)], ids=["append", "upsert"])
@pytest.mark.parametrize("first", [0, 1], ids=["new table", "known table"])
def test_a_driver_that_paused_before_its_commit_adds_nothing_to_a_newer_ones(
    tmp_path: Path, stage: Stage, keys: tuple[str, ...], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> DeltaSink:
        return delta(tmp_path / "t", keys=keys)

    old, new = make(), make()
    old.claim("test", None)
    if first:
        old.publish(0, stage(old, make_rows(900)), context())
    staged = stage(old, make_rows(1000))

    def go_on(taken: Sequence[Any]) -> pl.DataFrame | None:
        """Let a newer driver publish this batch and the next, while the older one has looked and not written."""
        monkeypatch.undo()
        new.claim("test", first)
        new.publish(first, staged, context(epoch=2))
        new.publish(first + 1, stage(new, make_rows(1000, 3, shift=1.0)), context(epoch=2))
        return read_staged(taken)

    monkeypatch.setattr(sys.modules[DeltaSink.__module__], "read_staged", go_on)
    old.publish(first, staged, context(epoch=1))
    earlier = [make_rows(900)] * first
    expected = rows_of(*earlier, *([] if keys else [make_rows(1000)]), make_rows(1000, 3, shift=1.0))
    found = pl.DataFrame(deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table())
    assert sorted(found.rows(), key=repr) == sorted(expected, key=repr)


def test_two_flows_add_to_one_table_each_once(tmp_path: Path, stage: Stage) -> None:
    for flow, first in (("north", 1000), ("south", 2000)):
        sink = delta(tmp_path / "t")
        sink.check(SCHEMA)
        sink.claim(flow, None)
        for _ in range(2):
            sink.publish(0, stage(sink, make_rows(first)), context() | {"flow": flow})
    frame = pl.DataFrame(deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table())
    assert frame.sort("sensor").rows() == rows_of(make_rows(1000), make_rows(2000))


def test_types_that_delta_lacks_are_written_as_wider_ones(tmp_path: Path, stage: Stage) -> None:
    rows = pl.DataFrame(
        {
            "count": pl.Series([1, 2**32 - 1], dtype=pl.UInt32),
            "huge": pl.Series([1, 2**64 - 1], dtype=pl.UInt64),
            "moment": pl.Series([datetime(2026, 1, 1), None], dtype=pl.Datetime("ns")),
            "span": [timedelta(seconds=1), None],
            "word": pl.Series(["a", None], dtype=pl.Categorical),
        }
    )
    sink = delta(tmp_path / "t", keys=("count",))
    sink.check(dict(rows.schema))
    sink.claim("test", None)
    for batch in range(2):
        sink.publish(batch, stage(sink, rows), context())
    found = pl.DataFrame(deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()).sort("count")
    assert found.get_column("count").to_list() == [1, 2**32 - 1]
    assert [int(value) for value in found.get_column("huge")] == [1, 2**64 - 1]
    assert found.get_column("moment").to_list() == [datetime(2026, 1, 1), None]
    assert found.get_column("span").to_list() == [1_000_000, None]
    with pytest.raises(SinkError, match="no type for"):
        sink.check({"count": pl.Int64(), "hour": pl.Time()})


def test_a_table_that_was_deleted_is_noticed(tmp_path: Path, stage: Stage) -> None:
    subject = DeltaSubject(tmp_path)
    sink = subject.opened()
    sink.publish(0, stage(sink, make_rows(1000)), context())
    shutil.rmtree(subject.path)
    with pytest.raises(SinkError, match="deleted or set back"):
        sink.publish(1, stage(sink, make_rows(1003)), context())


def test_columns_that_the_table_lacks_are_said(tmp_path: Path, stage: Stage) -> None:
    sink = delta(tmp_path / "t")
    sink.claim("test", None)
    sink.publish(0, stage(sink, make_rows(1000)), context())
    other = delta(tmp_path / "t", patience_seconds=1.0)
    with pytest.raises(SinkError, match="does not take the rows"):
        other.publish(1, stage(other, make_rows(1003).with_columns(extra=pl.lit(1))), context())


def test_wrong_arguments_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="needs keys"):
        delta(tmp_path, mode="upsert")
    with pytest.raises(SinkError, match="'upsert' or 'append'"):
        delta(tmp_path, mode="merge")  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="names 'site'"):
        delta(tmp_path / "t", partition_by="site").check(SCHEMA)
    assert "hush" not in repr(delta("s3://bucket/t", storage_options={"secret": "hush"}))
