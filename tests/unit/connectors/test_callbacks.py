from __future__ import annotations

import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.connectors import console, foreach
from anabranch.errors import SinkError
from anabranch.model import StagedFile

FRAME = pl.DataFrame({"sensor": range(30), "volts": [229.5] * 30, "note": [None] * 30})


class FakeReader:
    """Stands where Spark's reader would, and reads Parquet by Polars."""

    def parquet(self, *paths: str) -> pl.DataFrame:
        return pl.concat(pl.read_parquet(path.removeprefix("file://")) for path in paths)


class FakeSpark:
    read = FakeReader()


def stage(tmp_path: Path, sink: Any, frame: pl.DataFrame) -> tuple[StagedFile, str]:
    path = tmp_path / f"staged{sink.suffix}"
    path.write_bytes(sink.encode(frame))
    return StagedFile(path.name, frame.height, path.stat().st_size, 0), str(path)


def test_console_prints_the_first_rows_and_says_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = console(rows=3)
    sink.publish(4, [stage(tmp_path, sink, FRAME)], {})
    printed = capsys.readouterr().out
    assert "batch 4: 30 rows, first 3" in printed
    assert printed.count("229.5") == 3


def test_console_keeps_times_and_numbers_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    start, end = datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 10)
    values = {"emission": "final", "sensor": 1234, "readings": 27, "lowest": 218.06}
    sink = console()
    sink.publish(4, [stage(tmp_path, sink, pl.DataFrame([{"window_start": start, "window_end": end, **values}]))], {})
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "final" in line)
    assert row.split() == ["2026-01-01", "00:00:00", "2026-01-01", "00:00:10", "final", "1234", "27", "218.06"]


def test_console_is_silent_about_batches_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = console()
    sink.publish(4, [stage(tmp_path, sink, FRAME.clear())], {})
    sink.publish(5, [], {})
    assert capsys.readouterr().out == ""


def test_callback_gets_the_batch_with_its_id(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    sink = foreach(lambda frame, batch: calls.append((frame.height, batch)))  # type: ignore[attr-defined]
    sink.publish(4, [stage(tmp_path, sink, FRAME)], {"spark": FakeSpark()})
    assert calls == [(30, 4)]


def test_callback_is_spared_batches_without_rows_unless_it_asks_for_them(tmp_path: Path) -> None:
    calls: list[int] = []
    quiet = foreach(lambda _, batch: calls.append(batch))
    curious = foreach(lambda _, batch: calls.append(batch), empty_batches=True)
    for sink in (quiet, curious):
        sink.publish(4, [stage(tmp_path, sink, FRAME.clear())], {"spark": FakeSpark()})
    assert calls == [4]


def test_callback_that_fails_is_named_with_its_batch(tmp_path: Path) -> None:
    def save(frame: object, batch: int) -> None:
        raise ValueError("no table")

    sink = foreach(save)
    with pytest.raises(SinkError, match=r"foreach .*save failed at batch 4: ValueError: no table$"):
        sink.publish(4, [stage(tmp_path, sink, FRAME)], {"spark": FakeSpark()})


def test_callback_stays_on_the_driver_when_the_sink_travels_to_tasks() -> None:
    sink = foreach(lambda frame, batch: None)
    travelled = pickle.loads(pickle.dumps(sink))
    assert travelled.suffix == sink.suffix
    assert travelled.encode(FRAME) == sink.encode(FRAME)
    with pytest.raises(SinkError, match="lives on the driver"):
        travelled.callback(None, 1)


def test_callback_cannot_be_taken_back() -> None:
    with pytest.raises(SinkError, match="cannot take back what it did after batch 3"):
        foreach(print).retract(3)
