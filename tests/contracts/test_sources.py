"""What every source must do, whatever it reads."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from anabranch.connectors import files, generate, kafka, memory
from anabranch.model import Source
from servers.kafka import KafkaBroker

ROWS = 400
FRAME = pl.DataFrame(
    {
        "key": [number % 17 for number in range(ROWS)],
        "name": [None if number % 11 == 0 else f"näme {number}" for number in range(ROWS)],
        "ts": [datetime(2026, 1, 1) + timedelta(milliseconds=number) for number in range(ROWS)],
        "real": [number / 8 for number in range(ROWS)],
    },
    schema={"key": pl.Int64, "name": pl.String, "ts": pl.Datetime("ms"), "real": pl.Float64},
)
PARTS = [FRAME[start : start + 80] for start in range(0, ROWS, 80)]


@dataclass(frozen=True)
class SourceKind:
    """How to make a source that holds ``ROWS`` rows; the limits are those of a batch."""

    name: str
    make: Callable[..., Any]
    add: Callable[[Any], None] | None
    """Adds more rows behind the source's back; None where rows come by themselves."""

    def __str__(self) -> str:
        return self.name


def _write(directory: str, number: int, frame: pl.DataFrame, ending: str) -> None:
    if ending.startswith("json"):
        content = frame.write_ndjson().encode()
    elif ending.startswith("csv"):
        content = frame.write_csv(datetime_format="%Y-%m-%dT%H:%M:%S%.3f").encode()
    if ending.endswith(".gz"):
        content = gzip.compress(content)
    elif ending.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    path = Path(directory, f"{number:03d}.{ending}")
    hidden = path.with_name(f".{path.name}")
    if ending == "parquet":
        frame.write_parquet(hidden, row_group_size=30)
    elif ending == "arrow":
        frame.write_ipc(hidden)
    else:
        hidden.write_bytes(content)
    os.utime(hidden, ns=(number + 1, number + 1))
    hidden.rename(path)


def _files(ending: str) -> SourceKind:
    def make(folder: Path, **limits: int) -> Any:
        folder.mkdir(exist_ok=True)
        for number, frame in enumerate(PARTS):
            _write(str(folder), number, frame, ending)
        kind = ending.split(".", maxsplit=1)[0]
        return files(folder, format=kind, schema=dict(FRAME.schema), poll_seconds=0.0, **limits)  # type: ignore[arg-type]

    return SourceKind(ending, make, lambda source: _write(source.directory, 999, PARTS[0], ending))


def _make_memory(folder: Path, **limits: int) -> Any:
    return memory(*PARTS, max_frames=limits.get("max_files"), directory=folder)


def _make_generator(folder: Path, **limits: int) -> Any:
    return generate(None, total_rows=ROWS, keys=17, seed=5, max_rows=limits.get("max_rows", ROWS))


KINDS = [
    *(_files(ending) for ending in ("json", "json.gz", "json.zst", "csv", "csv.gz", "parquet", "arrow")),
    SourceKind("memory", _make_memory, lambda source: source.add(PARTS[0])),
    SourceKind("generator", _make_generator, None),
]


def _kafka(broker: KafkaBroker) -> SourceKind:
    def send(topic: str, frame: pl.DataFrame) -> None:
        broker.produce(topic, frame.write_ndjson().encode().splitlines())

    def make(folder: Path, **limits: int) -> Any:
        topic = f"contract-{uuid.uuid4().hex[:12]}"
        broker.create_topic(topic)
        send(topic, FRAME)
        limits.pop("max_files", None)
        return kafka(broker.servers, topic, schema=dict(FRAME.schema), poll_seconds=0.0, **limits)  # type: ignore[arg-type]

    return SourceKind("kafka", make, lambda source: send(source.topics[0], PARTS[0]))


@pytest.fixture(params=[*KINDS, "kafka"], ids=str)
def kind(request: pytest.FixtureRequest) -> SourceKind:
    if request.param == "kafka":
        return _kafka(request.getfixturevalue("kafka"))
    found: SourceKind = request.param
    return found


