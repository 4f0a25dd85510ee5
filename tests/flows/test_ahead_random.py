"""Flows made by chance over partitioned sources, which *auto* runs without an exchange, answer as the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.model import PlannedSplits, ReadOutcome, Split
from flows.random_flows import KINDS, OWN_TIME_KINDS, SCHEMA, make_random_flow
from flows.running import FlowBench, frames_of
from oracle import NEVER, assert_same_batches

SEEDS = (2,)


@dataclass(frozen=True)
class PartitionedBatches:
    """Batches as given, each cut into the partitions that a partitioner says; not every one has rows in each."""

    folder: Path
    count: int
    partitioned_by: ab.Partitioner

    label = "partitioned batches"

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        return SCHEMA

    def check(self) -> None:
        """Nothing can be wrong."""

    def planner(self) -> PartitionedBatches:
        return self

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        number = (position or {"next": 0})["next"]
        files = sorted(self.folder.glob(f"{number}-*.arrow"))
        splits = tuple({"partition": file.stem.split("-")[1], "path": str(file)} for file in files)
        return PlannedSplits(splits, {"next": number + 1} if splits else position or {"next": 0})

    def bound(self) -> None:
        """No more comes."""

    def more(self, position: dict[str, Any] | None) -> bool:
        return (position or {"next": 0})["next"] < self.count

    def read(self, split: Split) -> Iterator[ReadOutcome]:
        yield ReadOutcome(pl.read_ipc(split["path"]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [*KINDS, *OWN_TIME_KINDS])
def test_a_random_flow_over_partitions_answers_as_the_oracle(
    bench: FlowBench, kind: str, seed: int, tmp_path: Path
) -> None:
    # Where keys go is the partitioner's to say, so the flow says nothing of it.
    case = replace(make_random_flow(kind, seed), parallelism="operator-set", routing="auto")
    strategy = ("hash", "modulo", "consistent-hash")[seed % 3]
    partitioner = ab.Partitioner(strategy, partitions=1 + seed % 4, keys=case.keys)
    extents = frames_of(case._extents(), SCHEMA)
    for number, frame in enumerate(extents):
        for partition, part in partitioner.split_frame(frame):
            part.write_ipc(tmp_path / f"{number}-{partition}.arrow")
    flow, sink = ab.Flow("random"), ab.to_memory()
    case.build(flow.read(PartitionedBatches(tmp_path, len(extents), partitioner))).write(sink)
    assert "partitions are slots" in flow.explain()
    got = bench.run_flow(flow, [sink], drain=case.drain, slots=case.slots, local_merge=case.local_merge)
    # Who is a reader and a slot in one does not know, while the batch runs, how far the others are.
    expected = case.answer(at_once_from=NEVER)
    assert_same_batches(sink.batches(), expected.batches)
    assert got.late_rows == expected.late_rows
    if not case.second_hop:
        assert sum(progress.exchanged_bytes for progress in got.progress) == 0
