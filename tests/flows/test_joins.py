"""Joins of streams: whatever the kind, the bounds, the disorder and the slots, answers are DuckDB's."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.faults import MOMENTS
from anabranch.model.joins import JOIN_KINDS
from anabranch.testing import FlowTester
from flows.running import FlowBench
from flows.test_moves import Steerings

START = datetime(2026, 1, 1)
BEGINNING = datetime(1970, 1, 1)
KINDS = ("x", "y")
"""Values of a second key."""
BY_ONE_INTEGER = ("ranges", "modulo")
"""Routings that want a single key, and that it is an integer."""
KINDS_OF_BOUNDS = ("within", "window", "sliding", "ttl", "never")


def make_rows(
    chance: random.Random, column: str, batches: int, keys: int, *, kinds: bool = False
) -> list[pl.DataFrame]:
    """Return batches of rows out of order, some without a key, with numbers that tell them apart.

    With ``kinds`` they have a second key, which some of them lack.
    """
    frames, number = [], 0
    for batch in range(batches):
        count = chance.choice((1, 3, 25))
        seconds = [batch * 4 + chance.randrange(-6, 9) for _ in range(count)]
        rows = {
            "key": [chance.choice([None, *range(keys)]) for _ in range(count)],
            **({"kind": [chance.choice([None, *KINDS]) for _ in range(count)]} if kinds else {}),
            "ts": [START + timedelta(seconds=second) for second in seconds],
            column: range(number, number + count),
        }
        number += count
        more = {"kind": pl.String} if kinds else {}
        frames.append(pl.DataFrame(rows, schema={"key": pl.Int64, **more, "ts": pl.Datetime("us"), column: pl.Int64}))
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
    """Run a flow at once or batch by batch, on any number of slots, or on slots that change while keys move.

    In half of the cases, some of its drivers are killed, and others take over.
    """
    settings: dict[str, Any] = {"checkpoint": bench.new_checkpoint(), "buckets": 16}
    keys = [{key: number, "kind": kind} for number in range(40) for kind in KINDS]
    steer = Steerings(chance.randrange(10**6), keys) if moving else None
    deadly = chance.choice((0.0, 0.7))
    if deadly:
        settings["takeover"] = True
    runs: list[dict[str, Any]] = [{"trigger": "once", "drain": False} for _ in range(batches + 2)]
    for more in [*(runs if chance.random() < 0.5 else ()), {}]:
        slots = {} if moving else {"slots": chance.choice((1, 2, 5))}
        while chance.random() < deadly:
            moment, batch = chance.choice(MOMENTS), chance.choice((None, None, *range(batches)))
            bench.run_until_killed(moment, batch, flow, [sink], steer, **settings, **more, **slots)
        bench.run_steered(flow, [sink], steer, **settings, **more, **slots)
    assert steer is None or steer.changes or batches < 3


def check(bench: FlowBench, seed: int, *, moving: bool = False, routing: str = "auto", how: str = "") -> None:
    """Compare a random join with DuckDB's; of any kind unless ``how`` is given."""
    chance = random.Random(seed)
    bounds = KINDS_OF_BOUNDS[seed % len(KINDS_OF_BOUNDS)]
    if not how:
        how = JOIN_KINDS[seed // len(KINDS_OF_BOUNDS) % len(JOIN_KINDS)]
        how = chance.choice(("inner", "semi")) if bounds == "never" else how
    batches = chance.randrange(1, 7)
    keys = ["key", "kind"] if routing not in BY_ONE_INTEGER and chance.random() < 0.4 else ["key"]
    some_keys = chance.choice((2, 40))
    sides = [make_rows(chance, column, batches, some_keys, kinds=len(keys) > 1) for column in ("a", "b")]
    delay = timedelta(seconds=chance.choice((0, 4, 60)))
    before, after = sorted(chance.randrange(-5, 9) for _ in range(2))
    closed: Any = chance.choice(("both", "left", "right", "none")) if before < after else "both"
    size, every = chance.choice(((6, 6), (5, 5))) if bounds == "window" else chance.choice(((6, 2), (7, 3), (4, 3)))
    options: dict[str, Any] = {
        "within": {"within": (timedelta(seconds=-before), timedelta(seconds=after)), "closed": closed},
        "window": {"window": timedelta(seconds=size)},
        "sliding": {"window": timedelta(seconds=size), "every": timedelta(seconds=every)},
        "ttl": {"ttl": timedelta(seconds=5)},
        "never": {},
    }[bounds]
    flow, sink = ab.Flow("joins"), ab.to_memory()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay=delay) for frames in sides)
    left.join(right, on=keys, how=how, routing=routing, **options).write(sink)
    run(bench, chance, flow, sink, batches, moving=moving)
    least_us, most_us = (-5_000_000, 5_000_000) if bounds == "ttl" else (before * 1_000_000, after * 1_000_000)
    if bounds == "within":
        least_us, most_us = least_us + (closed in ("right", "none")), most_us - (closed in ("left", "none"))
    condition = {
        "within": f"epoch_us(r.ts) - epoch_us(l.ts) BETWEEN {least_us} AND {most_us}",
        "ttl": "abs(epoch(r.ts) - epoch(l.ts)) <= 5",
        "never": "true",
    }.get(bounds, "l.w = r.w")
    in_time = pl.lit(True) if bounds in ("window", "sliding", "never") else pl.col("ts") >= pl.col("closed")
    tables = drop_late(sides, delay, in_time)
    has_windows = bounds in ("window", "sliding")
    columns = f"{', '.join(f'coalesce(l.{key}, r.{key})' for key in keys)}, l.ts, l.a, r.ts, r.b"
    if how in ("semi", "anti"):
        columns = f"{', '.join(f'l.{key}' for key in keys)}, l.ts, l.a"
    if has_windows:
        tables = [lay_windows(table, size, size if bounds == "window" else every) for table in tables]
        columns += ", l.w" if how in ("semi", "anti") else ", coalesce(l.w, r.w)"
    elif how != "semi":
        columns += f", {say_joined_at(how, least_us, most_us)}"
    expected = ask_duckdb(
        *tables, how, f"{' AND '.join(f'l.{key} = r.{key}' for key in keys)} AND {condition}", columns
    )
    found = sink.frame()
    if not found.width:
        assert not expected
        return
    if has_windows:
        seconds = (pl.col("window_start") - START).dt.total_seconds()
        found = found.with_columns(window_start=seconds).drop("window_end")
    if how == "semi":
        # It is the time of whichever partner came first.
        found = found.drop("joined_at", strict=False)
    assert sorted(map(repr, found.rows())) == expected, (seed, how, bounds)


