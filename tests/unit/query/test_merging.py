"""What ``key_by`` is told about exchanges: what is refused and why, what *auto* comes to, and what explain says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.connectors import global_store
from anabranch.errors import FlowError
from anabranch.operators.aggregates.functions import count, mean, min
from anabranch.query import FlowGraph, explain_text, make_plan
from anabranch.query.merging import LocalMerge
from anabranch.query.streams import Stream
from unit.query.fakes import FakeSink, read_readings, timed_readings

Write = Callable[[Stream], object]
AT_WINDOW = LocalMerge(at="window")


def flow_of(write: Write) -> FlowGraph:
    flow = FlowGraph("low-voltage")
    write(timed_readings(flow))
    return flow


def store(table: str = "alerts") -> object:
    return global_store(Path("alerts.sqlite"), table=table)


def test_auto_merges_what_merges_and_says_why() -> None:
    flow = flow_of(lambda s: s.key_by("sensor").window("10s").agg(readings=count()).write(FakeSink()))
    text = explain_text(make_plan(flow, slots=8))
    assert "exchange by sensor · fan-out 8 · local merge (auto: its results merge, so one row a key and window" in text
    assert "rows left, bytes and processor time are weighed, and rows go as they are where that costs less" in text


def test_auto_routes_rows_that_an_operator_must_see_and_says_why() -> None:
    flow = flow_of(lambda s: s.key_by("sensor").count_window(10).agg(readings=count()).write(FakeSink()))
    text = explain_text(make_plan(flow, slots=8))
    assert "no local merge (windows of so many rows must see each row in its place)" in text


def test_auto_is_global_where_results_go_to_a_store() -> None:
    flow = flow_of(lambda s: s.key_by("sensor").window("10s").agg(readings=count()).write(store()))
    plan = make_plan(flow, slots=8)
    assert plan.hops == 0
    assert [node.label for node in plan.merged_globally] == ["agg readings=count by sensor over windows of 10s"]
    text = explain_text(plan)
    assert "global merge, no exchange (its results go to a store that merges them" in text
    assert "1 step (1 stateful, 0 stateless)" in text
    assert "no exchange: every row stays in the task that reads it" in text


def test_a_choice_is_kept_and_said() -> None:
    for choice, words in (("routed", "no local merge (asked for"), ("local", "local merge (asked for")):
        flow = flow_of(
            lambda s, c=choice: s.key_by("sensor", exchange=c).window("10s").agg(n=count()).write(FakeSink())
        )
        assert words in explain_text(make_plan(flow, slots=8))


@pytest.mark.parametrize(
    ("merge", "words"),
    [
        (AT_WINDOW, "local merge, sent when windows end"),
        (LocalMerge(delay="10s"), "local merge, sent after 10s or when windows end"),
        (LocalMerge(count=10_000), "local merge, sent after 10,000 rows or when windows end"),
        (LocalMerge(at=pl.col("lowest") < 207), "local merge, sent when lowest < 207 or when windows end"),
        (
            LocalMerge(at="lowest < 207", delay="1m"),
            "local merge, sent after 1m or when lowest < 207 or when windows end",
        ),
    ],
)
def test_explain_says_when_held_rows_are_sent(merge: LocalMerge, words: str) -> None:
    flow = flow_of(lambda s: s.key_by("sensor", merge=merge).window("10s").agg(lowest=min("volts")).write(FakeSink()))
    assert words in explain_text(make_plan(flow, slots=8))


@pytest.mark.parametrize(
    ("per", "reason"),
    [
        (
            "key",
            "rows cannot be held back: a key's own time is told by its rows, wherever they are read: a reader that "
            "holds some would have to hear in the next batch which of its keys' windows have ended by rows that others "
            "read, and nothing tells readers of single keys",
        ),
        ("slot", "rows cannot be held back: the time of a slot is told by the rows that it has got"),
        ("group", None),
        ("flow", None),
    ],
)
def test_explain_says_why_rows_could_not_be_held_back(per: Any, reason: str | None) -> None:
    flow = flow_of(
        lambda s: s.watermark("ts", per=per).key_by("sensor").session("10s").agg(n=count()).write(FakeSink())
    )
    text = explain_text(make_plan(flow, slots=8))
    assert reason in text if reason is not None else "held back" not in text


@pytest.mark.parametrize("length", ["10s", "5s", "2s", "1s", "500ms"])
def test_a_slice_that_divides_the_windows_is_taken(length: str) -> None:
    flow_of(lambda s: s.key_by("sensor", merge=LocalMerge(slice=length)).window("30s", every="20s").agg(n=count()))


@pytest.mark.parametrize("length", ["3s", "7s", "20s", "0s"])
def test_a_slice_that_does_not_divide_the_windows_is_refused_with_those_that_work(length: str) -> None:
    with pytest.raises(FlowError, match=r'does not divide the windows.*made of 10s.*"10s", "5s", "2s", "1s"'):
        flow_of(lambda s: s.key_by("sensor", merge=LocalMerge(slice=length)).window("30s", every="20s").agg(n=count()))


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (
            lambda s: s.key_by("sensor", exchange="locl"),
            "unknown exchange 'locl'; there are auto, routed, local, global",
        ),
        (lambda s: s.key_by("sensor", exchange="routed", merge=AT_WINDOW), "merges nothing, so merge= says nothing"),
        (lambda s: s.key_by("sensor", merge=LocalMerge(count=0)), "at least 1, got 0"),
        (lambda s: s.key_by("sensor", merge=LocalMerge(delay="soon")), "'soon' is not a length of time"),
        (lambda s: s.key_by("sensor", merge=LocalMerge(at="volts >")), "is no point"),
        (
            lambda s: s.key_by("sensor", merge=LocalMerge(at="volts > 3")).window("10s").agg(lowest=min("volts")),
            "a merged row has window_start, window_end, sensor, lowest",
        ),
        (
            lambda s: s.key_by("sensor", merge=LocalMerge(at="lowest + 1")).window("10s").agg(lowest=min("volts")),
            "not true or false",
        ),
        (lambda s: s.key_by("sensor", merge=AT_WINDOW).agg(n=count(), ttl="1m"), "a time-to-live counts from"),
        (lambda s: s.key_by("sensor", merge=AT_WINDOW).top_k(2, "volts"), "only agg"),
        (lambda s: s.key_by("sensor", merge=AT_WINDOW).distinct(), "only agg"),
        (
            lambda s: s.key_by("sensor", merge=AT_WINDOW).window("10s", early="1s").agg(n=count()),
            "windows that emit early or again, or hand late rows out, need every row at once",
        ),
        (
            lambda s: s.watermark("ts", per="key").key_by("sensor", merge=AT_WINDOW).window("10s").agg(n=count()),
            "a key's own time is told by its rows",
        ),
        (
            lambda s: s.key_by("sensor", exchange="local").count_window(5).agg(n=count()),
            "windows of so many rows must see each row in its place",
        ),
        (
            lambda s: s.key_by("sensor", exchange="global").window("10s").agg(n=count()).write(FakeSink()),
            "has its results in a store only",
        ),
        (lambda s: s.write(store()), "comes right behind the agg"),
        (
            lambda s: s.key_by("sensor", exchange="local").window("10s").agg(n=count()).write(store()),
            "comes right behind the agg",
        ),
        (lambda s: s.key_by("sensor").session("10s").agg(n=count()).write(store()), "whether a session is over"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(write: Write, reason: str) -> None:
    with pytest.raises(FlowError, match=reason):
        flow_of(write)


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (
            lambda s: (
                s.key_by("sensor", exchange="global").window("10s").agg(n=count()).filter("n > 3").write(FakeSink())
            ),
            "nothing can be behind it but .write",
        ),
        (lambda s: s.key_by("sensor", exchange="global").window("10s").agg(n=count()), "found nothing"),
        (
            lambda s: (
                s.key_by("sensor").window("10s").agg(n=count()).key_by("n").window("1m").agg(m=count()).write(store())
            ),
            "comes before it",
        ),
    ],
)
def test_what_global_merge_cannot_do_is_refused_when_it_is_planned(write: Write, reason: str) -> None:
    flow = flow_of(write)
    with pytest.raises(FlowError, match=reason):
        make_plan(flow, slots=2)


def test_running_aggregates_may_meet_in_a_store_without_event_time() -> None:
    flow = FlowGraph("totals")
    read_readings(flow).key_by("sensor", exchange="global").agg(n=count(), average=mean("volts")).write(store())
    assert make_plan(flow, slots=2).hops == 0


def test_some_operators_may_have_slots_while_others_meet_in_a_store() -> None:
    flow = FlowGraph("both")
    readings = timed_readings(flow)
    readings.key_by("sensor").window("10s").agg(n=count()).write(FakeSink())
    readings.key_by("sensor", exchange="global").window("10s").agg(n=count()).write(store())
    plan = make_plan(flow, slots=2)
    assert (len(plan.stateful), len(plan.merged_globally), plan.hops) == (1, 1, 1)
