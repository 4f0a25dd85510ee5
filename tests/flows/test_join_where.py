"""Joins by any predicate: whatever it is, the bounds, the slots and the restarts, answers are DuckDB's."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import anabranch as ab
from anabranch.cli.state.values import read_values
from anabranch.errors import CheckpointError
from anabranch.state import Checkpoint, open_store
from anabranch.state.manifest import Manifest
from anabranch.testing import FlowTester
from flows.running import FlowBench
from flows.test_joins import KINDS_OF_BOUNDS, START, drop_late, lay_windows, run

ATOMS = (
    "abs(a - a_right) <= {n}",
    "a BETWEEN a_right - {n} AND a_right + {m}",
    "a_right - a BETWEEN {n} AND {m}",
    "a < a_right",
    "a_right <= a + {n}",
    "a - a_right >= {n}",
    "a = a_right",
    "a = a_right + {n}",
    "x < x_right",
    "abs(x - x_right) <= 0.75",
    "x - x_right > 0.5",
    "x_right >= x - {n}",
    "a % 3 = a_right % 3",
    "key = key_right",
    "key <> key_right",
    "a < x_right",
    "ts < ts_right",
    "word = word_right",
    "(a = a_right OR x > x_right)",
    "left_only + a_right > {m}",
)
DEALING = ("auto", "grid", "matrix", "bi")
NEAR = (
    "abs(a - a_right) <= 1",
    "a BETWEEN a_right - 2 AND a_right + 1 AND x < x_right",
    "a_right - a BETWEEN 3 AND 5",
    "a = a_right + 2",
    "a > a_right AND a < a_right + 3",
)
BY_KEY = ("auto", "hash", "modulo", "ranges", "consistent-hash", "weight-hash", "pkg", "least-count", "bi6")


def make_predicate(chance: random.Random) -> str | None:
    """Return some conditions that must all be true, or none."""
    atoms = chance.sample(ATOMS, chance.choice((0, 1, 1, 2, 2, 3)))
    low = chance.randrange(-2, 4)
    return " AND ".join(atoms).format(n=low, m=low + chance.randrange(0, 6)) or None


def make_rows(chance: random.Random, batches: int, *, left: bool) -> list[pl.DataFrame]:
    """Return batches of rows out of order, some without values."""
    frames, number = [], 0
    for batch in range(batches):
        count = chance.choice((1, 3, 25))
        rows = {
            "key": [chance.choice([None, 1, 2, 3]) for _ in range(count)],
            "ts": [START + timedelta(seconds=batch * 4 + chance.randrange(-6, 9)) for _ in range(count)],
            "a": [chance.choice([None, *range(-9, 12)]) for _ in range(count)],
            "x": [chance.choice([None, 0.0, -0.0, 1e300, *(step / 4 for step in range(-9, 9))]) for _ in range(count)],
            "word": [chance.choice(["a", "b", "c", None]) for _ in range(count)],
            "id": range(number, number + count),
            **({"left_only": [chance.randrange(9) for _ in range(count)]} if left else {}),
        }
        number += count
        types = {"key": pl.Int64, "ts": pl.Datetime("us"), "a": pl.Int64, "x": pl.Float64, "word": pl.String}
        schema = {**types, "id": pl.Int64, **({"left_only": pl.Int64} if left else {})}
        frames.append(pl.DataFrame(rows, schema=schema))
    return frames


def ask_duckdb(left: pl.DataFrame, right: pl.DataFrame, condition: str, *, windows: bool) -> list[Any]:
    """Return the numbers of rows that meet, and their window, if there are any."""
    with duckdb.connect() as database:
        database.register("l", left.to_arrow())
        database.register("r", right.to_arrow())
        renamed = ", ".join(f"r.{name} AS {name}_right" for name in right.columns)
        shown = "id, id_right" + (", w" if windows else "")
        pairs = f"SELECT l.*, {renamed} FROM l CROSS JOIN r"
        return sorted(database.sql(f"SELECT {shown} FROM ({pairs}) WHERE {condition}").fetchall())


def check(bench: FlowBench, seed: int, *, moving: bool = False, near: bool = False) -> None:
    """Compare a random join with DuckDB's; ``near``: one by keys that are near each other."""
    chance = random.Random(seed)
    bounds = KINDS_OF_BOUNDS[seed % len(KINDS_OF_BOUNDS)]
    batches = chance.randrange(1, 6)
    sides = [make_rows(chance, batches, left=left) for left in (True, False)]
    predicate = chance.choice(NEAR) if near else make_predicate(chance)
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
    given = pl.sql_expr(predicate) if predicate is not None and chance.random() < 0.5 else predicate
    left.join_where(right, given, routing=chance.choice(BY_KEY if near else DEALING), **options).write(sink)
    run(bench, chance, flow, sink, batches, moving=moving, key="a" if near else "key")
    condition = {
        "within": f"epoch(ts_right) - epoch(ts) BETWEEN {before} AND {after}",
        "ttl": "abs(epoch(ts_right) - epoch(ts)) <= 5",
        "never": "true",
    }.get(bounds, "w = w_right")
    in_time = pl.lit(True) if bounds in ("window", "sliding", "never") else pl.col("ts") >= pl.col("closed")
    tables = drop_late(sides, delay, in_time)
    has_windows = bounds in ("window", "sliding")
    if has_windows:
        tables = [lay_windows(table, size, size if bounds == "window" else every) for table in tables]
    expected = ask_duckdb(*tables, f"({predicate or 'true'}) AND {condition}", windows=has_windows)
    found = sink.frame()
    if not found.width:
        assert not expected, (seed, predicate, bounds)
        return
    columns: list[Any] = ["id", "id_right"]
    if has_windows:
        columns.append((pl.col("window_start") - START).dt.total_seconds())
    assert sorted(found.select(columns).rows()) == expected, (seed, predicate, bounds)


