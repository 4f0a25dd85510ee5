"""As-of joins: whatever the disorder, the batches and the slots, every row has the version that DuckDB finds for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.cli.state.values import read_values
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.state import Checkpoint, open_store
from flows.running import FlowBench, Outcome
from flows.test_joins import START, drop_late, make_rows, run
from property_tests import tries

SCHEMA = {"key": pl.Int64, "ts": pl.Datetime("us")}
COLUMNS = ["key", "ts", "a", "ts_right", "b"]


def ask_duckdb(
    left: pl.DataFrame,
    right: pl.DataFrame,
    how: str,
    *,
    exact: bool,
    tolerance: timedelta | None,
    keys: Sequence[str] = ("key",),
) -> pl.DataFrame:
    """Return each left row with its newest version; of versions with equal times, the one with the largest number."""
    same = " AND ".join(f"l.{key} = v.{key}" for key in keys)
    with duckdb.connect() as database:
        database.register("l", left.to_arrow())
        database.register("r", right.to_arrow())
        found = database.sql(
            f"""
            WITH versions AS (
                SELECT * FROM r QUALIFY row_number() OVER (PARTITION BY {", ".join(keys)}, ts ORDER BY b DESC) = 1
            )
            SELECT {", ".join(f"l.{key}" for key in keys)}, l.ts, l.a, v.ts AS ts_right, v.b
            FROM l ASOF LEFT JOIN versions v ON {same} AND l.ts {">=" if exact else ">"} v.ts
            """
        ).pl()
    if tolerance is not None:
        too_old = pl.col("ts") - pl.col("ts_right") > tolerance
        versions = [pl.when(too_old).then(None).otherwise(pl.col(name)).alias(name) for name in ("ts_right", "b")]
        found = found.with_columns(versions)
    return found.filter(pl.col("b").is_not_null()) if how == "inner" else found


def sort_rows(frame: pl.DataFrame, keys: Sequence[str] = ("key",)) -> list[str]:
    return sorted(map(repr, frame.select(*keys, *COLUMNS[1:]).rows())) if frame.width else []


def check(bench: FlowBench, seed: int, *, moving: bool = False) -> None:
    """Run a random as-of join, and compare it with DuckDB's."""
    chance = random.Random(seed)
    batches = chance.randrange(1, 7)
    keys = chance.choice((["key"], ["key", "kind"]))
    some_keys = chance.choice((2, 40))
    sides = [make_rows(chance, column, batches, some_keys, kinds=len(keys) > 1) for column in ("a", "b")]
    delay = timedelta(seconds=chance.choice((0, 4, 60)))
    how: Any = chance.choice(("left", "inner"))
    exact = chance.random() < 0.7
    tolerance = chance.choice((None, timedelta(seconds=1), timedelta(seconds=7)))
    flow, sink = ab.Flow("versions"), ab.to_memory()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay=delay) for frames in sides)
    left.join_asof(right, by=keys, how=how, tolerance=tolerance, allow_exact_matches=exact).write(sink)
    run(bench, chance, flow, sink, batches, moving=moving)
    tables = drop_late(sides, delay, pl.col("ts") >= pl.col("closed"))
    expected = ask_duckdb(*tables, how, exact=exact, tolerance=tolerance, keys=keys)
    assert sort_rows(sink.frame(), keys) == sort_rows(expected, keys), seed


SEEDS = st.integers(0, 2**32)
RANDOM: dict[str, Any] = {"phases": [Phase.generate], "suppress_health_check": list(HealthCheck)}


@tries(40, **RANDOM)
@given(seed=SEEDS)
def test_every_row_has_the_version_that_duckdb_finds(bench: FlowBench, seed: int) -> None:
    check(bench, seed)


@tries(40, **RANDOM)
@given(seed=SEEDS)
def test_versions_are_found_while_keys_move_and_are_split(bench: FlowBench, seed: int) -> None:
    check(bench, seed, moving=True)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def frame(column: str, *rows: tuple[Any, float, Any]) -> pl.DataFrame:
    """Return rows of a key, a second and a value."""
    named = [{"key": key, "ts": at(second), column: value} for key, second, value in rows]
    return pl.DataFrame(named, schema={**SCHEMA, column: pl.String})


