"""Joins of streams: whatever the kind, the bounds, the disorder and the slots, answers are DuckDB's."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest

import anabranch as ab
from anabranch.model.joins import JOIN_KINDS
from flows.running import FlowBench
from flows.test_moves import Steerings

START = datetime(2026, 1, 1)
BEGINNING = datetime(1970, 1, 1)
KINDS_OF_BOUNDS = ("within", "window", "sliding", "ttl", "never")


def make_rows(chance: random.Random, column: str, batches: int, keys: int) -> list[pl.DataFrame]:
    """Return batches of rows out of order, some without a key, with numbers that tell them apart."""
    frames, number = [], 0
    for batch in range(batches):
        count = chance.choice((1, 3, 25))
        seconds = [batch * 4 + chance.randrange(-6, 9) for _ in range(count)]
        rows = {
            "key": [chance.choice([None, *range(keys)]) for _ in range(count)],
            "ts": [START + timedelta(seconds=second) for second in seconds],
            column: range(number, number + count),
        }
        number += count
        frames.append(pl.DataFrame(rows, schema={"key": pl.Int64, "ts": pl.Datetime("us"), column: pl.Int64}))
    return frames


def drop_late(sides: list[list[pl.DataFrame]], delay: timedelta, latest_needed: Any) -> list[pl.DataFrame]:
    """Return all rows of both sides that are in time: the slower side's watermark at the start of a batch counts."""
    kept: list[list[pl.DataFrame]] = [[], []]
    seen = [BEGINNING, BEGINNING]
    for batch in zip(*sides, strict=True):
        watermark = min(seen) - delay
        for number, frame in enumerate(batch):
            kept[number].append(frame.with_columns(closed=pl.lit(watermark, pl.Datetime("us"))))
            seen[number] = max([seen[number], *frame["ts"].to_list()])
    return [pl.concat(frames).filter(latest_needed) for frames in kept]


def ask_duckdb(left: pl.DataFrame, right: pl.DataFrame, how: str, condition: str, columns: str) -> list[Any]:
    with duckdb.connect() as database:
        database.register("l", left.to_arrow())
        database.register("r", right.to_arrow())
        return sorted(map(repr, database.sql(f"SELECT {columns} FROM l {how} JOIN r ON {condition}").pl().rows()))


def lay_windows(frame: pl.DataFrame, size: int, every: int) -> pl.DataFrame:
    """Return each row once for each of its windows that was open when it came."""
    laid = []
    for row in frame.iter_rows(named=True):
        second = int((row["ts"] - START).total_seconds())
        for start in range((second - size) // every * every + every, second + 1, every):
            if START + timedelta(seconds=start + size) > row["closed"]:
                laid.append({**row, "w": start})
    return pl.DataFrame(laid, schema={**frame.schema, "w": pl.Int64})


def run(
    bench: FlowBench, chance: random.Random, flow: ab.Flow, sink: Any, batches: int, *, moving: bool, key: str = "key"
) -> None:
    """Run a flow at once or batch by batch, on any number of slots, or on slots that change while keys move."""
    settings: dict[str, Any] = {"checkpoint": bench.new_checkpoint(), "buckets": 16}
    steer = Steerings(chance.randrange(10**6), [{key: number} for number in range(40)]) if moving else None
    for _ in range(batches + 2 if chance.random() < 0.5 else 0):
        slots = {} if moving else {"slots": chance.choice((1, 2, 5))}
        bench.run_steered(flow, [sink], steer, trigger="once", drain=False, **settings, **slots)
    bench.run_steered(flow, [sink], steer, **settings)
    assert steer is None or steer.changes or batches < 3


def check(bench: FlowBench, seed: int, *, moving: bool = False, routing: str = "auto", how: str = "") -> None:
    """Compare a random join with DuckDB's; of any kind unless ``how`` is given."""
    chance = random.Random(seed)
    bounds = KINDS_OF_BOUNDS[seed % len(KINDS_OF_BOUNDS)]
    if not how:
        how = JOIN_KINDS[seed // len(KINDS_OF_BOUNDS) % len(JOIN_KINDS)]
        how = chance.choice(("inner", "semi")) if bounds == "never" else how
    batches = chance.randrange(1, 7)
    sides = [make_rows(chance, column, batches, chance.choice((2, 40))) for column in ("a", "b")]
    delay = timedelta(seconds=chance.choice((0, 4, 60)))
    before, after = sorted(chance.randrange(-5, 9) for _ in range(2))
    size, every = chance.choice(((6, 6), (5, 5))) if bounds == "window" else chance.choice(((6, 2), (7, 3), (4, 3)))
    options: dict[str, Any] = {
        "within": {"within": (timedelta(seconds=-before), timedelta(seconds=after))},
        "window": {"window": timedelta(seconds=size)},
        "sliding": {"window": timedelta(seconds=size), "every": timedelta(seconds=every)},
        "ttl": {"ttl": timedelta(seconds=5)},
        "never": {},
    }[bounds]
    flow, sink = ab.Flow("joins"), ab.to_memory()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay=delay) for frames in sides)
    left.join(right, on="key", how=how, routing=routing, **options).write(sink)
    run(bench, chance, flow, sink, batches, moving=moving)
    condition = {
        "within": f"epoch(r.ts) - epoch(l.ts) BETWEEN {before} AND {after}",
        "ttl": "abs(epoch(r.ts) - epoch(l.ts)) <= 5",
        "never": "true",
    }.get(bounds, "l.w = r.w")
    in_time = pl.lit(True) if bounds in ("window", "sliding", "never") else pl.col("ts") >= pl.col("closed")
    tables = drop_late(sides, delay, in_time)
    columns = "coalesce(l.key, r.key), l.ts, l.a, r.ts, r.b"
    if bounds in ("window", "sliding"):
        tables = [lay_windows(table, size, size if bounds == "window" else every) for table in tables]
        columns += ", coalesce(l.w, r.w)"
    if how in ("semi", "anti"):
        columns = "l.key, l.ts, l.a" + (", l.w" if "w" in tables[0].columns else "")
    expected = ask_duckdb(*tables, how, f"l.key = r.key AND {condition}", columns)
    found = sink.frame()
    if not found.width:
        assert not expected
        return
    if "window_start" in found.columns:
        seconds = (pl.col("window_start") - START).dt.total_seconds()
        found = found.with_columns(window_start=seconds).drop("window_end")
    found = found.drop("joined_at", strict=False)
    assert sorted(map(repr, found.rows())) == expected, (seed, how, bounds)


