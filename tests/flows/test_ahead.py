"""Partitions as slots: no exchange, and the answers of the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError, FlowError, SourceError
from anabranch.query.streams import Stream
from anabranch.routing.bases.partitions import PartitionRoute
from anabranch.routing.phases import PhasedRoutes
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.store import open_store
from flows.running import SCHEMA, FlowBench, frames_of, make_batches, reading
from oracle import (
    NEVER,
    Answer,
    Running,
    Sessions,
    Windows,
    answer_flow,
    assert_same_batches,
    assert_same_rows,
    compute,
)

SECOND_US = 1_000_000
WANTED = {"rows": ("count", None), "total": ("sum", "whole"), "closing": ("last", "real")}
PARITIES = {"keys": ("count", None), "rows": ("sum", "rows")}
PARTITIONS = 3


BATCHES = make_batches(4)


def aggregated(stream: Stream) -> Stream:
    return stream.agg(rows=ab.count(), total=ab.sum("whole"), closing=ab.last("real"))


def shape(group: Any) -> list[dict[str, Any]]:
    return [compute(group, WANTED)]


def answer(batches: Any, *operators: Any, drain: bool = True, at_once_from: int = NEVER) -> Answer:
    """Return what the oracle says; a partition's task cannot know in time how far the others are, so windows wait."""
    return answer_flow(batches, operators, time="ts", delay_us=3 * SECOND_US, drain=drain, at_once_from=at_once_from)


def partitioned(
    batches: list[list[dict[str, Any]]], partitioner: ab.Partitioner | None = None, partitions: int = PARTITIONS
) -> Any:
    """Return a source of these batches, each cut into partitions; every partition has rows in every batch."""
    partitioner = partitioner or ab.Partitioner("hash", partitions=partitions, keys="key")
    source = ab.memory(schema=SCHEMA, max_frames=partitions)
    for frame in frames_of(batches):
        parts = dict(partitioner.split_frame(frame))
        assert len(parts) == partitions
        for partition, part in parts.items():
            source.add(part, f"p-{partition}")
    return source


def run(
    bench: FlowBench, source: Any, build: Callable[[Stream], Stream], sink: Any = None, **settings: Any
) -> tuple[Any, Any]:
    flow = ab.Flow("test")
    sink = sink or ab.to_memory()
    build(flow.read(source).watermark("ts", delay="3s").key_by("key", exchange="ahead")).write(sink)
    return bench.run_flow(flow, [sink], **settings), sink


CASES: dict[str, tuple[Callable[[Stream], Stream], Any]] = {
    "running": (aggregated, lambda: Running(["key"], shape)),
    "tumbling": (
        lambda stream: aggregated(stream.window("8s")),
        lambda: Windows(["key"], shape, 8 * SECOND_US, 8 * SECOND_US),
    ),
    "sliding": (
        lambda stream: aggregated(stream.window("8s", every="4s")),
        lambda: Windows(["key"], shape, 8 * SECOND_US, 4 * SECOND_US),
    ),
    "sessions": (lambda stream: aggregated(stream.session("2s")), lambda: Sessions(["key"], shape, 2 * SECOND_US)),
}


