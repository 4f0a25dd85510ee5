"""A source is read behind the levels that its rows are not for, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.batches.reading_levels import find_reading_levels, number_packs
from anabranch.engine.batches.split_steps import pack
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks.blocks import Block, BlockKind
from anabranch.engine.tasks.slot_task import SlotTask
from anabranch.query.plan import make_plan
from anabranch.state.split_log import LogEntry

ROWS = pl.DataFrame({"key": [1, 2, 3], "ts": pl.Series([0, 1, 2]).cast(pl.Datetime("us")), "n": [1, 2, 3]})


def read(flow: ab.Flow, name: str, **watermark: Any) -> ab.Stream:
    return flow.read(ab.memory(ROWS), name=name).watermark("ts", delay="1s", **watermark)


def chain(flow: ab.Flow, **watermark: Any) -> ab.Stream:
    """Return rows of ``c`` with what comes of a join of ``a`` and ``b``."""
    pairs = read(flow, "a").join(read(flow, "b"), on="key", within="5s").select("key", "joined_at", pair="n")
    return read(flow, "c", **watermark).join(pairs, on="key", within="5s")


def levels_of(flow: ab.Flow) -> dict[int, int]:
    return find_reading_levels(make_plan(flow, 2))


def test_a_source_of_the_second_join_is_read_behind_the_first() -> None:
    flow = ab.Flow("chain")
    chain(flow).write(ab.to_memory())
    # Sources are numbered as they are read: a, b, c.
    assert levels_of(flow) == {2: 1}


def test_one_level_or_a_use_before_makes_it_be_read_first() -> None:
    flow = ab.Flow("one")
    read(flow, "a").join(read(flow, "b"), on="key", within="5s").write(ab.to_memory())
    assert levels_of(flow) == {}
    flow = ab.Flow("both")
    once = read(flow, "a")
    counts = once.key_by("key").window("1s").agg(rows=ab.count())
    once.join(counts, on="key", within="5s").write(ab.to_memory())
    assert levels_of(flow) == {}


def test_a_sink_for_its_rows_makes_no_difference() -> None:
    flow = ab.Flow("besides")
    later = read(flow, "c")
    later.write(ab.to_memory())
    counts = read(flow, "a").key_by("key").window("1s").agg(rows=ab.count())
    later.join(counts, on="key", within="5s").write(ab.to_memory())
    assert levels_of(flow) == {0: 1}


def test_a_watermark_that_may_fall_silent_is_seen_first() -> None:
    flow = ab.Flow("silent")
    chain(flow, per="partition", idle="10s").write(ab.to_memory())
    assert levels_of(flow) == {}


def test_readers_that_hold_rows_back_are_all_that_read() -> None:
    flow = ab.Flow("held")
    chain(flow).write(ab.to_memory())
    held = read(flow, "d").key_by("key", merge=ab.LocalMerge(at="window")).window("1s").agg(rows=ab.count())
    held.write(ab.to_memory())
    assert levels_of(flow) == {}


def test_tasks_lie_by_level_and_the_first_reads_before_all() -> None:
    entry = LogEntry(0, ((2, {"bytes": 9}), (0, {"bytes": 1}), (2, {"bytes": 8}), (1, {"bytes": 7})), {})
    levels = {2: 1}
    packs = pack([entry], 2, levels)
    assert [[source for _, source, _ in items] for items in packs] == [[1], [0], [2], [2]]
    assert number_packs(levels, packs) == {0: range(2), 1: range(2, 4)}

    only_later = pack([LogEntry(0, ((2, {"bytes": 9}),), {})], 2, levels)
    assert [len(items) for items in only_later] == [0, 1]
    assert number_packs(levels, only_later) == {0: range(1), 1: range(1, 2)}
    assert pack([], 2, levels) == []


def test_slots_of_the_first_level_get_no_rows_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: dict[int, set[int]] = {1: set(), 2: set()}
    run = SlotTask.run

    def watch(self: SlotTask, slot: int, received: list[Block], *others: Any) -> Any:
        got[self.level] |= {block.level for block in received if block.kind is BlockKind.ROWS}
        return run(self, slot, received, *others)

    monkeypatch.setattr(SlotTask, "run", watch)
    flow, found = ab.Flow("chain"), ab.to_memory()
    chain(flow).write(found)
    run_here = LocalRun(flow, make_settings(checkpoint=str(tmp_path), trigger="available-now", drain=True, slots=2))
    run_here.run_to_end()
    run_here.close()
    assert got == {1: {1}, 2: {2}}
    assert sorted(found.frame().get_column("key")) == [1, 2, 3]