def join(
    bench: FlowBench, left: list[pl.DataFrame], right: list[pl.DataFrame], delay: str = "0s", **options: Any
) -> Outcome:
    """Run rows and versions through a join, each frame in a batch of its own, without a drain unless it is said."""
    settings = {name: options.pop(name) for name in ("drain", "slots", "checkpoint") if name in options}
    flow, sink = ab.Flow("versions"), ab.to_memory()
    streams = [flow.read(ab.memory(*frames)).watermark("ts", delay=delay) for frames in (left, right)]
    streams[0].join_asof(streams[1], by="key", **options).write(sink)
    return bench.run_flow(flow, [sink], **{"drain": False, **settings})


def pairs(found: Outcome) -> list[tuple[Any, Any]]:
    return sorted(((row["a"], row["b"]) for row in found.rows), key=repr)


def test_a_row_waits_for_versions_that_come_late(bench: FlowBench) -> None:
    left = [frame("a", (1, 5, "x")), frame("a", (1, 9, "y")), frame("a", (1, 30, "z"))]
    right = [frame("b", (1, 1, "old")), frame("b", (1, 4, "new")), frame("b", (1, 30, "last"))]
    found = join(bench, left, right, delay="10s")
    assert pairs(found) == [("x", "new"), ("y", "new")]
    # In the batch that brought the watermark, and not before.
    assert [batch for batch, rows in found.batches if rows.height] == [2]


def test_a_row_comes_out_only_when_the_slower_stream_has_passed_it(bench: FlowBench) -> None:
    left = [frame("a", (1, 5, "x")), frame("a", (1, 100, "y"))]
    right = [frame("b", (1, 1, "old")), frame("b", (1, 5, "same"))]
    assert pairs(join(bench, left, right)) == []
    assert pairs(join(bench, left, [*right, frame("b", (1, 6, "next"))])) == [("x", "same")]


def test_late_rows_and_late_versions_are_dropped_and_counted(bench: FlowBench) -> None:
    left = [frame("a", (1, 10, "x")), frame("a", (1, 20, "y")), frame("a", (1, 9, "late"))]
    right = [frame("b", (1, 1, "v")), frame("b", (1, 20, "w")), frame("b", (1, 8, "late"))]
    found = join(bench, left, right, drain=True)
    assert pairs(found) == [("x", "v"), ("y", "w")]
    assert found.late_rows == 2


def test_of_versions_with_equal_times_the_one_that_came_last_counts(bench: FlowBench) -> None:
    left = [frame("a", (1, 2, "x")), frame("a", (1, 3, "y"))]
    together = [frame("b", (1, 2, "first"), (1, 2, "second"), (1, 2, "last")), frame("b", (2, 9, "else"))]
    apart = [frame("b", (1, 2, "first")), frame("b", (1, 2, "second")), frame("b", (1, 2, "last"))]
    for right in (together, apart):
        assert pairs(join(bench, left, right, delay="1m", drain=True)) == [("x", "last"), ("y", "last")]


def test_rows_without_a_key_have_no_version_and_versions_without_one_are_nobodys(bench: FlowBench) -> None:
    left, right = [frame("a", (None, 5, "x"), (1, 5, "y"))], [frame("b", (None, 1, "nobody's"), (1, 1, "own"))]
    assert pairs(join(bench, left, right, drain=True)) == [("x", None), ("y", "own")]
    assert pairs(join(bench, left, right, drain=True, how="inner")) == [("y", "own")]


def test_versions_are_there_behind_a_drain_and_rows_before_it_are_late(bench: FlowBench) -> None:
    flow, sink = ab.Flow("versions"), ab.to_memory()
    given = [
        [frame("a", (1, 5, "x")), frame("a", (1, 4, "late"), (1, 8, "y"))],
        [frame("b", (1, 3, "old"), (1, 7, "new")), frame("b", (2, 9, "else"))],
    ]
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay="1h") for frames in given)
    left.join_asof(right, by="key").write(sink)
    checkpoint = bench.new_checkpoint()
    found = [bench.run_flow(flow, [sink], checkpoint=checkpoint, trigger="once") for _ in given]
    assert pairs(found[-1]) == [("x", "old"), ("y", "new")]
    assert sum(one.late_rows for one in found) == 1


