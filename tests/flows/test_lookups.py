"""Lookups inside flows: matches, misses, rejects, behind an exchange, and from a server that was away."""

from __future__ import annotations

import polars as pl
import pytest

import anabranch as ab
from flows.running import FlowBench, reading

NAMES = pl.DataFrame({"key": [1, 2], "name": ["one", "two"]})
ROWS = [[reading(1, 1), reading(3, 2)], [reading(2, 12), reading(None, 13), reading(1, 14)]]


def test_rows_that_the_table_lacks_get_nulls_by_default(bench: FlowBench) -> None:
    outcome = bench.run(ROWS, lambda rows: rows.lookup(ab.frame_table(NAMES), "key").select("key", "name"))
    assert sorted(map(str, outcome.rows)) == sorted(
        str({"key": key, "name": name}) for key, name in [(1, "one"), (3, None), (2, "two"), (None, None), (1, "one")]
    )


@pytest.mark.parametrize(("missing", "dead_rows"), [("drop", 0), ("reject", 2)])
def test_rows_that_the_table_lacks_are_dropped_or_set_apart(bench: FlowBench, missing: str, dead_rows: int) -> None:
    outcome = bench.run(
        ROWS,
        lambda rows: rows.lookup(ab.frame_table(NAMES), "key", missing=missing).select("key", "name"),  # type: ignore[arg-type]
    )
    assert sorted(row["name"] for row in outcome.rows) == ["one", "one", "two"]
    assert outcome.dead_rows == dead_rows


def test_results_of_windows_are_looked_up_too(bench: FlowBench) -> None:
    outcome = bench.run(
        ROWS,
        lambda rows: (
            rows.filter("key IS NOT NULL")
            .key_by("key")
            .watermark("ts")
            .window("10s")
            .agg(readings=ab.count())
            .lookup(ab.frame_table(NAMES), "key", missing="drop")
        ),
    )
    assert sorted((row["name"], row["readings"]) for row in outcome.rows) == [("one", 1), ("one", 1), ("two", 1)]


def test_a_lookup_under_operator_parallelism_gives_the_same(bench: FlowBench) -> None:
    outcome = bench.run(
        ROWS,
        lambda rows: rows.lookup(ab.frame_table(NAMES), "key", missing="drop").key_by("name").agg(rows=ab.count()),
        parallelism="operator",
    )
    last = {row["name"]: row["rows"] for row in outcome.rows}
    assert last == {"one": 2, "two": 1}