def say_joined_at(how: str, least_us: int, most_us: int) -> str:
    """Return the event time of a result in SQL: the later one of a pair, or the last at which a partner could come."""
    left = f"greatest(l.ts, l.ts + to_microseconds({most_us}))"
    if how == "anti":
        return left
    right = f"greatest(r.ts, r.ts - to_microseconds({least_us}))"
    return f"CASE WHEN r.b IS NULL THEN {left} WHEN l.a IS NULL THEN {right} ELSE greatest(l.ts, r.ts) END"


@pytest.mark.parametrize("seed", range(30))
def test_a_join_answers_as_duckdb(bench: FlowBench, seed: int) -> None:
    check(bench, seed)


@pytest.mark.parametrize("seed", range(30, 60))
def test_a_join_answers_as_duckdb_while_keys_move_and_are_split(bench: FlowBench, seed: int) -> None:
    check(bench, seed, moving=True)


@pytest.mark.parametrize("kind", ["join", "near", "as of", "own time"])
def test_an_empty_state_has_the_columns_of_one_with_rows_of_both_inputs(kind: str) -> None:
    flow, schema = ab.Flow("empty"), {"key": pl.Int64, "kind": pl.String, "ts": pl.Datetime("us")}
    given = {"per": "key"} if kind == "own time" else {}
    one, other = (
        flow.read(ab.memory(pl.DataFrame(schema=schema | {name: dtype})), name=name).watermark("ts", **given)
        for name, dtype in (("l", pl.Float64), ("r", pl.Boolean))
    )
    match kind:
        case "as of":
            joined = one.join_asof(other, by=["key", "kind"])
        case "near":
            joined = one.join_where(other, "abs(key - key_right) <= 1", within="1h")
        case _:
            joined = one.join(other, on=["key", "kind"], within="1h")
    joined.write(ab.to_memory())
    row = {"key": 1, "kind": "x", "ts": START}
    with FlowTester(flow, slots=2) as tester:
        # Nothing is there before the first batch, nor behind one without rows that count.
        before = [tester.state()]
        tester.tick()
        before.append(tester.state())
        tester.add({**row, "l": 0.5}, "l").add({**row, "r": True}, "r").run()
        filled = tester.state()
    assert sorted(filled["input"]) == ["left", "right"]
    for empty in before:
        assert empty.height == 0
        assert empty.schema == filled.schema


