"""Operators without windows, keys of every type, branches and hops answer as the oracle does."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl

import anabranch as ab
from flows.running import FlowBench, frames_of, reading
from oracle import Distinct, Running, Windows, answer_flow, assert_same_batches, assert_same_rows, compute
from oracle.aggregates import best_rows

SECOND_US = 1_000_000
WANTED = {"rows": ("count", None), "total": ("sum", "whole"), "highest": ("max", "real"), "closing": ("last", "whole")}

BATCHES = [
    [reading(1, 0, 4, 0.5), reading(2, 3, 7, 1.25), reading(1, 9, 1, -2.0), reading(3, 4, None, 8.0)],
    [reading(1, 40, 2, 0.25), reading(2, 38, 7, None), reading(4, 41, 9, 3.5), reading(1, 39, 9, 1.0)],
    [reading(3, 43, 3, 2.5), reading(2, 42, 8, 0.75), reading(5, 5, 100, 64.0), reading(1, 75, 2, -1.5)],
]


def shape(group: Any) -> list[dict[str, Any]]:
    return [compute(group, WANTED)]


def best_two(group: Any) -> list[dict[str, Any]]:
    return best_rows(group, 2, "whole", ["real"])


def aggregates() -> dict[str, Any]:
    return {
        "rows": ab.count(),
        "total": ab.sum("whole"),
        "highest": ab.max("real"),
        "closing": ab.last("whole"),
    }


def test_branches_without_windows_answer_as_the_oracle_in_one_flow(bench: FlowBench) -> None:
    flow = ab.Flow("test")
    keyed = flow.read(ab.memory(*frames_of(BATCHES))).watermark("ts", delay="0s").key_by("key")
    sinks = [ab.to_memory() for _ in range(6)]
    keyed.agg(**aggregates()).write(sinks[0])
    keyed.agg(ttl="20s", name="forgetful", **aggregates()).write(sinks[1])
    keyed.distinct(name="once").write(sinks[2])
    keyed.distinct(ttl="30s", name="now-and-then").write(sinks[3])
    keyed.top_k(2, "whole", columns=["real"], name="best").write(sinks[4])
    keyed.window("10s").top_k(2, "whole", columns=["real"], name="best-in-window").write(sinks[5])
    got = bench.run_flow(flow, sinks)

    operators = [
        Running(["key"], shape),
        Running(["key"], shape, ttl_us=20 * SECOND_US),
        Distinct(["key"]),
        Distinct(["key"], ttl_us=30 * SECOND_US),
        Running(["key"], best_two),
        Windows(["key"], best_two, 10 * SECOND_US, 10 * SECOND_US),
    ]
    answers = [answer_flow(BATCHES, [operator], time="ts", drain=True) for operator in operators]
    for sink, answer, name in zip(
        sinks,
        answers,
        ("running", "running with ttl", "distinct", "distinct with ttl", "top_k", "windowed"),
        strict=True,
    ):
        assert_same_batches(sink.batches(), answer.batches, name)
    assert got.late_rows == sum(answer.late_rows for answer in answers) > 0


def test_keys_may_be_texts_bytes_dates_decimals_and_several_columns(bench: FlowBench) -> None:
    schema = {
        "name": pl.String(),
        "raw": pl.Binary(),
        "day": pl.Date(),
        "price": pl.Decimal(10, 2),
        "yes": pl.Boolean(),
        "ts": pl.Datetime("ms"),
        "small": pl.Int8(),
        "whole": pl.Int64(),
    }
    names = ["", "ä", "b", "a longer name than twelve bytes", "Ω"]
    rows = [
        {
            "name": names[i % 5],
            "raw": bytes([i % 3, 0, 255]),
            "day": date(1960 + i % 4, 2, 28),
            "price": Decimal(i % 4) / 4,
            "yes": i % 2 == 0,
            "ts": datetime(2026, 1, 1, 0, 0, i),
            "small": i % 7 - 3,
            "whole": i * i,
        }
        for i in range(30)
    ]
    batches = [rows[:14], rows[14:]]
    keys_of = [["name", "day"], ["raw"], ["price", "yes"], ["day"], ["ts"], ["small", "name", "raw"]]
    flow = ab.Flow("test")
    stream = flow.read(ab.memory(*frames_of(batches, schema)))
    sinks = [ab.to_memory() for _ in keys_of]
    for keys, sink in zip(keys_of, sinks, strict=True):
        stream.key_by(*keys).agg(rows=ab.count(), total=ab.sum("whole"), name="by-" + "-".join(keys)).write(sink)
    bench.run_flow(flow, sinks, slots=3)

    wanted = {"rows": ("count", None), "total": ("sum", "whole")}
    for keys, sink in zip(keys_of, sinks, strict=True):
        answer = answer_flow(batches, [Running(keys, lambda group: [compute(group, wanted)])], drain=True)
        assert_same_batches(sink.batches(), answer.batches, f"keys {keys}")


def test_a_window_over_windows_fires_in_the_batch_in_which_the_first_fires(bench: FlowBench) -> None:
    batches = [
        *BATCHES,
        [reading(1, 118, 3, 1.0), reading(2, 100, 1, 1.0)],
        [reading(2, 119, 3, 1.0), reading(4, 190, 1, 1.0), reading(1, 2, 1, 1.0)],
    ]
    flow = ab.Flow("test")
    early, sink = ab.to_memory(), ab.to_memory()
    windowed = flow.read(ab.memory(*frames_of(batches))).watermark("ts", delay="1s").key_by("key").window("10s")
    first = windowed.agg(rows=ab.count(), total=ab.sum("whole")).write(early)
    by_parity = first.with_columns(parity=pl.col("key") % 2).key_by("parity")
    by_parity.window("30s").agg(keys=ab.count(), rows=ab.sum("rows"), most=ab.max("total")).write(sink)
    got = bench.run_flow(flow, [early, sink])

    def first_shape(group: Any) -> list[dict[str, Any]]:
        values = compute(group, {"rows": ("count", None), "total": ("sum", "whole")})
        return [values | {"parity": group[0].row["key"] % 2}]

    def second_shape(group: Any) -> list[dict[str, Any]]:
        return [compute(group, {"keys": ("count", None), "rows": ("sum", "rows"), "most": ("max", "total")})]

    hops = [
        Windows(["key"], first_shape, 10 * SECOND_US, 10 * SECOND_US),
        Windows(["parity"], second_shape, 30 * SECOND_US, 30 * SECOND_US),
    ]
    expected = answer_flow(batches, hops, time="ts", delay_us=SECOND_US, drain=True)
    assert_same_batches(sink.batches(), expected.batches)
    assert len(expected.batches) >= 3
    assert got.late_rows == expected.late_rows > 0


def test_two_sources_unite_and_the_slower_one_holds_the_watermark(bench: FlowBench) -> None:
    fast = [[reading(1, 5), reading(2, 50)], [reading(1, 52)], [reading(1, 55), reading(2, 9)]]
    slow = [[reading(1, 3), reading(3, 4)], [reading(2, 7)], [reading(3, 14)]]
    flow = ab.Flow("test")
    sink = ab.to_memory()
    left = flow.read(ab.memory(*frames_of(fast))).watermark("ts")
    right = flow.read(ab.memory(*frames_of(slow))).watermark("ts")
    left.union(right).key_by("key").window("10s").agg(rows=ab.count()).write(sink)
    got = bench.run_flow(flow, [sink])

    # The slower source brings the watermark to 4, 7 and 14 s: the third batch closes the first windows, the drain all.
    everything = [row for batch in (*fast, *slow) for row in batch]
    operator = Windows(
        ["key"], lambda group: [compute(group, {"rows": ("count", None)})], 10 * SECOND_US, 10 * SECOND_US
    )
    expected = answer_flow([everything], [operator], time="ts", drain=True)
    assert_same_rows(got.rows, expected.rows)
    assert [batch for batch, _ in got.batches] == [2, 3]
    assert got.batches[0][1]["window_end"].dt.second().unique().to_list() == [10]
    assert got.late_rows == 0


def test_event_time_can_be_followed_anew_behind_a_running_aggregate(bench: FlowBench) -> None:
    flow, sink = ab.Flow("test"), ab.to_memory()
    totals = flow.read(ab.memory(*frames_of(BATCHES))).key_by("key").agg(latest=ab.max("ts"), total=ab.sum("whole"))
    changes = (
        totals.watermark("latest", delay="1s").key_by("total").window("20s").agg(changes=ab.count(), name="changes")
    )
    changes.write(sink)
    got = bench.run_flow(flow, [sink])

    def latest(group: Any) -> list[dict[str, Any]]:
        return [compute(group, {"latest": ("max", "ts"), "total": ("sum", "whole")})]

    updates = answer_flow(BATCHES, [Running(["key"], latest)])
    known = [[row for row in updates.batches[number] if row["total"] is not None] for number in range(len(BATCHES))]
    operator = Windows(["total"], lambda group: [{"changes": len(group)}], 20 * SECOND_US, 20 * SECOND_US)
    expected = answer_flow(known, [operator], time="latest", delay_us=SECOND_US, drain=True)
    assert_same_batches(got.batches, expected.batches)
    # Key 3 has no total in the first batch: a null key behind a hop is a dead letter, too.
    assert got.dead_rows == 1
    assert got.late_rows == expected.late_rows


def test_rows_that_skip_a_hop_meet_the_rows_that_took_it(bench: FlowBench) -> None:
    flow, sink = ab.Flow("test"), ab.to_memory()
    rows = flow.read(ab.memory(*frames_of(BATCHES)))
    updates = rows.key_by("key").agg(whole=ab.sum("whole"), name="totals")
    everything = updates.union(rows.select("key", "whole"))
    everything.key_by("key").agg(rows=ab.count(), sum=ab.sum("whole"), name="both").write(sink)
    got = bench.run_flow(flow, [sink], slots=3)

    first = answer_flow(BATCHES, [Running(["key"], lambda group: [compute(group, {"whole": ("sum", "whole")})])])
    both = [[*first.batches[number], *batch] for number, batch in enumerate(BATCHES)]
    wanted = {"rows": ("count", None), "sum": ("sum", "whole")}
    expected = answer_flow(both, [Running(["key"], lambda group: [compute(group, wanted)])], drain=True)
    assert_same_batches(got.batches, expected.batches)


def test_a_stateless_flow_passes_every_row_once_in_its_batch(bench: FlowBench) -> None:
    def build(stream: Any) -> Any:
        doubled = stream.with_columns(double="whole * 2").filter(pl.col("whole") > 2)
        return doubled.flat_map(
            lambda row: [{"key": row["key"], "value": v} for v in (row["whole"], row["double"])],
            schema={"key": pl.Int64(), "value": pl.Int64()},
        )

    got = bench.run(BATCHES, build)
    expected = {
        number: [
            {"key": row["key"], "value": row["whole"] * factor}
            for row in batch
            if row["whole"] is not None and row["whole"] > 2
            for factor in (1, 2)
        ]
        for number, batch in enumerate(BATCHES)
    }
    assert_same_batches(got.batches, expected)
    assert [entry.rows_in for entry in got.progress][:3] == [4, 4, 4]
