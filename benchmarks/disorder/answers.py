"""The answers of the disorder bench: what each system said last of every window, beside what DuckDB says."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.disorder.inputs import DELAY_MS, FILE_FORMAT, SOURCES, WINDOW_MS
from benchmarks.shared.answers import (
    ANSWER_SCHEMA,
    AnswerCheck,
    Expected,
    aggregate_with_duckdb,
    canonicalise,
    check_answer,
    compute_digest,
    describe_difference,
    list_parquet_files,
)
from benchmarks.shared.workload import write_atomically

_KEY = ["window_start", "sensor"]
_FLINK_ROW = np.dtype([(name, "<f8" if name == "total" else "<i8") for name in ANSWER_SCHEMA])
_END_OF_TIME_MS = 2**53


@dataclass(frozen=True, slots=True)
class Oracle:
    """The answer of all windows, and the latest event time of all rows."""

    answer: pl.DataFrame
    latest_ms: int


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a system said last of every sensor and window, and how often it spoke."""

    rows: pl.DataFrame
    emissions: int

    @property
    def updates(self) -> int:
        """Emissions that another one of the same window had gone before."""
        return self.emissions - self.rows.height


def ask_oracle(folder: Path, window_ms: int = WINDOW_MS) -> Oracle:
    """Return what DuckDB answers on the same files; the answer is kept beside them."""
    path = folder.with_name(f"{folder.name}-oracle-{window_ms}.parquet")
    if not path.exists():
        write_atomically(path, aggregate_with_duckdb(folder, FILE_FORMAT, window_ms).write_parquet)
    answer = pl.read_parquet(path)
    return Oracle(canonicalise(answer, _END_OF_TIME_MS), int(answer.select(pl.col("latest").max()).item()))


def read_our_words(output: Path) -> LastWords:
    """Return the last emission of every window; files are named by batch, and rows lie in the order of emission."""
    return _keep_last(_read_parquet(path) for path in list_parquet_files(output))


def read_flink_words(output: Path) -> LastWords:
    """Return the last emission of every window; a sensor's are all in the files of one subtask, in their order."""
    return _keep_last(_read_flink_file(path) for path in list_flink_files(output))


def list_flink_files(output: Path) -> list[Path]:
    """Return the files that a job has committed, those of a subtask in their order; hidden ones were not committed."""
    return sorted((path for path in output.glob("part-*") if path.stat().st_size), key=_flink_order)


def _flink_order(path: Path) -> tuple[str, int]:
    subtask, _, number = path.name.rpartition("-")
    return subtask, int(number)


def count_flink_checkpoints(output: Path) -> int:
    """Return how many checkpoints a job made: each of them ends a file of every subtask."""
    return max((_flink_order(path)[1] for path in output.glob("part-*")), default=0)


def _read_flink_file(path: Path) -> pl.DataFrame:
    rows = np.fromfile(path, _FLINK_ROW)
    return pl.DataFrame({name: np.ascontiguousarray(rows[name]) for name in ANSWER_SCHEMA}, schema=ANSWER_SCHEMA)


def _keep_last(frames: Iterable[pl.DataFrame]) -> LastWords:
    emissions = 0
    # By file first: tens of millions of updates need not lie in memory at once.
    kept = [pl.DataFrame(schema=ANSWER_SCHEMA)]
    for frame in frames:
        emissions += frame.height
        kept.append(frame.unique(_KEY, keep="last", maintain_order=True))
    return LastWords(pl.concat(kept).unique(_KEY, keep="last", maintain_order=True), emissions)


def check_last_words(words: LastWords, oracle: Oracle) -> AnswerCheck:
    """Compare the last emission of every window with the oracle's answer, row for row."""
    return check_answer(words.rows, Expected(oracle.answer, _END_OF_TIME_MS))


@dataclass(frozen=True, slots=True)
class LossyAnswer:
    """How a system answered that drops late rows."""

    check: AnswerCheck
    dropped_rows: int
    """Rows that are missing in windows which were closed at the end."""


def check_lossy(output: Path, oracle: Oracle, punctual_sources: Collection[int]) -> LossyAnswer:
    """Judge a system that drops late rows.

    Windows of sources that do not lag must be the oracle's. Those of the others may lack rows, or be missing, but
    none may hold more than there is.
    """
    found = pl.concat([pl.DataFrame(schema=ANSWER_SCHEMA), *map(_read_parquet, list_parquet_files(output))]).sort(_KEY)
    # Windows that end later may still be open.
    wanted = oracle.answer.filter(pl.col("window_start") + WINDOW_MS <= oracle.latest_ms - DELAY_MS)
    is_punctual = (pl.col("sensor") % SOURCES).is_in(list(punctual_sources))
    said, due = found.filter(is_punctual), wanted.filter(is_punctual)
    beyond = found.join(wanted, on=_KEY, how="left", suffix="_wanted").filter(
        pl.col("readings_wanted").is_null() | (pl.col("readings") > pl.col("readings_wanted"))
    )
    difference = ""
    if not said.equals(due):
        difference = f"of sources that do not lag: {describe_difference(said, due)}"
    elif beyond.height:
        difference = f"{beyond.height} windows hold more rows than there are; first: {beyond.row(0, named=True)}"
    check = AnswerCheck(not difference, found.height, compute_digest(found), difference)
    return LossyAnswer(check, int(wanted["readings"].sum()) - int(found["readings"].sum()))


def _read_parquet(path: Path) -> pl.DataFrame:
    rows = pl.read_parquet(path, columns=list(ANSWER_SCHEMA))
    if rows.schema["window_start"].is_temporal():
        rows = rows.with_columns(pl.col("window_start").dt.epoch("ms"))
    return rows.select(pl.col(name).cast(kind) for name, kind in ANSWER_SCHEMA.items())