@pytest.mark.parametrize("seed", range(60))
def test_a_join_by_any_predicate_answers_as_duckdb(bench: FlowBench, seed: int) -> None:
    check(bench, seed)


@pytest.mark.parametrize("seed", range(60, 90))
def test_a_join_by_any_predicate_answers_as_duckdb_while_its_routes_change(bench: FlowBench, seed: int) -> None:
    check(bench, seed, moving=True)


def make_numbers(column: str, rows: int) -> pl.DataFrame:
    """Return rows whose keys are the numbers below 100, evenly."""
    numbers = pl.int_range(rows, eager=True)
    return pl.DataFrame({"a": numbers % 100, "ts": [START] * rows, column: numbers})


@pytest.mark.parametrize(
    ("routing", "least", "most"),
    [
        # Right rows go to the three homes of a number's neighbours, left ones to their own.
        ("modulo", 2.0, 2.0),
        # Only those beside a border go to two slots.
        ("ranges", 1.0, 1.05),
        ("hash", 1.25, 2.0),
        ("grid", 2.0, 2.0),
    ],
)
def test_near_keys_go_to_as_many_slots_as_their_neighbours_have(
    bench: FlowBench, routing: str, least: float, most: float
) -> None:
    flow, sink = ab.Flow("joins"), ab.to_memory()
    one, other = (flow.read(ab.memory(make_numbers(column, 1_000))).watermark("ts") for column in ("b", "c"))
    one.join_where(other, "abs(a - a_right) <= 1", within="1s", routing=routing).write(sink)
    got = bench.run_flow(flow, [sink], slots=4)
    assert least <= sum(sum(entry.slot_rows) for entry in got.progress) / 2_000 <= most
    # Each of the numbers is there ten times on either side.
    assert sink.frame().height == (100 + 99 + 99) * 10 * 10


def test_state_of_a_join_without_keys_is_shown_and_begins_another_flow() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0], "ts": [START, START]})

    def build() -> ab.Flow:
        flow = ab.Flow("joins")
        left, right = (flow.read(ab.memory(frame.clear()), name=name).watermark("ts") for name in ("l", "r"))
        left.join_where(right, "abs(x - x_right) <= 0.5", ttl="1h").write(ab.to_memory())
        return flow

    with FlowTester(build(), slots=4) as tester:
        tester.add(frame, "l").run()
        assert sorted(tester.state().select("input", "x").rows()) == [("left", 1.0), ("left", 2.0)]
        raw = tester.state(raw=True)
    with FlowTester(build(), slots=3, initial_state={"join": raw}) as other:
        other.add(frame.with_columns(x=pl.Series([1.25, 9.0])), "r").run()
        assert other.results().select("x", "x_right").rows() == [(1.0, 1.25)]