@pytest.mark.parametrize("local_merge", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_partitions_as_slots_answer_as_the_oracle_and_exchange_nothing(
    bench: FlowBench, case: str, local_merge: bool
) -> None:
    build, operator = CASES[case]
    expected = answer(BATCHES, operator())
    got, _ = run(bench, partitioned(BATCHES), build, local_merge=local_merge)
    # Rows of a batch come by partition, so among rows of equal time another may be the last: none are equal here.
    assert_same_batches(got.batches, expected.batches)
    assert got.late_rows == expected.late_rows
    assert [progress.exchanged_bytes for progress in got.progress] == [0] * len(got.progress)
    assert all(len(progress.slot_rows) == PARTITIONS for progress in got.progress)


def test_windows_fire_in_batches_without_data(bench: FlowBench) -> None:
    expected = answer(BATCHES, CASES["tumbling"][1](), drain=False)
    got, _ = run(bench, partitioned(BATCHES), CASES["tumbling"][0], drain=False)
    assert_same_batches(got.batches, expected.batches)
    assert len(got.progress) == expected.batch_count > len(BATCHES)


def test_later_levels_exchange_as_usual(bench: FlowBench) -> None:
    def build(stream: Stream) -> Stream:
        windows = aggregated(stream.window("8s")).with_columns(parity=pl.col("key") % 3)
        return windows.key_by("parity").window("16s").agg(keys=ab.count(), rows=ab.sum("rows"))

    def first(group: Any) -> list[dict[str, Any]]:
        return [compute(group, WANTED) | {"parity": group[0].row["key"] % 3}]

    def second(group: Any) -> list[dict[str, Any]]:
        return [compute(group, PARITIES)]

    chain = [
        Windows(["key"], first, 8 * SECOND_US, 8 * SECOND_US),
        Windows(["parity"], second, 16 * SECOND_US, 16 * SECOND_US),
    ]
    expected = answer(BATCHES, *chain)
    got, _ = run(bench, partitioned(BATCHES), build)
    assert_same_batches(got.batches, expected.batches)
    assert sum(progress.exchanged_bytes for progress in got.progress) > 0


def test_several_operators_share_the_partitions(bench: FlowBench) -> None:
    flow, sinks = ab.Flow("test"), [ab.to_memory(), ab.to_memory()]
    keyed = flow.read(partitioned(BATCHES)).watermark("ts", delay="3s").key_by("key", exchange="ahead")
    aggregated(keyed).write(sinks[0])
    aggregated(keyed.window("8s")).write(sinks[1])
    got = bench.run_flow(flow, sinks)
    for sink, case in zip(sinks, ("running", "tumbling"), strict=True):
        expected = answer(BATCHES, CASES[case][1]())
        assert_same_batches(sink.batches(), expected.batches)
    assert sum(progress.exchanged_bytes for progress in got.progress) == 0


def test_restarts_and_new_partitions_do_not_change_the_answers(bench: FlowBench) -> None:
    # Keys move to new partitions where windows begin.
    partitioner = ab.Partitioner("least-count", partitions=2, keys="key", time="ts", edges="8s")
    source, sink = ab.memory(schema=SCHEMA, max_frames=None), ab.to_memory()
    checkpoint = bench.new_checkpoint()
    slots = []
    for number, frame in enumerate(frames_of(BATCHES)):
        if number == 2:
            partitioner.grow(4)
        for partition, part in partitioner.split_frame(frame):
            source.add(part, str(partition))
        run(bench, source, CASES["tumbling"][0], sink, checkpoint=checkpoint, trigger="once", drain=False)
        level = Checkpoint(open_store(checkpoint)).latest().levels[0]
        base = PhasedRoutes.from_json(level.routes).routes.base
        assert isinstance(base, PartitionRoute)
        slots.append(base.slots)
    run(bench, source, CASES["tumbling"][0], sink, checkpoint=checkpoint)
    assert slots == [2, 2, 4, 4]
    expected = answer(BATCHES, CASES["tumbling"][1]())
    assert_same_rows(sink.frame().to_dicts(), expected.rows)


def test_folders_are_partitions(bench: FlowBench, tmp_path: Path) -> None:
    partitioner = ab.Partitioner("modulo", partitions=PARTITIONS, keys="key")
    for number, frame in enumerate(frames_of(BATCHES)):
        for partition, part in partitioner.split_frame(frame):
            folder = tmp_path / "in" / f"partition={partition}"
            folder.mkdir(parents=True, exist_ok=True)
            part.write_parquet(folder / f"{number}.parquet")
    source = ab.files(
        tmp_path / "in", format="parquet", schema=SCHEMA, recursive=True, partitioned_by=partitioner, max_bytes=None
    )
    got, _ = run(bench, source, CASES["tumbling"][0])
    everything = [row for batch in BATCHES for row in batch]
    expected = answer([everything], CASES["tumbling"][1]())
    assert_same_rows(got.rows, expected.rows)
    assert sum(progress.exchanged_bytes for progress in got.progress) == 0


def test_a_key_in_two_partitions_stops_the_flow_before_the_commit(bench: FlowBench) -> None:
    source = partitioned(BATCHES[:2])
    broken = frames_of(BATCHES[2:3])[0]
    for partition in range(PARTITIONS):
        source.add(broken.filter(pl.col("whole") % PARTITIONS == partition), f"p-{partition}")
    checkpoint = bench.new_checkpoint()
    with pytest.raises(SourceError, match=r"partitions \d and \d.*exchange=\"routed\"") as caught:
        run(bench, source, CASES["tumbling"][0], checkpoint=checkpoint)
    assert "key" in str(caught.value)
    assert Checkpoint(open_store(checkpoint)).batches()[-1] == 1


def test_a_key_that_was_elsewhere_batches_ago_is_found(bench: FlowBench) -> None:
    source = ab.memory(schema=SCHEMA, max_frames=1)
    for partition, key in ((0, 1), (1, 2), (1, 1)):
        source.add(frames_of([[reading(key, 1)]])[0], str(partition))
    with pytest.raises(SourceError, match=r"'1'.*partitions 0 and 1"):
        run(bench, source, CASES["tumbling"][0])


def test_every_row_is_checked_where_the_partitioner_is_known(bench: FlowBench, tmp_path: Path) -> None:
    told = ab.Partitioner("hash", partitions=PARTITIONS, keys="key")
    other = ab.Partitioner("modulo", partitions=PARTITIONS, keys="key")
    for partition, part in other.split_frame(frames_of(BATCHES[:1])[0]):
        folder = tmp_path / "in" / str(partition)
        folder.mkdir(parents=True)
        part.write_parquet(folder / "0.parquet")
    source = ab.files(tmp_path / "in", format="parquet", schema=SCHEMA, recursive=True, partitioned_by=told)
    with pytest.raises(SourceError, match=r"Partitioner\('hash'.*belongs into"):
        run(bench, source, CASES["tumbling"][0])


def test_rows_outside_any_partition_are_refused(bench: FlowBench) -> None:
    source = ab.memory(*frames_of(BATCHES[:1]))
    with pytest.raises(SourceError, match=r'no number.*exchange="routed"'):
        run(bench, source, CASES["tumbling"][0])


def test_sources_without_partitions_are_refused_before_the_first_batch(bench: FlowBench, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = ab.files(tmp_path / "in", format="parquet", schema=SCHEMA)
    with pytest.raises(FlowError, match="numbered folders"):
        run(bench, source, CASES["tumbling"][0])


def test_an_operator_beside_it_with_an_exchange_is_refused(bench: FlowBench) -> None:
    flow, sinks = ab.Flow("test"), [ab.to_memory(), ab.to_memory()]
    rows = flow.read(partitioned(BATCHES[:1])).watermark("ts")
    aggregated(rows.key_by("key", exchange="ahead")).write(sinks[0])
    aggregated(rows.key_by("whole")).write(sinks[1])
    with pytest.raises(FlowError, match="say the same of all"):
        bench.run_flow(flow, sinks)


def run_routed(bench: FlowBench, source: Any, build: Callable[[Stream], Stream], sink: Any, **settings: Any) -> None:
    flow = ab.Flow("test")
    build(flow.read(source).watermark("ts", delay="3s").key_by("key", exchange="routed")).write(sink)
    bench.run_flow(flow, [sink], **settings)


@pytest.mark.parametrize("case", CASES)
def test_a_flow_whose_topic_broke_its_promise_goes_on_with_an_exchange(bench: FlowBench, case: str) -> None:
    build, operator = CASES[case]
    source, sink, checkpoint = partitioned(BATCHES[:2]), ab.to_memory(), bench.new_checkpoint()
    for batch in frames_of(BATCHES[2:]):
        for partition in range(PARTITIONS):
            source.add(batch.filter(pl.col("whole") % PARTITIONS == partition), f"p-{partition}")
    with pytest.raises(SourceError, match="break the promise"):
        run(bench, source, build, sink, checkpoint=checkpoint)
    run_routed(bench, source, build, sink, checkpoint=checkpoint)
    rows = [
        [row for partition in range(PARTITIONS) for row in batch if row["whole"] % PARTITIONS == partition]
        for batch in BATCHES[2:]
    ]
    expected = answer([*BATCHES[:2], *rows], operator(), at_once_from=2)
    assert_same_batches(sink.batches(), expected.batches)


def test_state_by_key_goes_to_the_partitions_that_a_known_partitioner_says(bench: FlowBench, tmp_path: Path) -> None:
    partitioner = ab.Partitioner("modulo", partitions=PARTITIONS, keys="key")
    sink, checkpoint = ab.to_memory(), bench.new_checkpoint()

    def source(known: ab.Partitioner | None) -> Any:
        return ab.files(
            tmp_path / "in", format="parquet", schema=SCHEMA, recursive=True, max_bytes=None, partitioned_by=known
        )

    for number, frame in enumerate(frames_of(BATCHES)):
        for partition, part in partitioner.split_frame(frame):
            folder = tmp_path / "in" / str(partition)
            folder.mkdir(parents=True, exist_ok=True)
            part.write_parquet(folder / f"{number}.parquet")
        once = {"checkpoint": checkpoint, "trigger": "once", "drain": False}
        if number < 2:
            run_routed(bench, source(None), CASES["tumbling"][0], sink, **once)
        elif number == 2:
            with pytest.raises(CheckpointError, match="partitioned_by="):
                run(bench, source(None), CASES["tumbling"][0], sink, **once)
            run(bench, source(partitioner), CASES["tumbling"][0], sink, **once)
        else:
            run(bench, source(partitioner), CASES["tumbling"][0], sink, checkpoint=checkpoint)
    expected = answer(BATCHES, CASES["tumbling"][1]())
    assert_same_rows(sink.frame().to_dicts(), expected.rows)
