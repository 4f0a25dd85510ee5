"""Calls of 10,000 phones and their tariffs: the input of the elastic paper's query, and its answer by DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from benchmarks.shared.answers import SCAN_BY_FORMAT, Expected, canonicalise
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import SCHEMA, WINDOW_MS, format_writer, write_atomically
from benchmarks.skew.streams import PHONE_NUMBERS, SkewStream, make_uniform_stream, write_stream

FILE_FORMAT: Final = "json"
DELAY_MS = 2_000
SHORTEST_CALL = 25.0
"""Calls that cost less before their tariff is known are left out: a tenth of all."""
DISTRICTS = 64
LEAST_MEAN_COST = 1_740.0
"""Of a district's calls in a window: about half of them cost more."""
_MOST_QUARTERS = 100
_END_OF_TIME_MS = 2**53


@dataclass(frozen=True, slots=True)
class PhoneInput:
    """Where calls and tariffs lie, and how much of them is a batch."""

    calls: Path
    tariffs: Path
    rows: int
    batches: int
    files_per_batch: int


def write_input(rows: int, batches: int, files_per_batch: int, seed: int, cache_dir: Path) -> PhoneInput:
    """Return the input, writing what the cache lacks: so many files of calls a batch, and one of tariffs.

    Every phone gets a new tariff once a batch, each at a moment of its own.
    """
    files = batches * files_per_batch
    stream = make_uniform_stream(rows // files, files, PHONE_NUMBERS, seed)
    calls = write_stream(stream, FILE_FORMAT, cache_dir)
    tariffs = calls.with_name(f"tariffs-{batches}")
    tariffs.mkdir(exist_ok=True)
    for batch in range(batches):
        path = tariffs / f"part-{batch:05d}.{FILE_FORMAT}"
        if not path.exists():
            write_atomically(path, partial(_write_tariffs, stream, batch, files_per_batch))
    return PhoneInput(calls, tariffs, stream.rows, batches, files_per_batch)


def ask_oracle(given: PhoneInput) -> Expected:
    """Return what DuckDB answers to the query on the same files; the answer is kept beside them."""
    path = given.tariffs / ".oracle.parquet"
    if not path.exists():
        write_atomically(path, _query(given).write_parquet)
    return Expected(canonicalise(pl.read_parquet(path), _END_OF_TIME_MS), _END_OF_TIME_MS)


def _query(given: PhoneInput) -> pl.DataFrame:
    try:
        import duckdb
    except ImportError as error:
        msg = "the answers are checked with DuckDB, which is not installed; install it with: pip install 'duckdb>=1,<3'"
        raise BenchError(msg) from error
    scan = SCAN_BY_FORMAT[FILE_FORMAT]
    query = f"""
        SELECT calls.ts - calls.ts % {WINDOW_MS} AS window_start, calls.sensor % {DISTRICTS} AS sensor,
            count(*) AS readings, sum(calls.value * tariffs.value) AS total
        FROM {scan.replace("$files", "$calls")} AS calls
        ASOF JOIN {scan.replace("$files", "$tariffs")} AS tariffs
            ON calls.sensor = tariffs.sensor AND calls.ts >= tariffs.ts
        WHERE calls.value >= {SHORTEST_CALL}
        GROUP BY ALL
        HAVING total / readings >= {LEAST_MEAN_COST}
    """
    files = {"calls": str(given.calls / "part-*"), "tariffs": str(given.tariffs / "part-*")}
    with duckdb.connect() as connection:
        return pl.DataFrame(connection.sql(query, params=files).to_arrow_table())


def _write_tariffs(stream: SkewStream, batch: int, files_per_batch: int, path: Path) -> None:
    first_ms = int(stream.make_rows(batch * files_per_batch)["ts"].min())  # type: ignore[arg-type]
    last_ms = int(stream.make_rows((batch + 1) * files_per_batch - 1)["ts"].max())  # type: ignore[arg-type]
    rng = np.random.default_rng([stream.seed, batch, 1])
    phones = rng.permutation(PHONE_NUMBERS)
    tariffs = pl.DataFrame(
        {
            "sensor": phones,
            "ts": first_ms + np.arange(PHONE_NUMBERS) * (last_ms - first_ms) // PHONE_NUMBERS,
            "value": rng.integers(1, _MOST_QUARTERS + 1, PHONE_NUMBERS) / 4.0,
        },
        schema=SCHEMA,
    )
    format_writer(FILE_FORMAT)(tariffs, path)
