"""What every sink must do, wherever it writes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.connectors import console, foreach, json_lines, parquet, to_memory
from anabranch.errors import SinkError
from anabranch.model import StagedFile

SCHEMA = {"key": pl.Int64(), "name": pl.String(), "window_end": pl.Datetime("us"), "total": pl.Float64()}


def make_frame(first: int, rows: int = 3) -> pl.DataFrame:
    numbers = range(first, first + rows)
    return pl.DataFrame(
        {
            "key": list(numbers),
            "name": [None if number % 2 else f"näme {number}" for number in numbers],
            "window_end": [datetime(2026, 1, 1, second=number % 60) for number in numbers],
            "total": [number / 4 for number in numbers],
        },
        schema=SCHEMA,
    )


class FakeSpark:
    """Stands in for a session: the callback sink only reads Parquet with it."""

    @property
    def read(self) -> FakeSpark:
        return self

    def parquet(self, *paths: str) -> pl.DataFrame:
        return pl.concat(pl.read_parquet(path.removeprefix("file://")) for path in paths)


@dataclass
class Opened:
    """A sink, and what a reader sees of it."""

    sink: Any
    visible: Callable[[], pl.DataFrame]


def _open_parquet(folder: Path, capsys: Any) -> Opened:
    def visible() -> pl.DataFrame:
        return pl.concat([pl.DataFrame(schema=SCHEMA), *(pl.read_parquet(p) for p in sorted(folder.glob("part-*")))])

    return Opened(parquet(folder), visible)


def _open_json(folder: Path, capsys: Any) -> Opened:
    def visible() -> pl.DataFrame:
        frames = [pl.read_ndjson(path, schema=SCHEMA) for path in sorted(folder.glob("part-*"))]
        return pl.concat([pl.DataFrame(schema=SCHEMA), *frames])

    return Opened(json_lines(folder), visible)


def _open_memory(folder: Path, capsys: Any) -> Opened:
    sink = to_memory(folder)
    return Opened(sink, lambda: pl.concat([pl.DataFrame(schema=SCHEMA), *(f for _, f in sink.batches())]))


def _open_foreach(folder: Path, capsys: Any) -> Opened:
    # A callback hears of a batch again after a crash: writing it under its id is what makes that harmless.
    seen: dict[int, pl.DataFrame] = {}
    sink = foreach(lambda frame, batch: seen.update({batch: frame}))
    return Opened(sink, lambda: pl.concat([pl.DataFrame(schema=SCHEMA), *(seen[b] for b in sorted(seen))]))


def _open_console(folder: Path, capsys: Any) -> Opened:
    printed: list[str] = []

    def visible() -> pl.DataFrame:
        printed.append(capsys.readouterr().out)
        keys = [key for key in range(1000, 1100) if f"{key}" in "".join(printed)]
        return pl.concat([pl.DataFrame(schema=SCHEMA), *(make_frame(key, 1) for key in keys)])

    return Opened(console(), visible)


@pytest.fixture(
    params=[_open_parquet, _open_json, _open_memory, _open_foreach, _open_console], ids=lambda f: f.__name__[6:]
)
def opened(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Opened:
    found: Opened = request.param(tmp_path / "out", capsys)
    return found


@pytest.fixture
def stage(tmp_path: Path, opened: Opened) -> Callable[..., list[tuple[StagedFile, str]]]:
    """Writes result files as tasks do: the sink is pickled to them, its bytes come back."""

    def write(batch: int, *frames: pl.DataFrame) -> list[tuple[StagedFile, str]]:
        staged = []
        for slot, frame in enumerate(frames):
            content = pickle.loads(pickle.dumps(opened.sink)).encode(frame)
            path = tmp_path / f"staged-{batch}-{slot}{opened.sink.suffix}"
            path.write_bytes(content)
            staged.append((StagedFile(path.name, frame.height, len(content), slot), str(path)))
        return staged

    return write


CONTEXT = {"flow": "test", "epoch": 1, "spark": FakeSpark()}


def test_what_is_published_is_visible_in_order_of_batch_and_slot(opened: Opened, stage: Any) -> None:
    opened.sink.check(SCHEMA)
    opened.sink.publish(0, stage(0, make_frame(1000), make_frame(1003)), CONTEXT)
    opened.sink.publish(1, stage(1, make_frame(1006)), CONTEXT)
    assert opened.visible().equals(make_frame(1000, 9))


def test_staging_alone_makes_nothing_visible(opened: Opened, stage: Any) -> None:
    stage(0, make_frame(1000))
    assert opened.visible().height == 0


def test_publishing_twice_is_publishing_once(opened: Opened, stage: Any) -> None:
    staged = stage(0, make_frame(1000), make_frame(1003))
    opened.sink.publish(0, staged, CONTEXT)
    opened.sink.publish(0, staged, CONTEXT | {"epoch": 2})
    assert opened.visible().equals(make_frame(1000, 6))


def test_a_batch_without_files_or_rows_leaves_no_rows(opened: Opened, stage: Any) -> None:
    opened.sink.publish(0, [], CONTEXT)
    opened.sink.publish(1, stage(1, make_frame(1000, 0)), CONTEXT)
    opened.sink.publish(2, stage(2, make_frame(1000)), CONTEXT)
    assert opened.visible().equals(make_frame(1000))


def test_the_bytes_of_equal_rows_are_equal(opened: Opened) -> None:
    assert opened.sink.encode(make_frame(1000)) == opened.sink.encode(make_frame(1000))


def test_what_was_published_after_a_batch_is_taken_back_or_the_sink_says_that_it_cannot(
    opened: Opened, stage: Any
) -> None:
    for batch in range(3):
        opened.sink.publish(batch, stage(batch, make_frame(1000 + 3 * batch)), CONTEXT)
    if opened.sink.label.startswith("console"):
        opened.sink.retract(0)
        return
    if opened.sink.label.startswith("foreach"):
        with pytest.raises(SinkError, match="cannot take back"):
            opened.sink.retract(0)
        return
    opened.sink.retract(0)
    assert opened.visible().equals(make_frame(1000))
    # The same batches are published anew after a rollback.
    opened.sink.publish(1, stage(1, make_frame(1050)), CONTEXT)
    assert opened.visible().equals(pl.concat([make_frame(1000), make_frame(1050)]))


class TestPartFiles:
    """Sinks that keep files survive a crash anywhere in a publication."""

    @pytest.fixture(params=[_open_parquet, _open_json, _open_memory], ids=lambda f: f.__name__[6:])
    def opened(self, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Opened:
        found: Opened = request.param(tmp_path / "out", capsys)
        return found

    def test_a_publication_that_died_halfway_is_completed(
        self, opened: Opened, stage: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        staged = stage(0, make_frame(1000), make_frame(1003), make_frame(1006))
        moved: list[Any] = []
        replace = os.replace

        def die_at_the_third(source: Any, target: Any) -> None:
            moved.append(target)
            if len(moved) == 3:
                raise KeyboardInterrupt
            replace(source, target)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", die_at_the_third)
            with pytest.raises(KeyboardInterrupt):
                opened.sink.publish(0, staged, CONTEXT)
        assert 0 < opened.visible().height < 9
        opened.sink.publish(0, staged, CONTEXT)
        assert opened.visible().equals(make_frame(1000, 9))

    def test_a_lost_staged_file_is_an_error_not_a_gap(self, opened: Opened, stage: Any) -> None:
        staged = stage(0, make_frame(1000))
        Path(staged[0][1]).unlink()
        with pytest.raises(SinkError, match="rollback"):
            opened.sink.publish(0, staged, CONTEXT)

    def test_another_flows_results_are_not_mixed_in(self, opened: Opened, stage: Any) -> None:
        opened.sink.claim("test", None)
        opened.sink.publish(0, stage(0, make_frame(1000)), CONTEXT)
        with pytest.raises(SinkError, match="'test'"):
            opened.sink.claim("other", None)
        with pytest.raises(SinkError, match="batch 0"):
            opened.sink.claim("test", None)
        opened.sink.claim("test", 0)
