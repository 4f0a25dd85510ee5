"""What each operator must answer: DuckDB's word on the same files, and the comparison with what a system wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.operators.plan import BEST, DELAY_MS, GAP_US, LEVEL, MINUTE_MS, PERCENTILE, SLIDE_MS, WINDOW_MS
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import write_atomically

_FILES = "read_parquet($files)"
_TOTALS = "count(*) AS readings, sum(value) AS total"
# Five times what a sketch is off by in one of three groups, and a few for groups of a handful.
_USERS_OFF = 0.08
_RANK_OFF = 0.01
_TEN_SECONDS = f"ts - ts % {WINDOW_MS} AS window_start"

_SLIDING = f"""
    SELECT window_start, user, {_TOTALS} FROM (
        SELECT unnest([ts - ts % {SLIDE_MS}, ts - ts % {SLIDE_MS} - {WINDOW_MS - SLIDE_MS}]) AS window_start,
               user, value FROM {_FILES}
    ) GROUP BY ALL HAVING window_start + {WINDOW_MS} <= $closed_ms"""
_SESSION = f"""
    SELECT min(ts) AS window_start, user, {_TOTALS} FROM (
        SELECT *, sum(begins) OVER (PARTITION BY user ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session FROM (
            SELECT user, ts, value, coalesce(
                1000 * (ts - lag(ts) OVER (PARTITION BY user ORDER BY ts)) > {GAP_US}, true)::INT AS begins
            FROM {_FILES}
        )
    ) GROUP BY user, session HAVING 1000 * max(ts) + {GAP_US} <= 1000 * $closed_ms"""
_TWO_HOPS = f"""
    SELECT * FROM (
        SELECT window_start - window_start % {MINUTE_MS} AS window_start, site, count(*) AS users,
               sum(readings)::BIGINT AS readings, sum(total) AS total
        FROM (SELECT {_TEN_SECONDS}, site, user, {_TOTALS} FROM {_FILES} GROUP BY ALL) GROUP BY ALL
    ) WHERE window_start + {MINUTE_MS} <= $closed_ms"""
_SKETCHES = f"""
    SELECT * FROM (
        SELECT {_TEN_SECONDS}, site, count(*) AS readings, count(DISTINCT user) AS users,
               quantile_disc(value, {PERCENTILE - _RANK_OFF}) AS lowest_high, max(value) AS highest_high
        FROM {_FILES} GROUP BY ALL
    ) WHERE window_start + {WINDOW_MS} <= $closed_ms"""
_TOP_K = f"""
    SELECT window_start, user, rank, value FROM (
        SELECT {_TEN_SECONDS}, user, value,
               row_number() OVER (PARTITION BY ts - ts % {WINDOW_MS}, user ORDER BY value DESC) AS rank
        FROM {_FILES}
    ) WHERE rank <= {BEST} AND window_start + {WINDOW_MS} <= $closed_ms"""
_LEVELS = f"""
    SELECT user, unnest(range(1, floor(total / {LEVEL})::BIGINT + 1)) AS level
    FROM (SELECT user, sum(value) AS total FROM {_FILES} GROUP BY user) WHERE total >= {LEVEL}"""

_Canonicalise = Callable[[pl.DataFrame], pl.DataFrame]


def _as_it_is(answer: pl.DataFrame) -> pl.DataFrame:
    return answer


def _last_words(answer: pl.DataFrame) -> pl.DataFrame:
    """Return the last emission of each user: values are not negative, so counts and totals only rise."""
    return answer.group_by("user").agg(pl.col("readings").max(), pl.col("total").max())


@dataclass(frozen=True, slots=True)
class _Question:
    """What the oracle is asked, and what of a system's answer it is compared with."""

    query: str
    columns: dict[str, type[pl.DataType]]
    window_ms: int | None = None
    """Windows that end later than the last watermark may still be open in some systems."""
    canonicalise: _Canonicalise = _as_it_is


_TOTALS_OF_USERS = {"user": pl.String, "readings": pl.Int64, "total": pl.Float64}
_TOTALS_OF_WINDOWS = {"window_start": pl.Int64, **_TOTALS_OF_USERS}
_LEVELS_OF_USERS = {"user": pl.String, "level": pl.Int64}
_QUESTIONS: dict[str, _Question] = {
    "sliding": _Question(_SLIDING, _TOTALS_OF_WINDOWS, WINDOW_MS),
    "session": _Question(_SESSION, _TOTALS_OF_WINDOWS),
    "running": _Question(
        f"SELECT user, {_TOTALS} FROM {_FILES} GROUP BY user", _TOTALS_OF_USERS, canonicalise=_last_words
    ),
    "distinct": _Question(f"SELECT DISTINCT user, item FROM {_FILES}", {"user": pl.String, "item": pl.Int64}),
    "two-hops": _Question(
        _TWO_HOPS,
        {"window_start": pl.Int64, "site": pl.String, "users": pl.Int64, "readings": pl.Int64, "total": pl.Float64},
        MINUTE_MS,
    ),
    "sketches": _Question(
        _SKETCHES,
        {"window_start": pl.Int64, "site": pl.String, "readings": pl.Int64, "users": pl.Int64, "high": pl.Float64},
        WINDOW_MS,
    ),
    # Which of two equal rows comes first is left open.
    "top-k": _Question(
        _TOP_K, {"window_start": pl.Int64, "user": pl.String, "rank": pl.Int64, "value": pl.Float64}, WINDOW_MS
    ),
    "process-rows": _Question(_LEVELS, _LEVELS_OF_USERS),
    "process-frames": _Question(_LEVELS, _LEVELS_OF_USERS),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """The oracle's answer."""

    answer: pl.DataFrame
    closed_ms: int
    """The watermark behind which every system must have spoken."""


def ask_oracle(folder: Path, operator: str) -> Expected:
    """Return what DuckDB answers on the same files; the answer is kept beside them."""
    path = folder.with_name(f"{folder.name}-{operator}-oracle.parquet")
    closed_ms = _find_closed_ms(folder)
    if not path.exists():
        question = _QUESTIONS[operator]
        params: dict[str, object] = {"closed_ms": closed_ms} if "$closed_ms" in question.query else {}
        answer = _ask_duckdb(question.query, folder, params)
        write_atomically(path, answer.write_parquet)
    return Expected(pl.read_parquet(path), closed_ms)


def _find_closed_ms(folder: Path) -> int:
    """Return the last watermark."""
    latest = pl.scan_parquet(folder / "part-*").select(pl.col("ts").max()).collect().item()
    return int(latest) - DELAY_MS


def _ask_duckdb(query: str, folder: Path, params: dict[str, object]) -> pl.DataFrame:
    try:
        import duckdb
    except ImportError as error:
        msg = "the answers are checked with DuckDB, which is not installed; install it with: pip install 'duckdb>=1,<3'"
        raise BenchError(msg) from error
    with duckdb.connect() as connection:
        found = connection.sql(query, params={"files": str(folder / "part-*"), **params}).to_arrow_table()
    return pl.DataFrame(found)


def read_answer(folder: Path, operator: str) -> pl.DataFrame:
    """Return what a system wrote."""
    paths = sorted(
        path
        for path in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
    if not paths:
        return pl.DataFrame(schema=_QUESTIONS[operator].columns)
    return pl.concat([pl.read_parquet(path) for path in paths], how="vertical_relaxed")


def check_answer(operator: str, answer: pl.DataFrame, expected: Expected) -> AnswerCheck:
    """Compare what a system wrote with the oracle's answer, row for row; sketches within what they may be off by."""
    question = _QUESTIONS[operator]
    missing = [name for name in question.columns if name not in answer.columns]
    if missing:
        return AnswerCheck(False, answer.height, "", f"columns {', '.join(missing)} are missing in {answer.columns}")
    found = _canonicalise(question, answer, expected.closed_ms)
    wanted = expected.answer
    if operator == "sketches":
        return _check_sketches(found, wanted)
    wanted = wanted.select(pl.col(name).cast(kind) for name, kind in question.columns.items()).sort(pl.all())
    digest = _compute_digest(found)
    if found.equals(wanted):
        return AnswerCheck(True, found.height, digest)
    return AnswerCheck(False, found.height, digest, _describe_difference(found, wanted))


def _canonicalise(question: _Question, answer: pl.DataFrame, closed_ms: int) -> pl.DataFrame:
    """Return the columns that are compared, of windows that all systems have closed, sorted; repeated rows stay."""
    if "window_start" in question.columns and answer.schema["window_start"].is_temporal():
        answer = answer.with_columns(pl.col("window_start").dt.epoch("ms"))
    answer = answer.select(pl.col(name).cast(kind) for name, kind in question.columns.items())
    if question.window_ms is not None:
        answer = answer.filter(pl.col("window_start") + question.window_ms <= closed_ms)
    return question.canonicalise(answer).sort(pl.all())


def _check_sketches(found: pl.DataFrame, wanted: pl.DataFrame) -> AnswerCheck:
    """Compare groups and counts exactly, estimates by how far they may be off."""
    key = ["window_start", "site"]
    digest = _compute_digest(found.select(*key, "readings"))
    exact, due = found.select(*key, "readings"), wanted.select(*key, "readings").sort(pl.all())
    if not exact.equals(due):
        return AnswerCheck(False, found.height, digest, _describe_difference(exact, due))
    both = found.join(wanted, on=key, suffix="_wanted")
    off = both.filter(
        ((pl.col("users") - pl.col("users_wanted")).abs() > _USERS_OFF * pl.col("users_wanted") + 2)
        | ~pl.col("high").is_between("lowest_high", "highest_high")
    )
    if off.is_empty():
        return AnswerCheck(True, found.height, digest)
    return AnswerCheck(False, found.height, digest, f"{off.height} estimates are off; first: {off.row(0, named=True)}")


def _describe_difference(found: pl.DataFrame, wanted: pl.DataFrame) -> str:
    """Say how many rows are missing, extra and repeated, with one example."""
    columns = wanted.columns
    missing, extra = wanted.join(found, on=columns, how="anti"), found.join(wanted, on=columns, how="anti")
    counts = (
        f"{missing.height} rows missing, {extra.height} extra, {found.height - found.n_unique()} repeated"
        f" of {wanted.height}"
    )
    for name, rows in (("missing", missing), ("extra", extra)):
        if rows.height:
            return f"{counts}; first {name}: {rows.row(0, named=True)}"
    return counts


def _compute_digest(canonical: pl.DataFrame) -> str:
    """Return a digest of a canonical answer that depends on its values alone, not on the Polars version."""
    sha256 = hashlib.sha256(str(canonical.height).encode())
    for column in canonical.iter_columns():
        if column.dtype == pl.String:
            sha256.update("\x00".join(column.fill_null("\x01").to_list()).encode())
        else:
            values = column.to_numpy()
            sha256.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return sha256.hexdigest()
