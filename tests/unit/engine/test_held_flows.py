"""Flows whose rows wait, or go now this way and now that: results and late rows are those of a plain exchange.

They run on the driver's own batch runner, and drivers are lost between batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.model import BatchProgress
from anabranch.query.streams import Stream
from anabranch.state import Checkpoint, open_store
from anabranch.state.manifest import Manifest
from anabranch.testing import FlowTester
from oracle import assert_same_rows
from property_tests import tries

START = datetime(2026, 1, 1)
SCHEMA: dict[str, pl.DataType] = {"key": pl.Int64(), "ts": pl.Datetime("us"), "whole": pl.Int64()}
BATCHES = 6
MERGES = (
    ab.LocalMerge(at="window"),
    ab.LocalMerge(count=25),
    ab.LocalMerge(delay="0s"),
    ab.LocalMerge(at=pl.col("rows") >= 3),
)

Options = dict[str, Any]
Operator = Callable[[Stream, Options, Options], Stream]
"""The stream, and what is said of the first and of the second exchange."""


def totals(windowed: Stream, name: str = "first") -> Stream:
    return windowed.agg(rows=ab.count(), total=ab.sum("whole"), name=name)


def again(stream: Stream, second: Options) -> Stream:
    keyed = stream.with_columns(third=pl.col("key") % 3).key_by("third", **second)
    return keyed.window("30s", every="15s").agg(rows=ab.count(), all=ab.sum("rows"), name="second")


def sessions_of_windows(stream: Stream, first: Options, second: Options) -> Stream:
    windows = totals(timed(stream).key_by("key", **first).window("10s"))
    return windows.key_by("key", **second).session("15s").agg(rows=ab.count(), all=ab.sum("rows"), name="second")


def timed(stream: Stream, **clock: Any) -> Stream:
    return stream.watermark("ts", delay="3s", **clock)


OPERATORS: dict[str, Operator] = {
    "tumbling": lambda s, first, _: totals(timed(s).key_by("key", **first).window("10s")),
    "sliding": lambda s, first, _: totals(timed(s).key_by("key", **first).window("10s", every="4s")),
    "session": lambda s, first, _: totals(timed(s).key_by("key", **first).session("4s")),
    "group": lambda s, first, _: totals(timed(s, per="group", groups=3).key_by("key", **first).window("10s")),
    "group session": lambda s, first, _: totals(timed(s, per="group", groups=3).key_by("key", **first).session("4s")),
    "two hops": lambda s, first, second: again(totals(timed(s).key_by("key", **first).window("10s")), second),
    "behind sessions": lambda s, first, second: again(totals(timed(s).key_by("key", **first).session("4s")), second),
}

NEVER_WAITS: dict[str, Operator] = {"sessions of windows": sessions_of_windows}
"""What windows emit is behind the watermark when it comes, so that it may decide at once what is late."""


def stream_of(seed: int) -> list[list[pl.DataFrame]]:
    """Return, by batch and reader, rows in some disorder; now and then a batch without any."""
    chance = random.Random(seed)
    batches = []
    for number in range(BATCHES):
        readers = [
            [
                (chance.randrange(8), START + timedelta(seconds=number * 7 + chance.randrange(-40, 40) / 4), 1)
                for _ in range(chance.choice([0, 5, 30]))
            ]
            for _ in range(chance.randint(1, 3))
        ]
        batches.append([pl.DataFrame(rows, schema=SCHEMA, orient="row") for rows in readers])
    return batches


def start(build: Callable[[Stream], Stream]) -> FlowTester:
    flow = ab.Flow("test")
    build(flow.read(ab.memory(schema=SCHEMA))).write(ab.console())
    return FlowTester(flow, slots=2, buckets=64, read_tasks=3)


def read(tester: FlowTester, readers: Sequence[pl.DataFrame]) -> BatchProgress:
    """Run a batch over frames, each of a partition of its own, be there rows in them or not."""
    for number, frame in enumerate(readers):
        if frame.height:
            tester.add(frame, partition=f"p{number}")
    return tester.tick().progress


def manifest_of(tester: FlowTester) -> Manifest:
    manifest = Checkpoint(open_store(tester.checkpoint)).latest()
    assert manifest is not None
    return manifest


def run(operator: Operator, seed: int, first: Options, second: Options, lost: set[int]) -> FlowTester:
    tester = start(lambda stream: operator(stream, first, second))
    for number, readers in enumerate(stream_of(seed)):
        read(tester, readers)
        if number in lost:
            tester.kill()
    tester.tick()
    tester.tick()
    tester.drain()
    return tester


@pytest.mark.parametrize("name", OPERATORS | NEVER_WAITS)
@tries(6)
@given(
    seed=st.integers(0, 2**32),
    merges=st.tuples(st.sampled_from(MERGES), st.sampled_from(MERGES[:3])),
    lost=st.sets(st.integers(0, BATCHES)),
)
def test_flows_that_hold_rows_back_answer_as_a_plain_exchange(
    name: str,
    seed: int,
    merges: tuple[ab.LocalMerge, ab.LocalMerge],
    lost: set[int],
) -> None:
    operator, routed = (OPERATORS | NEVER_WAITS)[name], {"exchange": "routed"}
    first, second = ({"exchange": "local", "merge": merge} for merge in merges)
    with run(operator, seed, routed, routed, set()) as plain, run(operator, seed, first, second, lost) as held:
        assert_same_rows(held.results().to_dicts(), plain.results().to_dicts(), name)
        assert held.late_count == plain.late_count
        assert not manifest_of(held).reader_buffers, "a drain sends everything"


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_do_wait_and_are_state_that_can_be_read(name: str) -> None:
    waits = {"exchange": "local", "merge": ab.LocalMerge(at="window")}
    held, plain = (start(lambda s, o=options: OPERATORS[name](s, o, o)) for options in (waits, {}))
    holding: set[str] = set()
    with held, plain:
        for readers in stream_of(11):
            for flow in (held, plain):
                read(flow, readers)
            holding |= set(manifest_of(held).reader_buffers)
        # Windows of the one fire a batch later, with what was due.
        for flow in (held, plain):
            flow.tick()
        assert holding == ({"first", "second"} if "hops" in name or "behind" in name else {"first"})
        assert_same_rows(held.state("first").to_dicts(), plain.state("first").to_dicts(), "state")


def rows_of_keys(batch: int, keys: int | None, count: int = 12_000) -> pl.DataFrame:
    """Return rows of some keys, or each of a key of its own."""
    chance = random.Random(batch)
    chosen = [chance.randrange(keys) if keys else batch * count + number for number in range(count)]
    times = [START + timedelta(seconds=batch)] * count
    return pl.DataFrame({"key": chosen, "ts": times, "whole": [1] * count}, schema=SCHEMA)


@pytest.mark.thorough
@pytest.mark.parametrize("merge", [None, ab.LocalMerge(at="window")], ids=["merged", "held"])
def test_auto_goes_by_what_it_measures_and_a_lost_driver_does_not_forget(merge: ab.LocalMerge | None) -> None:
    """Keys that never repeat, then keys that do, then the first again."""

    def build(stream: Stream, options: Options) -> Stream:
        return totals(timed(stream).key_by("key", **options).window("5s"))

    auto, plain = (start(lambda s, o=options: build(s, o)) for options in ({"merge": merge}, {"exchange": "routed"}))
    phases = [(None, 14), (40, 10), (None, 10)]
    batch = 0
    ends: list[str] = []
    for keys, count in phases:
        for _ in range(count):
            rows = rows_of_keys(batch, keys)
            for flow in (auto, plain):
                read(flow, [rows[:6_000], rows[6_000:]])
            if batch in (5, 13, 21, 27) and (merge is None or batch > 12):
                # What holding back saves shows after some batches only, to one driver.
                auto.kill()
            batch += 1
        shown = auto.progress[-1].exchanges[0]
        ends.append(shown.next_way)
        assert shown.costs and shown.left_share is not None
    with auto, plain:
        auto.drain(), plain.drain()
        assert_frame_equal(auto.results(), plain.results(), check_row_order=False)
    assert ends == ["plain", "merged", "plain"]
    shown_all = [progress.exchanges[0] for progress in auto.progress if progress.rows_in]
    sent = [shown.sent_rows for shown in shown_all if shown.way == "plain"]
    # What was held back goes along, once.
    assert min(sent) == 12_000 and sum(rows != 12_000 for rows in sent) == (0 if merge is None else 1)
    repeating = [shown for shown in shown_all[14:24] if shown.way == "merged"]
    assert repeating and all(shown.sent_rows <= 80 for shown in repeating)
    assert all(shown.sent_bytes < shown_all[13].sent_bytes / 20 for shown in repeating)
    said = [change for progress in auto.progress for change in progress.changes if ": rows " in change]
    switches = [shown for shown in shown_all if shown.way != shown.next_way]
    assert len(said) == len(switches) >= 3
