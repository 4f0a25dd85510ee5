"""The same flows on Spark and in this process: equal manifests, files of state and results, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from flows.commits import contents_of
from flows.random_flows import HELD_KINDS, KINDS, OWN_TIME_KINDS, SCHEMA, RandomFlow, make_random_flow
from flows.running import FlowBench, LocalBench, Steer, frames_of
from flows.wild_steering import WildSteering
from spark.fixtures import SparkBench

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
    return contents_of(checkpoint), {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


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
