"""Rows that are held back, partial results that meet in a store: on Spark, answers are those of a plain exchange.

Readers that hold rows back cannot know which windows their batch will fire: those wait for the next batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError, SinkError
from anabranch.query.streams import Stream
from anabranch.state import Checkpoint, Manifest, open_store
from anabranch.state.repair import verify
from flows.running import SCHEMA, FlowBench, LocalBench, Outcome, frames_of, reading
from oracle import assert_same_batches, assert_same_rows


def stream_of(seed: int, batches: int = 6, rows: int = 40) -> list[list[dict[str, Any]]]:
    chance = random.Random(seed)
    return [
        [reading(chance.randrange(7), number * 6 + chance.randrange(-32, 32) / 4) for _ in range(rows)]
        for number in range(batches)
    ]


def windowed(keyed: Stream, every: str = "10s") -> Stream:
    return keyed.window("10s", every=every).agg(rows=ab.count(), total=ab.sum("whole"), lowest=ab.min("real"))


def keyed(stream: Stream, **options: Any) -> Stream:
    return stream.watermark("ts", delay="3s").key_by("key", **options)


def manifests(checkpoint: str) -> list[Manifest]:
    found = Checkpoint(open_store(checkpoint))
    return [found.load(batch) for batch in found.batches()]


def a_batch_later(outcome: Outcome) -> dict[int, list[dict[str, Any]]]:
    """Return results by batch as they come if windows wait for the next one; the last batch drains."""
    last = len(outcome.progress) - 1
    later: dict[int, list[dict[str, Any]]] = {}
    for batch, frame in outcome.batches:
        later.setdefault(min(batch + 1, last), []).extend(frame.to_dicts())
    return later


def test_held_rows_are_state_of_the_checkpoint_and_windows_answer_the_same(bench: FlowBench) -> None:
    batches = stream_of(1)
    expected = bench.run(batches, lambda stream: windowed(keyed(stream)))
    checkpoint = bench.new_checkpoint()
    merge = ab.LocalMerge(at="window")
    got = bench.run(batches, lambda stream: windowed(keyed(stream, merge=merge)), checkpoint=checkpoint)
    assert_same_batches(got.batches, a_batch_later(expected))
    assert got.late_rows == expected.late_rows
    assert not verify(Checkpoint(open_store(checkpoint)))


def one_frame_a_batch(flow: ab.Flow, batches: list[list[dict[str, Any]]]) -> Stream:
    return flow.read(ab.memory(*frames_of(batches), max_frames=1))


def received_rows(outcome: Outcome) -> int:
    return sum(sum(entry.slot_rows) for entry in outcome.progress)


def run_in_steps(
    bench: FlowBench, options: dict[str, Any], checkpoint: str, every: str = "10s", seed: int = 2
) -> Outcome:
    flow, sink = ab.Flow("steps"), ab.to_memory()
    windowed(keyed(one_frame_a_batch(flow, stream_of(seed)), **options), every).write(sink)
    return bench.run_flow(flow, [sink], checkpoint=checkpoint)


@pytest.fixture(scope="module")
def run_plainly(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Outcome]:
    """Runs windows over a stream behind a plain exchange: the measure for many tests, so each is run once."""
    bench = LocalBench(tmp_path_factory.mktemp("plain"))

    @cache
    def run(every: str, seed: int) -> Outcome:
        return run_in_steps(bench, {"exchange": "routed"}, bench.new_checkpoint(), every, seed)

    return run


@pytest.mark.parametrize("every", ["10s", "4s"])
@pytest.mark.parametrize(
    "merge",
    [
        ab.LocalMerge(at="window"),
        ab.LocalMerge(count=60),
        ab.LocalMerge(delay="1h", slice="1s"),
        ab.LocalMerge(at="rows >= 4"),
    ],
    ids=["window", "count", "delay", "expression"],
)
def test_every_mode_answers_as_a_plain_exchange_a_batch_later(
    bench: FlowBench, run_plainly: Callable[[str, int], Outcome], merge: ab.LocalMerge, every: str
) -> None:
    expected = run_plainly(every, 2)
    checkpoint = bench.new_checkpoint()
    got = run_in_steps(bench, {"merge": merge}, checkpoint, every)
    assert_same_batches(got.batches, a_batch_later(expected))
    committed = manifests(checkpoint)
    assert any(manifest.reader_buffers for manifest in committed), "something was held back"
    assert not committed[-1].reader_buffers, "a drain sends everything"
    assert received_rows(got) < received_rows(expected)


def test_state_that_is_read_has_what_readers_hold(bench: FlowBench) -> None:
    checkpoint, plain = bench.new_checkpoint(), bench.new_checkpoint()
    flows = {}
    for place, options in ((plain, {}), (checkpoint, {"merge": ab.LocalMerge(at="window")})):
        flow = flows[place] = ab.Flow("steps")
        windowed(keyed(one_frame_a_batch(flow, stream_of(2)), **options)).write(ab.to_memory())
        bench.run_flow(flow, [], checkpoint=place, drain=False)
    held = flows[checkpoint].read_state(checkpoint)
    assert manifests(checkpoint)[-1].reader_buffers
    assert_same_rows(held.to_dicts(), flows[plain].read_state(plain).to_dicts(), "state")


def test_a_flow_that_no_longer_holds_rows_back_sends_what_it_held(
    bench: FlowBench, run_plainly: Callable[[str, int], Outcome]
) -> None:
    checkpoint = bench.new_checkpoint()
    expected = run_plainly("10s", 2)
    flow, first, second = ab.Flow("steps"), ab.to_memory(), ab.to_memory()
    rows = stream_of(2)
    windowed(keyed(one_frame_a_batch(flow, rows), merge=ab.LocalMerge(at="window"))).write(first)
    bench.run_flow(flow, [first], checkpoint=checkpoint, drain=False)
    assert manifests(checkpoint)[-1].reader_buffers
    again = ab.Flow("steps")
    windowed(keyed(one_frame_a_batch(again, rows), exchange="routed")).write(second)
    bench.run_flow(again, [second], checkpoint=checkpoint)
    got = [row for sink in (first, second) for row in sink.frame().to_dicts()]
    assert_same_rows(got, expected.rows, "both runs together")


def test_rows_that_are_held_back_keep_a_flow_from_taking_partitions_as_slots(bench: FlowBench) -> None:
    checkpoint = bench.new_checkpoint()
    partitioner = ab.Partitioner("hash", partitions=2, keys="key")
    source = ab.memory(schema=SCHEMA, max_frames=2)
    for frame in frames_of(stream_of(2)):
        for partition, part in partitioner.split_frame(frame):
            source.add(part, f"p-{partition}")

    def run(drain: bool, **options: Any) -> list[Any]:
        flow, sink = ab.Flow("steps"), ab.to_memory()
        windowed(keyed(flow.read(source), **options)).write(sink)
        return bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=drain).progress

    run(False, merge=ab.LocalMerge(at="window"))
    before = manifests(checkpoint)
    assert before[-1].reader_buffers
    with pytest.raises(CheckpointError, match=r'readers hold rows back.*exchange="routed" and without merge='):
        run(False, exchange="ahead")
    assert manifests(checkpoint) == before
    run(True, exchange="routed")
    run(False, exchange="ahead")


def test_running_aggregates_that_are_held_back_end_with_the_same_values(bench: FlowBench) -> None:
    def totals(stream: Stream, **options: Any) -> Stream:
        return keyed(stream, **options).agg(rows=ab.count(), total=ab.sum("whole"))

    finals = []
    for options in ({}, {"merge": ab.LocalMerge(count=100)}):
        flow, sink = ab.Flow("totals"), ab.to_memory()
        totals(one_frame_a_batch(flow, stream_of(3)), **options).write(sink)
        outcome = bench.run_flow(flow, [sink])
        finals.append({row["key"]: row for row in outcome.rows})
        updates = len(outcome.rows)
    assert finals[0] == finals[1]
    assert updates < len(stream_of(3)) * 7, "updates came less often"


# -- global merge --------------------------------------------------------------------------------------------------


def run_global(bench: FlowBench, store: Path, checkpoint: str, every: str = "10s", **options: Any) -> Any:
    flow = ab.Flow("global")
    stream = keyed(one_frame_a_batch(flow, stream_of(4)), exchange="global", **options)
    windowed(stream, every).write(ab.global_store(store, table="windows"))
    return bench.run_flow(flow, [], checkpoint=checkpoint)


@pytest.mark.parametrize("every", ["10s", "4s"])
@pytest.mark.parametrize("merge", [None, ab.LocalMerge(count=60), ab.LocalMerge(at="rows >= 4")], ids=str)
def test_partial_results_meet_in_a_store_without_an_exchange(
    bench: FlowBench,
    run_plainly: Callable[[str, int], Outcome],
    tmp_path: Path,
    merge: ab.LocalMerge | None,
    every: str,
) -> None:
    expected = run_plainly(every, 4)
    got = run_global(bench, tmp_path / "store.sqlite", bench.new_checkpoint(), every, merge=merge)
    stored = ab.read_global_store(tmp_path / "store.sqlite", "windows")
    assert_same_rows(stored.to_dicts(), expected.rows, "the store")
    assert sum(entry.exchanged_bytes for entry in got.progress) == 0
    assert got.late_rows == expected.late_rows


def test_a_batch_that_is_published_again_is_merged_once(bench: FlowBench, tmp_path: Path) -> None:
    checkpoint, store = bench.new_checkpoint(), tmp_path / "store.sqlite"
    run_global(bench, store, checkpoint)
    before = ab.read_global_store(store, "windows")
    # Spark's own log forgets the last batch: it is run, found committed, and published again.
    last = sorted((Path(checkpoint) / "spark" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))[-1]
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    run_global(bench, store, checkpoint)
    assert_same_rows(ab.read_global_store(store, "windows").to_dicts(), before.to_dicts(), "the store")


def test_a_store_that_was_emptied_stops_the_flow(bench: FlowBench, tmp_path: Path) -> None:
    checkpoint, store = bench.new_checkpoint(), tmp_path / "store.sqlite"
    run_global(bench, store, checkpoint)
    store.unlink()
    with pytest.raises(SinkError, match="lost results that were merged into it"):
        run_global(bench, store, checkpoint)


def test_an_operator_cannot_change_between_slots_and_a_store(bench: FlowBench, tmp_path: Path) -> None:
    checkpoint = bench.new_checkpoint()
    run_global(bench, tmp_path / "store.sqlite", checkpoint)
    flow, sink = ab.Flow("global"), ab.to_memory()
    windowed(keyed(one_frame_a_batch(flow, stream_of(4)))).write(sink)
    with pytest.raises(CheckpointError, match="exchange was global"):
        bench.run_flow(flow, [sink], checkpoint=checkpoint)


def test_slots_hold_rows_back_for_the_next_operator_and_it_answers_the_same(bench: FlowBench) -> None:
    def run(**options: Any) -> tuple[Outcome, str]:
        checkpoint = bench.new_checkpoint()
        flow, sink = ab.Flow("two-hops"), ab.to_memory()
        first = windowed(keyed(one_frame_a_batch(flow, stream_of(4))))
        second = first.with_columns(third=pl.col("key") % 3).key_by("third", **options).window("60s")
        second.agg(windows=ab.count(), rows=ab.sum("rows"), name="second").write(sink)
        return bench.run_flow(flow, [sink], checkpoint=checkpoint), checkpoint

    expected, _ = run()
    got, checkpoint = run(merge=ab.LocalMerge(at="window"))
    assert_same_rows(got.rows, expected.rows, "both hops")
    held = [manifest.reader_buffers for manifest in manifests(checkpoint)]
    assert any("second" in buffers for buffers in held), "something was held back"
    assert not held[-1]


def made_rows(batches: range, keys: int, rows: int = 12_000) -> list[pl.DataFrame]:
    """Return frames of rows in one window each, of so many keys, or each of a key of its own."""
    frames = []
    for batch in batches:
        chance = random.Random(batch)
        chosen = [chance.randrange(keys) if keys else batch * rows + number for number in range(rows)]
        frames.append(
            pl.DataFrame(
                {"key": chosen, "ts": [reading(0, batch * 5)["ts"]] * rows, "whole": [1] * rows, "real": [0.5] * rows},
                schema=SCHEMA,
            )
        )
    return frames


def test_auto_merges_only_while_it_is_worth_it_and_answers_the_same_through_switches_and_restarts(
    bench: FlowBench,
) -> None:
    batches = [*made_rows(range(5), keys=0), *made_rows(range(5, 12), keys=50)]

    def run(checkpoint: str, frames: list[pl.DataFrame], drain: bool, **options: Any) -> Outcome:
        flow, sink = ab.Flow("auto"), ab.to_memory()
        windowed(keyed(flow.read(ab.memory(*frames, max_frames=1)), **options)).write(sink)
        return bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=drain)

    expected = run(bench.new_checkpoint(), batches, True, exchange="routed")
    checkpoint = bench.new_checkpoint()
    first = run(checkpoint, batches[:4], False)
    # The driver that goes on knows what the last one chose.
    second = run(checkpoint, batches, True)
    assert_same_rows([*first.rows, *second.rows], expected.rows, "both runs together")
    shown = [entry.exchanges[0] for entry in (*first.progress, *second.progress) if entry.rows_in]
    assert [entry.way for entry in shown[:5]] == ["merged", "merged", "plain", "plain", "plain"]
    assert shown[-1].way == "merged", "keys repeat again"
    plain = [entry.sent_rows for entry in shown if entry.way == "plain"]
    assert plain == [12_000] * len(plain)
    assert max(entry.sent_rows for entry in shown[-2:] if entry.way == "merged") <= 100
    assert shown[-1].sent_bytes < shown[4].sent_bytes / 20
    assert all(entry.left_share is not None and entry.costs for entry in shown[1:])
    said = [change for entry in (*first.progress, *second.progress) for change in entry.changes]
    switches = [change.split(":")[1] for change in said if ": rows " in change]
    assert switches == [" rows go as they are", " rows are merged first"]