@pytest.mark.parametrize("seed", range(30))
def test_a_join_answers_as_duckdb(bench: FlowBench, seed: int) -> None:
    check(bench, seed)


@pytest.mark.parametrize("seed", range(30, 60))
def test_a_join_answers_as_duckdb_while_keys_move_and_are_split(bench: FlowBench, seed: int) -> None:
    check(bench, seed, moving=True)


@pytest.mark.parametrize(("bounds", "times"), [({}, 1), ({"ttl": "1h"}, 0)])
def test_a_join_that_grows_for_ever_says_so_once_at_every_start(
    bench: FlowBench, caplog: pytest.LogCaptureFixture, bounds: dict[str, Any], times: int
) -> None:
    sides = [make_rows(random.Random(1), column, 3, 2) for column in ("a", "b")]
    flow, sink, checkpoint = ab.Flow("joins"), ab.to_memory(), bench.new_checkpoint()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts") for frames in sides)
    left.join(right, on="key", **bounds).write(sink)
    for start in (1, 2):
        bench.run_flow(flow, [sink], checkpoint=checkpoint)
        said = [record.getMessage() for record in caplog.records if "grows for ever" in record.getMessage()]
        assert len(said) == start * times
        assert all(text.startswith("inner join by key, over all that ever came: state grows") for text in said)


def run_pairs(bench: FlowBench, build: Any, *sides: list[pl.DataFrame], **settings: Any) -> pl.DataFrame:
    """Run a flow over streams that follow their time, and return what came out."""
    flow, sink = ab.Flow("joins"), ab.to_memory()
    build(*(flow.read(ab.memory(*frames)).watermark("ts", delay="1h") for frames in sides)).write(sink)
    bench.run_flow(flow, [sink], **settings)
    return sink.frame()


def rows_at(column: str, *rows: tuple[Any, int]) -> list[pl.DataFrame]:
    """Return one row a batch: what it is called, and its second."""
    times = [START + timedelta(seconds=second) for _, second in rows]
    named = [{"key": 1, "ts": time, column: name} for (name, _), time in zip(rows, times, strict=True)]
    schema = {"key": pl.Int64, "ts": pl.Datetime("us"), column: pl.String}
    return [pl.DataFrame([row], schema=schema) for row in named]


def orders(left: list[pl.DataFrame], right: list[pl.DataFrame], seed: int) -> tuple[list[pl.DataFrame], ...]:
    """Return both sides with batches that come in an order of their own, some of them together."""
    chance = random.Random(seed)
    sides = []
    for frames in (left, right):
        shuffled = chance.sample(frames, len(frames))
        cuts = sorted({0, len(frames), *(chance.randrange(len(frames)) for _ in range(2))})
        sides.append([pl.concat(shuffled[a:b]) for a, b in itertools.pairwise(cuts)])
    return tuple(sides)