def test_keys_may_have_other_names_and_types_of_time_on_the_right(bench: FlowBench) -> None:
    flow, sink = ab.Flow("versions"), ab.to_memory()
    prices = pl.DataFrame({"item": ["a", "a"], "since": [at(0), at(10)], "price": [1, 2]})
    sold = pl.DataFrame({"product": ["a", "a", "b"], "at": [at(9), at(11), at(11)]})
    right = flow.read(
        ab.memory(prices.with_columns(pl.col("since").dt.replace_time_zone("UTC").dt.cast_time_unit("ms")))
    )
    left = flow.read(ab.memory(sold)).watermark("at")
    priced = left.join_asof(
        right.watermark("since"), left_on="at", right_on="since", by_left="product", by_right="item"
    )
    priced.write(sink)
    bench.run_flow(flow, [sink])
    assert list(priced.schema) == ["product", "at", "since", "price"]
    assert sorted(sink.frame().select("product", "price").rows(), key=repr) == [("a", 1), ("a", 2), ("b", None)]


@pytest.mark.parametrize("seed", range(6))
def test_windows_and_joins_stand_before_and_behind_it(bench: FlowBench, seed: int) -> None:
    chance = random.Random(seed)
    sides = [make_rows(chance, column, 4, 5) for column in ("a", "b", "c")]
    flow, sink = ab.Flow("versions"), ab.to_memory()
    a, b, c = (flow.read(ab.memory(*frames)).watermark("ts", delay="1h") for frames in sides)
    totals = b.key_by("key").window("5s").agg(rows=ab.count())
    versioned = a.join(c, on="key", within="3s").join_asof(totals, by="key", how="inner")
    versioned.key_by("key").window("10s").agg(found=ab.count(), rows=ab.sum("rows")).write(sink)
    bench.run_flow(flow, [sink], slots=chance.choice((1, 3)))
    with duckdb.connect() as database:
        for name, frames in zip("abc", sides, strict=True):
            database.register(name, pl.concat(frames).to_arrow())
        expected = database.sql(
            """
            WITH pairs AS (
                SELECT a.key, greatest(a.ts, c.ts) AS moment
                FROM a JOIN c ON a.key = c.key AND abs(epoch(a.ts) - epoch(c.ts)) <= 3
            ), totals AS (
                SELECT key, time_bucket(INTERVAL 5 SECOND, ts) + INTERVAL '4.999999' SECOND AS last, count(*) AS n
                FROM b WHERE key IS NOT NULL GROUP BY ALL
            )
            SELECT pairs.key, CAST(floor(epoch(moment) / 10) AS BIGINT), count(*), CAST(sum(n) AS BIGINT)
            FROM pairs ASOF JOIN totals ON pairs.key = totals.key AND pairs.moment >= totals.last
            GROUP BY ALL
            """
        ).fetchall()
    found = [
        (row["key"], int((row["window_start"] - datetime(1970, 1, 1)).total_seconds()) // 10, row["found"], row["rows"])
        for row in (sink.frame().to_dicts() if sink.frame().width else [])
    ]
    assert sorted(found) == sorted(expected)


def test_a_stream_finds_its_own_last_row(bench: FlowBench) -> None:
    rows = [frame("a", (1, 3, "c"), (1, 1, "a")), frame("a", (1, 2, "b"), (2, 2, "z"))]
    flow, sink = ab.Flow("versions"), ab.to_memory()
    stream = flow.read(ab.memory(*rows)).watermark("ts", delay="1m")
    stream.join_asof(stream, by="key", allow_exact_matches=False, suffix="_before").write(sink)
    bench.run_flow(flow, [sink])
    found = sorted(sink.frame().select("a", "a_before").rows())
    assert found == [("a", None), ("b", "a"), ("c", "b"), ("z", None)]


def stored_rows(flow: ab.Flow, checkpoint: str) -> dict[str, int]:
    rows = flow.read_state(checkpoint)
    return dict(rows.group_by("input").len().rows()) if rows.width and "input" in rows.columns else {}


@pytest.mark.parametrize("tolerance", [None, "2s"])
def test_state_has_one_version_a_key_however_many_came(bench: FlowBench, tolerance: str | None) -> None:
    batches = 60
    left = [frame("a", (number % 4, number, "x")) for number in range(batches)]
    right = [frame("b", *((key, number, "v") for key in range(4))) for number in range(batches)]
    flow, sink = ab.Flow("versions"), ab.to_memory()
    streams = [flow.read(ab.memory(*frames)).watermark("ts") for frames in (left, right)]
    streams[0].join_asof(streams[1], by="key", tolerance=tolerance).write(sink)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False, slots=1)
    # Those at the watermark itself are not behind it: a row that is older than they may still come.
    assert stored_rows(flow, checkpoint) == {"left": 1, "right": 2 * 4}
    (level,) = Checkpoint(open_store(checkpoint)).latest().levels
    assert sum(run.live_rows for run in level.refs_of(0)) <= 30 * 4