@pytest.mark.parametrize("moving", [False, True])
def test_drivers_of_random_joins_are_killed_and_others_take_over(bench: FlowBench, moving: bool) -> None:
    for seed in range(60, 65):
        check(bench, seed, moving=moving)
    assert bench.kills >= 5


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


@pytest.mark.parametrize(
    ("how", "pair", "left_alone", "right_alone"),
    [
        ("left", True, True, False),
        ("right", True, False, True),
        ("full", True, True, True),
        ("anti", False, True, False),
    ],
)
def test_a_row_that_met_nobody_comes_out_once_time_has_passed_its_last_possible_partner(
    how: Any, pair: bool, left_alone: bool, right_alone: bool
) -> None:
    flow, schema = ab.Flow("outer"), {"key": pl.Int64, "ts": pl.Datetime("us")}
    sides = {name: ab.memory(pl.DataFrame(schema={**schema, name: pl.String})) for name in ("l", "r")}
    left, right = (flow.read(side, name=name).watermark("ts", delay="1s") for name, side in sides.items())
    left.join(right, on="key", within=("3s", "7s"), how=how).write(ab.to_memory())

    def at(second: int) -> datetime:
        return START + timedelta(seconds=second)

    found: dict[int, list[Any]] = {}
    with FlowTester(flow, slots=3) as tester:
        tester.add([{"key": 1, "ts": at(10), "l": "x"}, {"key": 2, "ts": at(10), "l": "y"}], "l")
        tester.add([{"key": 1, "ts": at(12), "r": "u"}, {"key": 3, "ts": at(10), "r": "v"}], "r")
        # Then rows of a key that nobody asks for, a batch a second: the watermark is a second behind them.
        for second in range(12, 21):
            rows = tester.run().results()
            found[second] = sorted(rows.filter(pl.col("key") < 9).rows()) if rows.width else []
            for name in sides:
                tester.add([{"key": 9, "ts": at(second + 1), name: "-"}], name)
    wanted: dict[int, list[Any]] = {second: [] for second in found}
    if pair:
        wanted[12] = [(1, at(10), "x", at(12), "u", at(12))]
    # A left row is asked for until 7 s after it, a right one until 3 s after it, when a left one could still come.
    if right_alone:
        wanted[13 + 2] = [(3, None, None, at(10), "v", at(13))]
    if left_alone:
        row = (2, at(10), "y", at(17)) if how == "anti" else (2, at(10), "y", None, None, at(17))
        wanted[17 + 2] = [row]
    assert found == wanted


FIGURES: dict[str, tuple[str, list[tuple[str, int]], list[tuple[str, int]], set[str]]] = {
    "third": (
        "2s",
        [(str(number), number) for number in range(4)],
        list(zip("ABCD", range(4), strict=True)),
        {f"{a}{'ABCD'[b]}" for a in range(4) for b in range(4) if abs(a - b) < 2},
    ),
    "fourth": (
        "4s",
        [("P", 0), ("Q", 2), ("X", 7), ("Y", 8)],
        [("2", 1), ("3", 3), ("5", 5), ("7", 11)],
        {"P2", "P3", "Q2", "Q3", "Q5", "X5", "Y5", "Y7"},
    ),
}
"""Figure of the first paper → within which time rows meet, rows of both sides with their second, pairs."""


