"""The same flows on Spark and in this process: equal manifests, files of state and results, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from flows import running
from flows.commits import contents_of
from flows.random_flows import HELD_KINDS, KINDS, OWN_TIME_KINDS, SCHEMA, RandomFlow, make_random_flow
from flows.running import FlowBench, LocalBench, Steer, frames_of, make_batches
from flows.test_ahead import partitioned
from flows.test_processing import as_batches, make_stream
from flows.wild_steering import WildSteering
from spark.fixtures import SparkBench
from unit.operators.processors_under_test import FRAME_OUTPUT, OUTPUT, Scripted, ScriptedFrames

NOW = 1_800_000_000.0


Committed = tuple[list[dict[str, Any]], dict[str, bytes]]


def run(bench: FlowBench, case: RandomFlow, source: Any, steer: Steer, build: Any = None) -> Committed:
    """Run a flow to its end; return what it committed, and the files that it published."""
    bench.clock = lambda: NOW
    folder = bench.folder / "published"
    flow, sink = ab.Flow("both"), ab.parquet(folder)
    (case.build(flow.read(source)) if build is None else build(flow, source)).write(sink)
    checkpoint = bench.new_checkpoint()
    bench.run_steered(
        flow,
        [sink],
        steer,
        checkpoint=checkpoint,
        read_tasks=2,
        kept_batches=50,
        slots=case.slots,
        parallelism=case.parallelism,
    )
    return contents_of(checkpoint), files_in(folder)


@pytest.fixture
def here(tmp_path: Path) -> LocalBench:
    folder = tmp_path / "here"
    folder.mkdir()
    return LocalBench(folder)


@pytest.mark.parametrize("kind", [*KINDS, *HELD_KINDS, *OWN_TIME_KINDS])
def test_a_flow_commits_the_same_on_spark_and_in_this_process(here: LocalBench, bench: SparkBench, kind: str) -> None:
    case = make_random_flow(kind, 20_261_116)
    rows = [row for batch in case.batches() for row in batch]
    source = ab.memory(*frames_of(case.batches(), SCHEMA), max_frames=1)

    (own, own_files), (sparks, spark_files) = (
        run(one, case, source, lambda program: WildSteering(7, program, rows)) for one in (here, bench)
    )
    assert len(own) > 1
    assert own == sparks
    assert own_files == spark_files


def join_itself(flow: ab.Flow, source: Any) -> Any:
    """Return a stream's rows with later ones of the same key."""
    timed = flow.read(source).watermark("ts", delay="5s")
    return timed.join(timed.select("key", "ts", later="whole"), on="key", within=("-1s", "6s"), how="left")


def find_last_rows(flow: ab.Flow, source: Any) -> Any:
    """Return a stream's rows with the one before of the same key."""
    timed = flow.read(source).watermark("ts", delay="5s")
    return timed.join_asof(timed.select("key", "ts", last="whole"), by="key", allow_exact_matches=False)


def read_later(flow: ab.Flow, source: Any) -> Any:
    """Return rows of a source that is read behind the windows which they are joined with."""
    counts = flow.read(source).watermark("ts", delay="5s").key_by("key").window("4s").agg(rows=ab.count())
    later = flow.read(source, name="later").watermark("ts", delay="5s")
    return later.join(counts, on="key", within=("2s", "8s"), how="left")


@pytest.mark.parametrize("build", [join_itself, find_last_rows, read_later])
def test_a_join_commits_the_same_on_spark_and_in_this_process(here: LocalBench, bench: SparkBench, build: Any) -> None:
    case = make_random_flow(KINDS[0], 20_261_116)
    rows = [row for batch in case.batches() for row in batch]
    source = ab.memory(*frames_of(case.batches(), SCHEMA), max_frames=1)
    (own, own_files), (sparks, spark_files) = (
        run(one, case, source, lambda program: WildSteering(7, program, rows), build) for one in (here, bench)
    )
    assert any(commit for commit in own)
    assert own == sparks
    assert own_files and own_files == spark_files


WHOLE = {**running.SCHEMA, "whole": pl.Int32()}


