"""Flows whose rows wait, or go now this way and now that: results and late rows are those of a plain exchange.

They run on the driver's own batch runner, and drivers are lost between batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.states import read_state
from anabranch.query.streams import Stream
from in_process import StreamHere
from oracle import assert_same_rows

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


def run(operator: Operator, folder: Path, seed: int, first: Options, second: Options, lost: set[int]) -> StreamHere:
    flow = StreamHere(lambda stream: operator(stream, first, second), folder, SCHEMA)
    for number, readers in enumerate(stream_of(seed)):
        flow.run(readers)
        if number in lost:
            flow.lose_driver()
    for _ in range(2):
        flow.run([pl.DataFrame(schema=SCHEMA)])
    flow.run([pl.DataFrame(schema=SCHEMA)], drain=True)
    return flow


def late_rows(flow: StreamHere) -> int:
    return sum(batch.late_rows for batch in flow.progress)


@pytest.mark.parametrize("name", OPERATORS | NEVER_WAITS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    merges=st.tuples(st.sampled_from(MERGES), st.sampled_from(MERGES[:3])),
    lost=st.sets(st.integers(0, BATCHES)),
)
def test_flows_that_hold_rows_back_answer_as_a_plain_exchange(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    seed: int,
    merges: tuple[ab.LocalMerge, ab.LocalMerge],
    lost: set[int],
) -> None:
    operator, routed = (OPERATORS | NEVER_WAITS)[name], {"exchange": "routed"}
    plain = run(operator, tmp_path_factory.mktemp("plain"), seed, routed, routed, set())
    first, second = ({"exchange": "local", "merge": merge} for merge in merges)
    held = run(operator, tmp_path_factory.mktemp("held"), seed, first, second, lost)
    assert_same_rows(held.rows(), plain.rows(), name)
    assert late_rows(held) == late_rows(plain)
    manifest = held.checkpoint.latest()
    assert manifest is not None and not manifest.lanes, "a drain sends everything"


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_do_wait_and_are_state_that_can_be_read(tmp_path: Path, name: str) -> None:
    waits = {"exchange": "local", "merge": ab.LocalMerge(at="window")}
    held = StreamHere(lambda s: OPERATORS[name](s, waits, waits), tmp_path / "held", SCHEMA)
    plain = StreamHere(lambda s: OPERATORS[name](s, {}, {}), tmp_path / "plain", SCHEMA)
    lanes: set[str] = set()
    for readers in stream_of(11):
        for flow in (held, plain):
            flow.run(readers)
        manifest = held.checkpoint.latest()
        assert manifest is not None
        lanes |= set(manifest.lanes)
    # Windows of the one fire a batch later, with what was due.
    for flow in (held, plain):
        flow.run([pl.DataFrame(schema=SCHEMA)])
    assert lanes == ({"first", "second"} if "hops" in name or "behind" in name else {"first"})
    last, known = held.checkpoint.latest(), plain.checkpoint.latest()
    assert last is not None and known is not None
    got, expected = (
        read_state(flow.program, manifest, "first").to_dicts() for flow, manifest in ((held, last), (plain, known))
    )
    assert_same_rows(got, expected, "state")


def rows_of_keys(batch: int, keys: int | None, count: int = 12_000) -> pl.DataFrame:
    """Return rows of some keys, or each of a key of its own."""
    chance = random.Random(batch)
    chosen = [chance.randrange(keys) if keys else batch * count + number for number in range(count)]
    times = [START + timedelta(seconds=batch)] * count
    return pl.DataFrame({"key": chosen, "ts": times, "whole": [1] * count}, schema=SCHEMA)


@pytest.mark.parametrize("merge", [None, ab.LocalMerge(at="window")], ids=["merged", "held"])
def test_auto_goes_by_what_it_measures_and_a_lost_driver_does_not_forget(
    tmp_path: Path, merge: ab.LocalMerge | None
) -> None:
    """Keys that never repeat, then keys that do, then the first again."""

    def build(stream: Stream, options: Options) -> Stream:
        return totals(timed(stream).key_by("key", **options).window("5s"))

    auto = StreamHere(lambda s: build(s, {"merge": merge}), tmp_path / "auto", SCHEMA)
    plain = StreamHere(lambda s: build(s, {"exchange": "routed"}), tmp_path / "plain", SCHEMA)
    phases = [(None, 14), (40, 10), (None, 10)]
    batch = 0
    ends: list[str] = []
    for keys, count in phases:
        for _ in range(count):
            rows = rows_of_keys(batch, keys)
            for flow in (auto, plain):
                flow.run([rows[:6_000], rows[6_000:]])
            if batch in (5, 13, 21, 27) and (merge is None or batch > 12):
                # What holding back saves shows after some batches only, to one driver.
                auto.lose_driver()
            batch += 1
        shown = auto.progress[-1].exchanges[0]
        ends.append(shown.next_way)
        assert shown.costs and shown.left_share is not None
    for flow in (auto, plain):
        flow.run([pl.DataFrame(schema=SCHEMA)], drain=True)
    assert_same_rows(auto.rows(), plain.rows(), "all results")
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