def lay_orders(rows: list[tuple[str, int]], places: np.ndarray[Any, Any]) -> list[pl.DataFrame]:
    """Return a batch for each place in an order: of each order, which is a key, the row that comes there."""
    names, seconds = (pl.Series(list(values)) for values in zip(*rows, strict=True))
    batches = []
    for place in range(8):
        keys, chosen = np.nonzero(places == place)
        batches.append(
            pl.DataFrame({"key": keys, "name": names[chosen], "second": seconds[chosen]}).select(
                "key", (pl.lit(START) + pl.duration(seconds="second")).dt.cast_time_unit("us").alias("ts"), "name"
            )
        )
    return batches


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_of_the_first_paper_in_every_order_of_arrival(bench: FlowBench, figure: str) -> None:
    within, left, right, wanted = FIGURES[figure]
    # Row by row, the place in the order of each of the eight rows: an order is a key.
    places = np.array(list(itertools.permutations(range(8))))
    sides = [lay_orders(left, places[:, :4]), lay_orders(right, places[:, 4:])]
    flow, sink = ab.Flow("joins"), ab.to_memory()
    one, other = (flow.read(ab.memory(*frames, max_frames=1)).watermark("ts", delay="1h") for frames in sides)
    one.join(other, on="key", within=within, closed="none").write(sink)
    got = bench.run_flow(flow, [sink])
    assert [entry.rows_in for entry in got.progress][:8] == [len(places)] * 8
    pairs = sink.frame().select("key", pair=pl.col("name") + pl.col("name_right"))
    # Each pair once in each order, and no other.
    assert pairs.is_unique().all()
    assert pairs.height == len(places) * len(wanted)
    assert set(pairs["pair"].unique()) == wanted


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


class Numbering(ab.Processor):
    """Numbers the rows of a key."""

    rows = ab.value(pl.Int64(), default=0)

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        state.rows += 1
        yield {"ts": row["ts"], "a": row["a"], "nth": state.rows}


class Adding(ab.Processor):
    """Adds up the pairs of a key."""

    pairs = ab.value(pl.Int64(), default=0)
    total = ab.value(pl.Int64(), default=0)

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        state.pairs += 1
        state.total += row["nth"] * 1000 + row["b"]
        yield {"at": row["joined_at"], "pairs": state.pairs, "total": state.total}


def add_up_pairs(left: pl.DataFrame, right: pl.DataFrame) -> dict[tuple[int, datetime], tuple[int, int]]:
    """Return what is known of a key after the last pair of a moment, in plain Python."""
    found = {}
    for key in range(6):
        mine, others = (side.filter(pl.col("key") == key).sort("ts", maintain_order=True) for side in (left, right))
        pairs = [
            (max(ts, at), nth * 1000 + b)
            for nth, ts in enumerate(mine["ts"], 1)
            for at, b in others.select("ts", "b").rows()
            if abs(at - ts) <= timedelta(seconds=5)
        ]
        total = 0
        for count, (moment, value) in enumerate(sorted(pairs), 1):
            total += value
            found[key, moment] = (count, total)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_processors_stand_before_and_behind_joins(bench: FlowBench, seed: int) -> None:
    chance = random.Random(seed)
    sides = [make_rows(chance, column, 9, 6) for column in ("a", "b")]
    flow, sink = ab.Flow("joins"), ab.to_memory()
    left, right = (flow.read(ab.memory(*frames)).watermark("ts", delay="20s") for frames in sides)
    key = {"key": pl.Int64}
    numbers = key | {"ts": pl.Datetime("us"), "a": pl.Int64, "nth": pl.Int64}
    numbered = left.key_by("key").ordered("ts").process(Numbering(), schema=numbers)
    pairs = numbered.watermark("ts").join(right, on="key", within="5s")
    totals = key | {"at": pl.Datetime("us"), "pairs": pl.Int64, "total": pl.Int64}
    pairs.key_by("key").ordered("joined_at").process(Adding(), schema=totals).write(sink)
    checkpoint = bench.new_checkpoint()
    for _ in range(3):
        bench.run_flow(flow, [sink], checkpoint=checkpoint, slots=chance.choice((1, 3)), trigger="once", drain=False)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, slots=3)
    expected = add_up_pairs(*map(pl.concat, sides))
    assert len(expected) > 5
    found: dict[Any, Any] = {}
    for key_value, moment, count, total in sink.frame().select("key", "at", "pairs", "total").rows():
        found[key_value, moment] = max((count, total), found.get((key_value, moment), (0, 0)))
    assert found == expected
    # Each pair is told of once.
    assert sink.frame().select("key", "pairs").is_unique().all()


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