@pytest.mark.parametrize("seed", range(90, 130))
def test_a_join_by_near_integers_answers_as_duckdb(bench: FlowBench, seed: int) -> None:
    check(bench, seed, near=True)


@pytest.mark.parametrize("seed", range(130, 170))
def test_a_join_by_near_integers_answers_as_duckdb_while_keys_move_and_are_split(bench: FlowBench, seed: int) -> None:
    check(bench, seed, near=True, moving=True)


def make_near(predicate: str, right: ab.memory, left: ab.memory) -> tuple[ab.Flow, Any]:
    """Return the flow of a join by near integers, and its sink."""
    flow, sink = ab.Flow("near"), ab.to_memory()
    # The right side comes first: its rows wait where the band says that left ones will look for them.
    other, one = (flow.read(side, name=name).watermark("ts") for name, side in (("r", right), ("l", left)))
    one.join_where(other, predicate, ttl="1h", name="join").write(sink)
    return flow, sink


def make_numbered(column: str) -> pl.DataFrame:
    """Return a row for each of 24 numbers."""
    return make_numbers(column, 24)


def test_another_band_of_near_keys_is_refused_as_stored_rows_lie_by_the_one_before(bench: FlowBench) -> None:
    checkpoint = bench.new_checkpoint()
    right, left = ab.memory(make_numbered("c")), ab.memory(make_numbered("b").clear())
    flow, sink = make_near("abs(a - a_right) <= 1", right, left)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False, slots=4)
    before = sorted(Path(checkpoint, "commits").glob("*.json"))
    left.add(make_numbered("b"))
    other, _ = make_near("abs(a - a_right) <= 2", right, left)
    with pytest.raises(CheckpointError, match=r"band of near keys was \[-1, 1\] and is \[-2, 2\]"):
        bench.run_flow(other, [], checkpoint=checkpoint, slots=4)
    assert sorted(Path(checkpoint, "commits").glob("*.json")) == before
    # The same band in other words goes on.
    same, sink = make_near("a BETWEEN a_right - 1 AND a_right + 1", right, left)
    bench.run_flow(same, [sink], checkpoint=checkpoint, slots=4)
    assert sink.frame().height == 24 + 2 * 23


def test_a_checkpoint_that_does_not_say_its_band_goes_on_and_says_it_from_then_on(bench: FlowBench) -> None:
    checkpoint = bench.new_checkpoint()
    right, left = ab.memory(make_numbered("c")), ab.memory(make_numbered("b").clear())
    flow, sink = make_near("a = a_right + 2", right, left)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False, slots=4)
    path = sorted(Path(checkpoint, "commits").glob("*.json"))[-1]
    manifest = Manifest.decode(path.read_bytes(), path.name)
    join = dict(manifest.flow_structure["operators"]["join"])
    assert (join["copied"], join.pop("near")) == ("right", [-2, -2])
    structure = {**manifest.flow_structure, "operators": {"join": join}}
    path.write_bytes(replace(manifest, flow_structure=structure).encode())
    left.add(make_numbered("b"))
    bench.run_flow(flow, [sink], checkpoint=checkpoint, slots=4)
    assert sorted(sink.frame().select("a", "a_right").rows()) == [(number + 2, number) for number in range(22)]
    latest = Checkpoint(open_store(checkpoint)).latest()
    assert latest is not None
    assert latest.flow_structure["operators"]["join"]["near"] == [-2, -2]


@pytest.mark.parametrize("predicate", ["a = a_right + 2", "abs(a - a_right) <= 1", "a_right - a BETWEEN 3 AND 5"])
def test_right_rows_of_near_keys_are_shown_once_without_the_flow(bench: FlowBench, predicate: str) -> None:
    checkpoint = bench.new_checkpoint()
    right, left = (ab.memory(make_numbered(column)) for column in "cb")
    flow, sink = make_near(predicate, right, left)
    bench.run_flow(flow, [sink], checkpoint=checkpoint, drain=False, slots=4)
    store = open_store(checkpoint)
    manifest = Checkpoint(store).latest()
    assert manifest is not None
    for number in range(24):
        shown = read_values(store, manifest, manifest.levels[0], {"a": str(number)})
        assert shown is not None
        found = sorted(shown.select("input", "a", "b", "c").rows())
        assert found == [("left", number, number, None), ("right", number, None, number)]
