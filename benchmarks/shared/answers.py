"""One canonical answer a system, its digest, and the comparison with an independent oracle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import WATERMARK_DELAY_MS, WINDOW_MS, write_atomically

ANSWER_SCHEMA: dict[str, type[pl.DataType]] = {
    "window_start": pl.Int64,
    "sensor": pl.Int64,
    "readings": pl.Int64,
    "total": pl.Float64,
}
_KEY = ["window_start", "sensor"]

_COLUMNS = "{sensor: 'BIGINT', ts: 'BIGINT', value: 'DOUBLE'}"
SCAN_BY_FORMAT = {
    "json": f"read_json($files, format = 'newline_delimited', columns = {_COLUMNS})",
    "csv": f"read_csv($files, header = true, columns = {_COLUMNS})",
    "parquet": "read_parquet($files)",
    MIXED_JSON: (
        "(SELECT sensor, ts, reading.value AS value FROM read_json($files, format = 'newline_delimited',"
        " columns = {sensor: 'VARCHAR', ts: 'BIGINT', reading: 'STRUCT(value DOUBLE)'}))"
    ),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The oracle's answer, of the windows that every system must have emitted."""

    answer: pl.DataFrame
    closed_until_ms: int
    """The final watermark: windows that end later may still be open in some systems, so none is asked for them."""
    readings: int = 0
    """Of all windows, open ones too."""
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Whether a system answered as the oracle did, and if not, how the answers differ."""

    equal: bool
    rows: int
    digest: str
    difference: str = ""


def ask_oracle(folder: Path, file_format: str) -> Expected:
    """Return what DuckDB answers on the same files; the answer is kept beside them."""
    path = folder.with_name(f"{folder.name}-oracle.parquet")
    if not path.exists():
        answer = aggregate_with_duckdb(folder, file_format)
        write_atomically(path, answer.write_parquet)
    answer = pl.read_parquet(path)
    latest_ms = answer.select(pl.col("latest").max()).item()
    closed_until_ms = int(latest_ms) - WATERMARK_DELAY_MS
    readings, total = answer.select(pl.col("readings").sum(), pl.col("total").sum()).row(0)
    return Expected(canonicalise(answer, closed_until_ms), closed_until_ms, int(readings), float(total))


def aggregate_with_duckdb(folder: Path, file_format: str, window_ms: int = WINDOW_MS) -> pl.DataFrame:
    """Return count, sum and latest event time of each sensor and window, whatever the order of the rows."""
    return query_with_duckdb(
        folder,
        file_format,
        f"SELECT ts - ts % {window_ms} AS window_start, sensor, count(*) AS readings, sum(value) AS total,"
        " max(ts) AS latest FROM {rows} GROUP BY ALL",
    )


def query_with_duckdb(folder: Path, file_format: str, query: str) -> pl.DataFrame:
    """Return what DuckDB answers to a query on all files of a folder, which it calls ``{rows}``."""
    try:
        import duckdb
    except ImportError as error:
        msg = "the answers are checked with DuckDB, which is not installed; install it with: pip install 'duckdb>=1,<3'"
        raise BenchError(msg) from error
    with duckdb.connect() as connection:
        scan = query.replace("{rows}", SCAN_BY_FORMAT[file_format])
        return pl.DataFrame(connection.sql(scan, params={"files": str(folder / "part-*")}).to_arrow_table())


def canonicalise(answer: pl.DataFrame, closed_until_ms: int) -> pl.DataFrame:
    """Return an answer's closed windows as (window_start, sensor, readings, total), sorted; sensors may have names.

    Repeated rows stay: a row that was written twice must spoil the digest.
    """
    start = pl.col("window_start")
    if answer.schema["window_start"].is_temporal():
        start = start.dt.epoch("ms")
    kinds: dict[str, type[pl.DataType]] = dict(ANSWER_SCHEMA)
    if answer.schema["sensor"] == pl.String:
        kinds["sensor"] = pl.String
    return (
        answer.with_columns(window_start=start)
        .select(pl.col(name).cast(dtype) for name, dtype in kinds.items())
        .filter(pl.col("window_start") + WINDOW_MS <= closed_until_ms)
        .sort(list(ANSWER_SCHEMA))
    )


def compute_digest(canonical: pl.DataFrame) -> str:
    """Return a digest of a canonical answer that depends on its values alone, not on the Polars version."""
    sha256 = hashlib.sha256(str(canonical.height).encode())
    for name in canonical.columns:
        column = canonical.get_column(name)
        if column.null_count():
            sha256.update(f"{name}: {column.null_count()} nulls".encode())
            column = column.fill_null("" if column.dtype == pl.String else 0)
        if column.dtype == pl.String:
            sha256.update("\0".join(column).encode())
            continue
        values = column.to_numpy()
        sha256.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return sha256.hexdigest()


def check_answer(answer: pl.DataFrame, expected: Expected) -> AnswerCheck:
    """Compare a system's raw answer with the oracle's, row for row."""
    canonical = canonicalise(answer, expected.closed_until_ms)
    digest = compute_digest(canonical)
    if digest == compute_digest(expected.answer):
        return AnswerCheck(equal=True, rows=canonical.height, digest=digest)
    return AnswerCheck(
        equal=False, rows=canonical.height, digest=digest, difference=describe_difference(canonical, expected.answer)
    )


def check_totals(answer: pl.DataFrame, expected: Expected) -> AnswerCheck:
    """Compare what all rows add up to, for those who read them and do nothing else with them."""
    readings, total = (int(answer.get_column("readings").sum()), float(answer.get_column("total").sum()))
    equal = (readings, total) == (expected.readings, expected.total)
    found = f"{readings} rows with a sum of {total}"
    wanted = f"{expected.readings} with {expected.total}"
    digest = hashlib.sha256(found.encode()).hexdigest()
    return AnswerCheck(equal, readings, digest, "" if equal else f"{found}, not {wanted}")


def describe_difference(found: pl.DataFrame, wanted: pl.DataFrame) -> str:
    """Say how many rows are missing, extra, repeated and wrong, with one example."""
    missing = wanted.join(found, on=_KEY, how="anti")
    extra = found.join(wanted, on=_KEY, how="anti")
    repeated = found.height - found.select(_KEY).n_unique()
    both = found.join(wanted, on=_KEY, how="inner", suffix="_wanted")
    values = [name for name in wanted.columns if name not in _KEY]
    wrong = both.filter(pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_wanted")) for name in values))
    counts = (
        f"{missing.height} rows missing, {extra.height} extra, {repeated} repeated, {wrong.height} with other values"
    )
    for name, rows in (("missing", missing), ("extra", extra), ("wrong", wrong)):
        if rows.height:
            return f"{counts}; first {name}: {rows.sort(_KEY).row(0, named=True)}"
    return counts


def list_parquet_files(folder: Path) -> list[Path]:
    """Return the files that a system has committed, by name."""
    return sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith((".", "_")))


def _read_parquet_answer(folder: Path) -> pl.DataFrame:
    paths = list_parquet_files(folder)
    if not paths:
        return pl.DataFrame(schema=ANSWER_SCHEMA)
    return pl.concat([pl.read_parquet(path, columns=list(ANSWER_SCHEMA)) for path in paths])


def _read_flink_answer(folder: Path) -> pl.DataFrame:
    # Flink writes rows of unfinished checkpoints to hidden files: what is not committed does not count.
    paths = sorted(path for path in folder.rglob("part-*") if path.stat().st_size)
    if not paths:
        return pl.DataFrame(schema=ANSWER_SCHEMA)
    schema: dict[str, type[pl.DataType]] = {**ANSWER_SCHEMA, "window_start": pl.String, "sensor": pl.String}
    rows = pl.concat([pl.read_csv(path, has_header=False, schema=schema) for path in paths])
    numbers = rows.get_column("sensor").cast(pl.Int64, strict=False)
    if numbers.null_count() == rows.get_column("sensor").null_count():
        rows = rows.with_columns(sensor=numbers)
    return rows.with_columns(pl.col("window_start").str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ms"))


def _read_partial_answer(folder: Path) -> pl.DataFrame:
    """Return the sums of what the two processes found: they share no keys' state, so their halves meet here."""
    partial = _read_parquet_answer(folder)
    return partial.group_by(_KEY).agg(pl.col("readings").sum(), pl.col("total").sum())


def _read_totals(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(path) for path in sorted(folder.rglob("*.parquet"))])


ANSWER_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "anabranch": _read_parquet_answer,
    "spark-memory": _read_parquet_answer,
    "spark-rocksdb": _read_parquet_answer,
    "flink": _read_flink_answer,
    "two-polars": _read_partial_answer,
    "two-duckdb": _read_totals,
}