@pytest.mark.parametrize("seed", range(12))
def test_the_first_papers_third_figure_in_any_order_of_arrival(bench: FlowBench, seed: int) -> None:
    left = rows_at("l", *((str(number), number) for number in range(4)))
    right = rows_at("r", *(zip("ABCD", range(4), strict=True)))
    found = run_pairs(
        bench,
        lambda one, other: one.join(other, on="key", within="2s", closed="none"),
        *orders(left, right, seed),
        slots=3,
    )
    pairs = {(row["l"], row["r"]) for row in found.to_dicts()}
    assert {("3", "D"), ("3", "C"), ("1", "C"), ("1", "B")} <= pairs
    assert pairs == {(str(a), "ABCD"[b]) for a in range(4) for b in range(4) if abs(a - b) < 2}


@pytest.mark.parametrize("seed", range(12))
def test_the_first_papers_fourth_figure_in_any_order_of_arrival(bench: FlowBench, seed: int) -> None:
    left = rows_at("l", ("P", 0), ("Q", 2), ("X", 7), ("Y", 8))
    right = rows_at("r", ("2", 1), ("3", 3), ("5", 5), ("7", 11))
    found = run_pairs(
        bench,
        lambda one, other: one.join(other, on="key", within="4s", closed="none"),
        *orders(left, right, seed),
        slots=2,
    )
    assert sorted(found["l"] + found["r"]) == sorted(["P2", "P3", "Q2", "Q3", "Q5", "X5", "Y5", "Y7"])


def make_sides(seed: int, *columns: str) -> list[list[pl.DataFrame]]:
    chance = random.Random(seed)
    return [make_rows(chance, column, 4, 6) for column in columns]


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_joins_itself(bench: FlowBench, seed: int) -> None:
    (side,) = make_sides(seed, "a")
    found = run_pairs(bench, lambda s: s.join(s.filter("a % 2 = 0"), on="key", within="3s"), side)
    table = pl.concat(side)
    expected = ask_duckdb(
        table,
        table.filter(pl.col("a") % 2 == 0),
        "INNER",
        "l.key = r.key AND abs(epoch(l.ts) - epoch(r.ts)) <= 3",
        "l.key, l.ts, l.a, r.ts, r.a",
    )
    assert sorted(map(repr, found.drop("joined_at").rows())) == expected


@pytest.mark.parametrize("seed", range(6))
def test_joins_follow_each_other_and_windows_follow_them(bench: FlowBench, seed: int) -> None:
    sides = make_sides(seed, "a", "b", "c")

    def build(a: Any, b: Any, c: Any) -> Any:
        pairs = a.join(b, on="key", within="4s", how="left").join(c, on="key", within="5s", suffix="_c")
        return pairs.key_by("key").window("10s").agg(rows=ab.count(), total=ab.sum("c"))

    found = run_pairs(bench, build, *sides, slots=3)
    tables = {name: pl.concat(frames).to_arrow() for name, frames in zip("abc", sides, strict=True)}
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        expected = database.sql(
            """
            WITH first AS (
                SELECT a.key,
                    CASE WHEN b.ts IS NULL THEN a.ts + INTERVAL 4 SECOND ELSE greatest(a.ts, b.ts) END AS moment
                FROM a LEFT JOIN b ON a.key = b.key AND abs(epoch(a.ts) - epoch(b.ts)) <= 4
            ), pairs AS (
                SELECT first.key, greatest(moment, c.ts) AS moment, c.c
                FROM first JOIN c ON first.key = c.key AND abs(epoch(moment) - epoch(c.ts)) <= 5
            )
            SELECT key, CAST(floor(epoch(moment) / 10) AS BIGINT) AS bucket, count(*), CAST(sum(c) AS BIGINT)
            FROM pairs GROUP BY ALL
            """
        ).fetchall()
    buckets = [
        (row["key"], int((row["window_start"] - BEGINNING).total_seconds()) // 10, row["rows"], row["total"])
        for row in found.to_dicts()
    ]
    assert sorted(buckets) == sorted(expected)


def test_results_of_windows_are_joined(bench: FlowBench) -> None:
    left, right = make_sides(5, "a", "b")

    def build(a: Any, b: Any) -> Any:
        counts = [s.key_by("key").window("5s").agg(rows=ab.count()) for s in (a, b)]
        return counts[0].join(counts[1], on="key", within="0s", how="full")

    found = run_pairs(bench, build, left, right, slots=2)
    tables = [
        pl.concat(side).drop_nulls("key").group_by("key", pl.col("ts").dt.truncate("5s").alias("w")).len()
        for side in (left, right)
    ]
    expected = ask_duckdb(
        *tables, "FULL", "l.key = r.key AND l.w = r.w", "coalesce(l.key, r.key), l.w, r.w, l.len, r.len"
    )
    shown = found.select("key", "window_start", "window_start_right", "rows", "rows_right")
    assert sorted(map(repr, shown.rows())) == expected