def test_versions_that_are_too_old_leave_the_state_though_no_newer_one_comes(bench: FlowBench) -> None:
    left = [frame("a", (1, second, "x")) for second in range(0, 60, 5)]
    right = [frame("b", *((key, 0, "v") for key in range(20)))] + [
        frame("b", (99, second, "v")) for second in range(5, 60, 5)
    ]
    flow, sink = ab.Flow("versions"), ab.to_memory()
    streams = [flow.read(ab.memory(*frames)).watermark("ts") for frames in (left, right)]
    streams[0].join_asof(streams[1], by="key", tolerance="6s").write(sink)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False)
    versions = flow.read_state(checkpoint).filter(pl.col("input") == "right")
    assert versions["key"].unique().to_list() == [99]
    found = sink.frame().sort("ts")
    assert found["b"].to_list() == ["v", "v", *[None] * (found.height - 2)]


def test_the_state_of_a_key_shows_the_rows_that_wait_and_its_version(bench: FlowBench) -> None:
    left = [frame("a", (1, 50, "x")), frame("a", (1, 60, "y"), (2, 60, "z"))]
    right = [frame("b", (1, 1, "old"), (2, 1, "else")), frame("b", (1, 30, "new"), (2, 50, "else"))]
    checkpoint = bench.new_checkpoint()
    join(bench, left, right, checkpoint=checkpoint, slots=2)
    store = open_store(checkpoint)
    manifest = Checkpoint(store).latest()
    shown = read_values(store, manifest, manifest.levels[0], {"key": "1"})
    assert shown is not None
    assert sorted(shown.select("input", "key", "a", "b").rows(), key=repr) == [
        ("left", 1, "x", None),
        ("left", 1, "y", None),
        ("right", 1, None, "new"),
    ]


def test_a_flow_goes_on_from_the_state_of_another_on_other_slots(bench: FlowBench) -> None:
    left = [frame("a", (None, 5, "n"), (1, 5, "x"), (2, 6, "y")), frame("a", (1, 30, "z"))]
    right = [frame("b", (1, 1, "u"), (2, 2, "v")), frame("b", (1, 30, "w"))]
    flow, sink = ab.Flow("versions"), ab.to_memory()
    streams = [flow.read(ab.memory(*frames)).watermark("ts", delay="20s") for frames in (left[:1], right[:1])]
    streams[0].join_asof(streams[1], by="key", name="versions").write(sink)
    checkpoint = bench.new_checkpoint()
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False, slots=3)
    assert stored_rows(flow, checkpoint) == {"left": 3, "right": 2}
    raw = flow.read_state(checkpoint, raw=True)
    flow, sink = ab.Flow("versions"), ab.to_memory()
    streams = [flow.read(ab.memory(*frames)).watermark("ts", delay="20s") for frames in (left[1:], right[1:])]
    streams[0].join_asof(streams[1], by="key", name="versions").write(sink)
    settings = make_settings(checkpoint=bench.new_checkpoint(), trigger="available-now", drain=True, slots=2)
    run = LocalRun(flow, settings, cores=2, initial_state={"versions": raw})
    run.run_to_end()
    run.close()
    found = [(row["a"], row["b"]) for row in sink.frame().to_dicts()]
    assert sorted(found, key=repr) == sorted([("n", None), ("x", "u"), ("y", "v"), ("z", "w")], key=repr)