def run_built(bench: FlowBench, flow: ab.Flow, sinks: list[Any], steer: Steer | None = None) -> list[dict[str, Any]]:
    """Run a flow to its end; return what it committed."""
    bench.clock = lambda: NOW
    checkpoint = bench.new_checkpoint()
    bench.run_steered(flow, sinks, steer, checkpoint=checkpoint, read_tasks=2, kept_batches=50, slots=2)
    return contents_of(checkpoint)


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def call_by_row(rows: ab.Stream) -> ab.Stream:
    """Return what a processor says of rows and timers, in the time of their keys."""
    return rows.key_by("key").watermark("ts", delay="4s", per="key").process(Scripted(), schema=OUTPUT)


def call_in_order(rows: ab.Stream) -> ab.Stream:
    """Return what it says if rows wait until they are in order, in the flow's time."""
    return rows.watermark("ts", delay="4s").key_by("key").ordered("ts").process(Scripted(), schema=OUTPUT)


def call_by_frame(rows: ab.Stream) -> ab.Stream:
    """Return what a processor of frames says."""
    return rows.watermark("ts", delay="4s").key_by("key").process(ScriptedFrames(), schema=FRAME_OUTPUT)


def count_rows(rows: ab.Stream) -> ab.Stream:
    """Return windows of rows, one of which is open at the end."""
    return rows.key_by("key").count_window(5, every=2).agg(rows=ab.count(), total=ab.sum("whole"), last=ab.last("ts"))


@pytest.mark.parametrize("build", [call_by_row, call_in_order, call_by_frame, count_rows])
def test_rows_that_are_taken_one_by_one_are_committed_the_same_by_both(
    here: LocalBench, bench: SparkBench, build: Callable[[ab.Stream], ab.Stream]
) -> None:
    batches = as_batches(make_stream(3, count=3))
    rows = [row for batch in batches for row in batch]
    source = ab.memory(*frames_of(batches, WHOLE), max_frames=1)
    committed, published = [], []
    for one in (here, bench):
        folder = one.folder / "published"
        flow, sink = ab.Flow("both"), ab.parquet(folder)
        build(flow.read(source)).write(sink)
        committed.append(run_built(one, flow, [sink], lambda program: WildSteering(7, program, rows)))
        published.append(files_in(folder))
    assert len(committed[0]) > len(batches)
    assert any(any(level["handoffs"]) for commit in committed[0] for level in commit["levels"])
    assert committed[0] == committed[1]
    assert published[0] and published[0] == published[1]


def aggregated(keyed: ab.Stream) -> ab.Stream:
    return keyed.agg(rows=ab.count(), total=ab.sum("whole"), lowest=ab.min("real"), closing=ab.last("real"))


def test_partitions_that_are_slots_commit_the_same_by_both(here: LocalBench, bench: SparkBench) -> None:
    source = partitioned(make_batches(2))
    committed, published = [], []
    for one in (here, bench):
        folders = [one.folder / name for name in ("totals", "windows")]
        flow, sinks = ab.Flow("both"), [ab.parquet(folder) for folder in folders]
        rows = flow.read(source).watermark("ts", delay="3s").key_by("key", exchange="ahead")
        aggregated(rows).write(sinks[0])
        aggregated(rows.window("8s", every="4s")).write(sinks[1])
        committed.append(run_built(one, flow, sinks))
        published.append([files_in(folder) for folder in folders])
    assert all(commit["engine"]["partitions"] for commit in committed[0])
    assert committed[0] == committed[1]
    assert all(published[0]) and published[0] == published[1]


def test_results_that_meet_in_a_store_are_the_same_by_both(here: LocalBench, bench: SparkBench) -> None:
    source = ab.memory(*frames_of(make_batches(4)), max_frames=1)
    committed, stored = [], []
    for one in (here, bench):
        store = one.folder / "store.sqlite"
        flow = ab.Flow("both")
        keyed = (
            flow.read(source)
            .watermark("ts", delay="3s")
            .key_by("key", exchange="global", merge=ab.LocalMerge(at="rows >= 4"))
        )
        aggregated(keyed.window("10s", every="4s")).write(ab.global_store(store, table="windows"))
        committed.append(run_built(one, flow, []))
        stored.append(ab.read_global_store(store, "windows").sort("key", "window_start"))
    assert any(any(commit["lanes"].values()) for commit in committed[0]), "nothing is held back to be merged"
    assert committed[0] == committed[1]
    assert stored[0].height
    assert_frame_equal(*stored)
