"""Merged runs of joins are damaged: what they were merged from does in their place, and answers stay right."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.model import RunRef
from anabranch.state import Checkpoint, open_store, runs
from anabranch.state.inspect import list_holders
from flows.running import FlowBench
from flows.test_joins import START, ask_duckdb, say_joined_at

BATCHES, READ_BEFORE = 22, 18
"""So many batches of a frame a side, and so many of them before the damage."""
SETTINGS: dict[str, Any] = {"slots": 2, "buckets": 16, "kept_batches": 30}
BY_TIME = "l.key = r.key AND abs(epoch(l.ts) - epoch(r.ts)) <= 30"
JOINS: dict[str, tuple[dict[str, Any], str]] = {
    "inner": ({"within": "30s"}, BY_TIME),
    "left": ({"within": "30s", "how": "left"}, BY_TIME),
    "full": ({"within": "30s", "how": "full"}, BY_TIME),
    "grid": ({"within": "30s", "routing": "grid"}, BY_TIME),
    "for ever": ({}, "l.key = r.key"),
}
"""Join → what is said of it, and in SQL."""


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each driver is a process that has checked no file yet."""
    monkeypatch.setattr(runs, "_verified", {})


def make_sparse_rows(chance: random.Random, column: str) -> list[pl.DataFrame]:
    """Return batches of a dozen rows, out of order, so few of a key that most first meet somebody of a later batch."""
    schema = {"key": pl.Int64, "ts": pl.Datetime("us"), column: pl.Int64}
    return [
        pl.DataFrame(
            [
                (
                    chance.choice([None, *range(60)]),
                    START + timedelta(seconds=4 * batch + chance.randrange(-6, 9)),
                    place,
                )
                for place in range(12 * batch, 12 * batch + 12)
            ],
            schema=schema,
            orient="row",
        )
        for batch in range(BATCHES)
    ]


def list_merged_runs(checkpoint: str) -> Iterator[RunRef]:
    """Yield the runs of the last batch that were merged from others."""
    manifest = Checkpoint(open_store(checkpoint)).latest()
    assert manifest is not None
    for level in manifest.levels:
        for _, refs in list_holders(level):
            yield from (ref for ref in refs if ref.made_from)


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x15
    path.write_bytes(bytes(content))


def damage_half_way(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch, join: Any, sides: list[list[pl.DataFrame]], **times: Any
) -> tuple[pl.DataFrame, set[int]]:
    """Run a join of two streams to its end, with all merged runs damaged on the way; ``times`` are of watermarks.

    Return its results, and the sections of the state that were damaged.
    """
    flow, sink, checkpoint = ab.Flow("damaged"), ab.to_memory(), bench.new_checkpoint()
    sources = [ab.memory(*frames[:READ_BEFORE], max_frames=1) for frames in sides]
    join(*(flow.read(source).watermark("ts", **times) for source in sources)).write(sink)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False, **SETTINGS)
    damaged = list(list_merged_runs(checkpoint))
    for ref in damaged:
        flip_a_byte(Path(checkpoint, ref.file))
    monkeypatch.setattr(runs, "_verified", {})
    for source, frames in zip(sources, sides, strict=True):
        for frame in frames[READ_BEFORE:]:
            source.add(frame)
    got = bench.run_flow(flow, [sink], checkpoint=checkpoint, **SETTINGS)
    told = " ".join(str(problem) for entry in got.progress for problem in entry.problems)
    assert damaged and all(Path(ref.file).name in told for ref in damaged)
    return sink.frame(), {ref.section for ref in damaged}


@pytest.mark.parametrize("name", JOINS)
def test_a_damaged_merged_run_of_a_join_falls_back_on_what_it_was_merged_from(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options, condition = JOINS[name]
    how = options.get("how", "inner")
    chance = random.Random(name)
    sides = [make_sparse_rows(chance, column) for column in ("a", "b")]
    found, sections = damage_half_way(
        bench, monkeypatch, lambda left, right: left.join(right, on="key", **options), sides, delay="1h"
    )
    # Rows of both inputs, and where it matters, which of them met somebody.
    assert {1, 3} <= sections
    assert (2 in sections) == (how != "inner")
    columns = f"coalesce(l.key, r.key), l.ts, l.a, r.ts, r.b, {say_joined_at(how, -30_000_000, 30_000_000)}"
    expected = ask_duckdb(*map(pl.concat, sides), how, condition, columns)
    assert sorted(map(repr, found.rows())) == expected


@pytest.mark.parametrize(
    ("join", "times"),
    [
        (lambda left, right: left.join_asof(right, by="key"), {"delay": "1h"}),
        (lambda left, right: left.join_where(right, "abs(key - key_right) <= 1", within="30s"), {"delay": "1h"}),
        (lambda left, right: left.join(right, on="key", within="30s", how="left"), {"delay": "30s", "per": "key"}),
    ],
    ids=["as of", "near", "own time"],
)
def test_a_damaged_merged_run_of_other_joins_changes_nothing(
    bench: FlowBench, monkeypatch: pytest.MonkeyPatch, join: Any, times: dict[str, Any]
) -> None:
    chance = random.Random(3)
    sides = [make_sparse_rows(chance, column) for column in ("a", "b")]
    found, sections = damage_half_way(bench, monkeypatch, join, sides, **times)
    assert sections
    flow, sink = ab.Flow("undisturbed"), ab.to_memory()
    join(*(flow.read(ab.memory(*frames, max_frames=1)).watermark("ts", **times) for frames in sides)).write(sink)
    bench.run_flow(flow, [sink], **SETTINGS)
    assert found.height > 100
    assert sorted(map(repr, found.rows())) == sorted(map(repr, sink.frame().rows()))
