"""The answers of the exchange bench: all windows of a run, from files or from the store, beside what DuckDB says."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import anabranch as ab
from benchmarks.exchange.figures import GLOBAL
from benchmarks.exchange.inputs import FILE_FORMAT, MIXED, WINDOW_MS
from benchmarks.shared.answers import (
    ANSWER_READERS,
    ANSWER_SCHEMA,
    AnswerCheck,
    Expected,
    aggregate_with_duckdb,
    canonicalise,
    check_answer,
)
from benchmarks.shared.workload import write_atomically

STORE_TABLE = "windows"
_END_OF_TIME_MS = 2**53


def ask_oracle(folder: Path) -> Expected:
    """Return what DuckDB answers on the rows as they came; the answer is kept beside them. Flows drain: all windows."""
    path = folder / f".oracle-{WINDOW_MS}.parquet"
    if not path.exists():
        write_atomically(path, aggregate_with_duckdb(folder / MIXED, FILE_FORMAT, WINDOW_MS).write_parquet)
    return Expected(canonicalise(pl.read_parquet(path), _END_OF_TIME_MS), _END_OF_TIME_MS)


def check_way(way: str, output: Path, expected: Expected) -> AnswerCheck:
    """Compare what a way left at ``output``, a folder or a store, with the oracle's answer, row for row."""
    answer = _read_store(output) if way == GLOBAL else ANSWER_READERS["anabranch"](output)
    return check_answer(answer, expected)


def _read_store(output: Path) -> pl.DataFrame:
    stored = ab.read_global_store(output, STORE_TABLE)
    # A store that nothing was merged into knows no columns.
    return stored if stored.width else pl.DataFrame(schema=ANSWER_SCHEMA)