def read(source: Source, splits: Any) -> pl.DataFrame:
    """Read splits one after the other."""
    frames = [outcome.frame for split in splits for outcome in source.read(split)]
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(source.schema))


def plan_all(source: Source, *, bound: bool = True) -> list[list[Any]]:
    """Return the splits of every batch until there is nothing left; positions and splits go through JSON."""
    position = None
    batches = []
    for step in range(1000):
        # A new planner for every batch: nothing may hang on what one remembers.
        planner = source.planner()
        if bound:
            planner.bound()
        planned = planner.plan(position, 1_000_000.0 + step)
        if not planned.splits:
            assert not bound or not planner.more(position)
            return batches
        batches.append(json.loads(json.dumps(planned.splits)))
        position = json.loads(json.dumps(planned.position))
    raise AssertionError("the source never ends")


def test_every_row_comes_once_in_the_declared_schema(kind: SourceKind, tmp_path: Path) -> None:
    source = kind.make(tmp_path / "in")
    source.check()
    got = read(source, [split for batch in plan_all(source) for split in batch])
    assert dict(got.schema) == dict(source.schema)
    assert got.height == ROWS
    if kind.name != "generator":
        assert got.equals(FRAME)


def test_a_split_gives_the_same_rows_again_and_in_another_process(kind: SourceKind, tmp_path: Path) -> None:
    source = kind.make(tmp_path / "in")
    for batch in plan_all(source):
        for split in batch:
            first = read(source, [split])
            assert read(source, [split]).equals(first)
            # Tasks get the source pickled, and the split as JSON.
            assert read(pickle.loads(pickle.dumps(source)), [split]).equals(first)


def test_how_batches_are_cut_does_not_change_the_rows(kind: SourceKind, tmp_path: Path) -> None:
    whole = kind.make(tmp_path / "in")
    expected = read(whole, [split for batch in plan_all(whole) for split in batch])
    for limits in ({"max_files": 1}, {"max_files": 2}, {"max_rows": 33}, {"max_bytes": 700}, {"max_rows": 1}):
        folder = tmp_path / "-".join(f"{name}-{limit}" for name, limit in limits.items())
        source = kind.make(folder, **limits)
        batches = plan_all(source)
        got = read(source, [split for batch in batches for split in batch])
        assert got.equals(expected), limits
        if "max_files" in limits and kind.name not in ("generator", "kafka"):
            assert len(batches) == -(-len(PARTS) // limits["max_files"])


def test_splits_say_how_large_they_are(kind: SourceKind, tmp_path: Path) -> None:
    source = kind.make(tmp_path / "in")
    assert all(split["bytes"] > 0 for batch in plan_all(source) for split in batch)


# A generator's rows come by themselves; total_rows is its bound.
@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind.add), "kafka"], ids=str, indirect=True)
def test_a_bound_planner_does_not_see_what_comes_later(kind: SourceKind, tmp_path: Path) -> None:
    assert kind.add is not None
    source = kind.make(tmp_path / "in", max_files=2)
    planner = source.planner()
    planner.bound()
    kind.add(source)
    position, rows = None, 0
    while (planned := planner.plan(position, 1_000_000.0)).splits:
        assert planner.more(position)
        rows += read(source, planned.splits).height
        position = planned.position
    assert not planner.more(position)
    assert rows == ROWS
    # The next run finds it.
    assert read(source, source.planner().plan(position, 1_000_001.0).splits).height == PARTS[0].height


def test_planning_again_from_the_same_position_gives_the_same_splits(kind: SourceKind, tmp_path: Path) -> None:
    source = kind.make(tmp_path / "in", max_files=2, max_rows=100)
    first = source.planner()
    second = source.planner()
    first.bound()
    second.bound()
    position = None
    while (planned := first.plan(position, 1_000_000.0)).splits:
        again = second.plan(position, 1_000_000.0)
        assert (again.splits, again.position) == (planned.splits, planned.position)
        position = json.loads(json.dumps(planned.position))


def test_its_label_is_one_short_line(kind: SourceKind, tmp_path: Path) -> None:
    label = kind.make(tmp_path / "in").label
    assert label
    assert "\n" not in label
