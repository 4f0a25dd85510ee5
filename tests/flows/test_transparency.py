"""Whatever the parallelism, the slots, the local merge and the restarts: the answers are those of a single slot."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

import anabranch as ab
from flows.running import FlowBench, frames_of, make_batches
from oracle import Running, Windows, answer_flow, assert_same_batches, assert_same_rows, compute

SECOND_US = 1_000_000
FIRST = {"rows": ("count", None), "total": ("sum", "whole"), "closing": ("last", "real")}
SECOND = {"keys": ("count", None), "rows": ("sum", "rows"), "most": ("max", "total")}
BATCHES = make_batches(3)


def make_flow() -> tuple[ab.Flow, list[Any]]:
    """A flow with stateless steps, a branch, two hops and three sinks."""
    flow = ab.Flow("test")
    sinks = [ab.to_memory() for _ in range(3)]
    source = flow.read(ab.memory(*frames_of(BATCHES))).filter(pl.col("whole") != 0).watermark("ts", delay="3s")
    keyed = source.key_by("key")
    keyed.agg(rows=ab.count(), total=ab.sum("whole"), closing=ab.last("real"), name="running").write(sinks[0])
    windows = keyed.window("8s", every="4s").agg(rows=ab.count(), total=ab.sum("whole"), closing=ab.last("real"))
    windows.write(sinks[1])
    parities = windows.with_columns(parity=pl.col("key") % 3).key_by("parity").window("20s")
    parities.agg(keys=ab.count(), rows=ab.sum("rows"), most=ab.max("total"), name="parity").write(sinks[2])
    return flow, sinks


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    batches = [[row for row in batch if row["whole"] != 0] for batch in BATCHES]

    def first(group: Any) -> list[dict[str, Any]]:
        return [compute(group, FIRST)]

    def with_parity(group: Any) -> list[dict[str, Any]]:
        return [compute(group, FIRST) | {"parity": group[0].row["key"] % 3}]

    def second(group: Any) -> list[dict[str, Any]]:
        return [compute(group, SECOND)]

    chains = [
        [Running(["key"], first)],
        [Windows(["key"], first, 8 * SECOND_US, 4 * SECOND_US)],
        [
            Windows(["key"], with_parity, 8 * SECOND_US, 4 * SECOND_US),
            Windows(["parity"], second, 20 * SECOND_US, 20 * SECOND_US),
        ],
    ]
    return [answer_flow(batches, chain, time="ts", delay_us=3 * SECOND_US, drain=True) for chain in chains]


@pytest.mark.parametrize(
    "settings",
    [
        {"slots": 1},
        {"slots": 3, "local_merge": False},
        {"slots": 7, "buckets": 16},
        {"parallelism": "operator", "slots": 3},
        {"parallelism": "query", "slots": 2},
        {"parallelism": "operator", "slots": 2, "local_merge": False, "read_tasks": 1},
    ],
    ids=lambda settings: " ".join(f"{name}={value}" for name, value in settings.items()),
)
def test_settings_do_not_change_the_answers(bench: FlowBench, answers: list[Any], settings: dict[str, Any]) -> None:
    flow, sinks = make_flow()
    got = bench.run_flow(flow, sinks, **settings)
    for sink, answer in zip(sinks, answers, strict=True):
        assert_same_batches(sink.batches(), answer.batches)
    # The windows are one operator, whatever hangs on them: the first chain's late rows are among the second's.
    assert got.late_rows == answers[2].late_rows > 0


def test_a_restart_after_every_batch_does_not_change_the_answers(bench: FlowBench, answers: list[Any]) -> None:
    flow, sinks = make_flow()
    checkpoint = bench.new_checkpoint()
    for _ in BATCHES:
        bench.run_flow(flow, sinks, checkpoint=checkpoint, trigger="once", drain=False)
    bench.run_flow(flow, sinks, checkpoint=checkpoint)
    # Windows that are due fire before a run ends, in a batch without rows: other batches, the same rows.
    for sink, answer in zip(sinks, answers, strict=True):
        assert_same_rows(sink.frame().to_dicts(), answer.rows)


def test_a_batch_cut_into_many_splits_gives_the_same_answers(bench: FlowBench, tmp_path: Any) -> None:
    """All frames in one batch: every frame is a split of its own, read by two tasks."""
    flow = ab.Flow("test")
    sink = ab.to_memory()
    source = ab.memory(*frames_of(BATCHES), max_frames=None)
    flow.read(source).key_by("key").agg(total=ab.sum("whole"), opening=ab.first("real"), closing=ab.last("real")).write(
        sink
    )
    bench.run_flow(flow, [sink], slots=3)
    wanted = {"total": ("sum", "whole"), "opening": ("first", "real"), "closing": ("last", "real")}
    everything = [row for batch in BATCHES for row in batch]
    expected = answer_flow([everything], [Running(["key"], lambda group: [compute(group, wanted)])], drain=True)
    assert_same_batches(sink.batches(), expected.batches)
