"""The answers of the applications: what each system emitted, beside what DuckDB and a plain loop say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.apps.rules import LOW_VOLTAGE, VAULT, VAULT_RULE, WINDOW_MS, VaultRule
from benchmarks.disorder.answers import list_flink_files
from benchmarks.disorder.inputs import FILE_FORMAT
from benchmarks.shared.answers import (
    AnswerCheck,
    compute_digest,
    describe_difference,
    list_parquet_files,
    query_with_duckdb,
)
from benchmarks.shared.workload import write_atomically

SCHEMAS: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    LOW_VOLTAGE: {
        "window_start": pl.Int64,
        "sensor": pl.Int64,
        "readings": pl.Int64,
        "low": pl.Int64,
        "lowest": pl.Float64,
    },
    VAULT: {
        "window_start": pl.Int64,
        "sensor": pl.Int64,
        "was": pl.Int64,
        "level": pl.Int64,
        "drift_um": pl.Float64,
        "um_per_minute": pl.Float64,
    },
}
KEY = ["window_start", "sensor"]


def ask_oracle(app: str, folder: Path, low_volts: float) -> pl.DataFrame:
    """Return the application's answer on the same files, without any of the systems; it is kept beside them."""
    path = folder.with_name(f"{folder.name}-oracle-{app}-{low_volts:g}.parquet")
    if not path.exists():
        answer = _find_low_windows(folder, low_volts) if app == LOW_VOLTAGE else follow_crowns(_find_means(folder))
        write_atomically(path, answer.write_parquet)
    return pl.read_parquet(path)


def _find_low_windows(folder: Path, low_volts: float) -> pl.DataFrame:
    window = WINDOW_MS[LOW_VOLTAGE]
    return query_with_duckdb(
        folder,
        FILE_FORMAT,
        f"SELECT ts - ts % {window} AS window_start, sensor, count(*) AS readings,"
        f" count(*) FILTER (value < {low_volts}) AS low, min(value) AS lowest"
        " FROM {rows} GROUP BY ALL HAVING low > 0 ORDER BY ALL",
    )


def _find_means(folder: Path) -> pl.DataFrame:
    window = WINDOW_MS[VAULT]
    return query_with_duckdb(
        folder,
        FILE_FORMAT,
        f"SELECT sensor, ts - ts % {window} AS window_start, sum(value) / count(*) AS mean_um"
        " FROM {rows} GROUP BY ALL ORDER BY ALL",
    )


def follow_crowns(means: pl.DataFrame, rule: VaultRule = VAULT_RULE) -> pl.DataFrame:
    """Return the changes of level, by a loop over each sensor's means in their order."""
    changes = [
        (start_ms, sensor, was, level, drift, rate)
        for (sensor,), windows in means.sort("sensor", "window_start").group_by("sensor", maintain_order=True)
        for start_ms, was, level, drift, rate in _follow(windows, rule)
    ]
    return pl.DataFrame(changes, schema=dict(SCHEMAS[VAULT]), orient="row").sort(KEY)


def _follow(windows: pl.DataFrame, rule: VaultRule) -> Iterator[tuple[int, int, int, float, float]]:
    starts_ms, means_um = windows["window_start"].to_numpy(), windows["mean_um"].to_numpy()
    # Of each window, the newest before it that is old enough; -1 where there is none yet.
    before = np.searchsorted(starts_ms, starts_ms - rule.rate_over_ms, side="right") - 1
    level = 0
    for place, (start_ms, mean_um, old) in enumerate(zip(starts_ms, means_um, before, strict=True)):
        drift = float(mean_um - means_um[0])
        minutes = (start_ms - starts_ms[old]) / 60_000 if old >= 0 else 0.0
        rate = float((means_um[place] - means_um[old]) / minutes) if old >= 0 else 0.0
        entered = _count_passed(drift, rate, rule, 1.0)
        held = min(level, _count_passed(drift, rate, rule, rule.left_below))
        was, level = level, max(entered, held)
        if was != level:
            yield int(start_ms), was, level, drift, rate


def _count_passed(drift_um: float, um_per_minute: float, rule: VaultRule, part: float) -> int:
    """Return the highest level whose limits, or a part of them, are reached."""
    limits = enumerate(zip(rule.drift_um, rule.um_per_minute, strict=True), start=1)
    return max(
        (n for n, (drift, rate) in limits if drift_um >= part * drift or um_per_minute >= part * rate), default=0
    )


def read_answer(app: str, output: Path) -> pl.DataFrame:
    """Return what we, or native Spark, emitted, in the order of emission."""
    schema = SCHEMAS[app]
    frames = [pl.DataFrame(schema=dict(schema))]
    for path in list_parquet_files(output):
        rows = pl.read_parquet(path, columns=list(schema))
        if rows.schema["window_start"].is_temporal():
            rows = rows.with_columns(pl.col("window_start").dt.epoch("ms"))
        frames.append(rows.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(frames)


def read_flink_answer(app: str, output: Path) -> pl.DataFrame:
    """Return what Flink emitted; a sensor's rows are all in the files of one subtask, in their order."""
    schema = SCHEMAS[app]
    kinds = np.dtype([(name, "<f8" if kind is pl.Float64 else "<i8") for name, kind in schema.items()])
    frames = [pl.DataFrame(schema=dict(schema))]
    for path in list_flink_files(output):
        rows = np.fromfile(path, kinds)
        frames.append(pl.DataFrame({name: np.ascontiguousarray(rows[name]) for name in schema}, schema=dict(schema)))
    return pl.concat(frames)


def check_app_answer(app: str, emitted: pl.DataFrame, wanted: pl.DataFrame, closed_until_ms: int | None) -> AnswerCheck:
    """Compare the last emission of every window with the oracle's, row for row.

    Of a system that does not drain, windows count that end by ``closed_until_ms``. Only windows of low voltage are
    emitted again: a change of level that came twice is wrong.
    """
    if closed_until_ms is not None:
        closed = pl.col("window_start") + WINDOW_MS[app] <= closed_until_ms
        emitted, wanted = emitted.filter(closed), wanted.filter(closed)
    found = emitted.unique(KEY, keep="last", maintain_order=True) if app == LOW_VOLTAGE else emitted
    found, wanted = (frame.select(list(SCHEMAS[app])).sort(list(SCHEMAS[app])) for frame in (found, wanted))
    digest = compute_digest(found)
    equal = digest == compute_digest(wanted)
    return AnswerCheck(equal, found.height, digest, "" if equal else describe_difference(found, wanted))
