"""What the connector tests share: a source read to its end, and files of a given age."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from anabranch.model import Source


@dataclass
class Drained:
    """Everything a source gave until it had no more."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rows_per_batch: list[int] = field(default_factory=list)

    @property
    def frame(self) -> pl.DataFrame:
        return pl.concat(self.frames)


def drain_source(source: Source) -> Drained:
    """Read what is there now, as an engine would: positions and splits travel as JSON, the source is pickled."""
    # The given one is kept: a source's private folder goes with it.
    travelled = pickle.loads(pickle.dumps(source))
    travelled.check()
    planner = travelled.planner()
    planner.bound()
    drained = Drained()
    position = None
    for step in range(10_000):
        if not planner.more(position):
            return drained
        planned = planner.plan(position, float(step))
        position = json.loads(json.dumps(planned.position))
        drained.problems += planned.problems
        rows = 0
        for split in json.loads(json.dumps(planned.splits)):
            for outcome in travelled.read(split):
                drained.frames.append(outcome.frame)
                drained.rejected += outcome.rejected
                rows += outcome.frame.height
        if planned.splits:
            drained.rows_per_batch.append(rows)
    raise AssertionError("the source never ends")


def write_frame(frame: pl.DataFrame, format: str, path: Path) -> None:
    """Write a frame as a file of one of the source's formats."""
    match format:
        case "json":
            frame.write_ndjson(path)
        case "csv":
            frame.write_csv(path)
        case "parquet":
            frame.write_parquet(path)
        case "arrow":
            frame.write_ipc(path)


@pytest.fixture
def drain() -> Callable[[Source], Drained]:
    return drain_source


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file into the watched directory; files are as old as their order, unless told otherwise."""
    written = [0]

    def write_file(name: str, content: str | bytes, mtime_ns: int | None = None) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        written[0] += 1
        stamp = 1_700_000_000_000_000_000 + written[0] if mtime_ns is None else mtime_ns
        os.utime(path, ns=(stamp, stamp))
        return path

    return write_file
