"""The answers of the migration bench: what DuckDB says of the same files, and whether a system said the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import write_atomically

_COLUMNS: dict[str, type[pl.DataType]] = {
    "window_start": pl.Int64,
    "sensor": pl.Int64,
    "readings": pl.Int64,
    "total": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


def ask_oracle(folder: Path, window_ms: int) -> pl.DataFrame:
    """Return what DuckDB answers, without the window of the last row, which may stay open; kept beside the files."""
    path = folder.with_name(f"{folder.name}-oracle-{window_ms}.parquet")
    if not path.exists():
        try:
            import duckdb
        except ImportError as error:
            msg = "the answers are checked with DuckDB, which is not installed; install it: pip install 'duckdb>=1,<3'"
            raise BenchError(msg) from error
        query = (
            f"SELECT ts - ts % {window_ms} AS window_start, sensor, count(*) AS readings, sum(value) AS total,"
            " min(value) AS low, max(value) AS high FROM read_parquet($files) GROUP BY ALL"
        )
        with duckdb.connect() as connection:
            answer = pl.DataFrame(connection.sql(query, params={"files": str(folder / "part-*")}).to_arrow_table())
        write_atomically(path, _canonicalise(answer).write_parquet)
    return pl.read_parquet(path)


def check_answer(output: Path, expected: pl.DataFrame) -> AnswerCheck:
    """Compare the Parquet files below a folder with the oracle's answer, row for row."""
    paths = sorted(path for path in output.rglob("*.parquet") if not path.name.startswith((".", "_")))
    found = pl.concat([pl.read_parquet(path, columns=list(_COLUMNS)) for path in paths]) if paths else None
    if found is None:
        return AnswerCheck(False, 0, "", f"no rows instead of {expected.height:,}")
    canonical = _canonicalise(found, last_ms=int(expected.select(pl.col("window_start").max()).item()))
    digest = hashlib.sha256(b"".join(canonical[name].to_numpy().tobytes() for name in _COLUMNS)).hexdigest()
    if canonical.equals(expected):
        return AnswerCheck(True, canonical.height, digest)
    missing = expected.join(canonical, on=list(_COLUMNS), how="anti")
    extra = canonical.join(expected, on=list(_COLUMNS), how="anti")
    repeated = canonical.height - canonical.n_unique(["window_start", "sensor"])
    difference = f"{missing.height} rows missing, {extra.height} extra, {repeated} repeated"
    for name, rows in (("missing", missing), ("extra", extra)):
        if rows.height:
            return AnswerCheck(
                False, canonical.height, digest, f"{difference}; first {name}: {rows.row(0, named=True)}"
            )
    return AnswerCheck(False, canonical.height, digest, difference)


def _canonicalise(answer: pl.DataFrame, last_ms: int | None = None) -> pl.DataFrame:
    """Return sorted rows of all windows up to the last that counts; by default, up to the last but one."""
    start = pl.col("window_start")
    if answer.schema["window_start"].is_temporal():
        start = start.dt.epoch("ms")
    rows = answer.with_columns(window_start=start).select(pl.col(name).cast(kind) for name, kind in _COLUMNS.items())
    counts = pl.col("window_start") < pl.col("window_start").max()
    closed = rows.filter(counts if last_ms is None else pl.col("window_start") <= last_ms)
    return closed.sort("window_start", "sensor")
