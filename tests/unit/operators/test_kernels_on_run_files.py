"""The kernels on real run files, opened anew for every batch as tasks do, answer what they answer in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.model import (
    END_OF_TIME,
    HASH,
    ORDER,
    AggregateSpec,
    Clock,
    CountWindowSpec,
    DistinctSpec,
    OperatorSpec,
    OperatorTime,
    RunRef,
    TopKSpec,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates import sketches as sk
from anabranch.operators.kernels import make_kernel
from anabranch.routing import hash_keys
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.slots import RunsOfSlot
from anabranch.state.store import open_store
from unit.operators.memory_state import MemoryState

SECOND_US = 1_000_000
AGGREGATES = {
    "rows": ab.count(),
    "total": ab.sum("x"),
    "spread": ab.variance("x"),
    "opening": ab.first("x"),
    "latest": ab.max("ts"),
    "different": sk.approx_distinct("x"),
    "middle": sk.median("x"),
}
TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US)
SESSION = WindowSpec("session", 2 * SECOND_US, 2 * SECOND_US)
UPDATED: dict[str, Any] = {"late": "update", "lateness_us": 5 * SECOND_US}
SPECS: dict[str, OperatorSpec] = {
    "tumbling": AggregateSpec(("key",), AGGREGATES, TUMBLING, "ts"),
    "sliding": AggregateSpec(("key",), AGGREGATES, SLIDING, "ts"),
    "session": AggregateSpec(("key",), AGGREGATES, SESSION, "ts"),
    "running": AggregateSpec(("key",), AGGREGATES, None, "ts", 8 * SECOND_US),
    "top_k": TopKSpec(("key",), "x", 2, True, ("day",), TUMBLING, "ts"),
    "distinct": DistinctSpec(("key",), "ts", 8 * SECOND_US),
    "sliding by key": AggregateSpec(("key",), AGGREGATES, SLIDING, "ts", clock=Clock("key", SECOND_US, idle_us=4)),
    "tumbling updated": AggregateSpec(("key",), AGGREGATES, replace(TUMBLING, **UPDATED, early_us=SECOND_US), "ts"),
    "session by key": AggregateSpec(("key",), AGGREGATES, SESSION, "ts", clock=Clock("key", SECOND_US)),
    "session updated": AggregateSpec(("key",), AGGREGATES, replace(SESSION, **UPDATED), "ts"),
    "session aside": AggregateSpec(("key",), AGGREGATES, replace(SESSION, late="side"), "ts"),
    "count": AggregateSpec(("key",), AGGREGATES, None, "ts", count_window=CountWindowSpec(6, 4)),
}
KEY_TYPES: dict[str, pl.Expr] = {
    "whole": pl.col("number"),
    "narrow": pl.col("number").cast(pl.UInt8),
    "text": pl.format("key-{}", "number"),
    "bytes": pl.format("key-{}", "number").cast(pl.Binary),
    "date": pl.lit(date(2024, 1, 1)) + pl.duration(days="number"),
    "time": (pl.lit(datetime(2024, 1, 1)) + pl.duration(seconds="number")).cast(pl.Datetime("ms")),
    "decimal": pl.col("number").cast(pl.Decimal(12, 2)),
    "flag": pl.col("number") % 2 == 0,
    "category": pl.format("key-{}", "number").cast(pl.Categorical),
    "enum": pl.format("key-{}", "number").cast(pl.Enum([f"key-{number}" for number in range(11)])),
}


def rows_of(batch: int, key: pl.Expr) -> pl.DataFrame:
    numbers = [(batch * 7 + row * row) % 11 for row in range(24)]
    offsets = [(batch * 3 + row * 5) % 9 for row in range(24)]
    return (
        pl.DataFrame(
            {
                "number": numbers,
                "ts": [datetime(2024, 1, 1) + timedelta(seconds=batch * 2 + offset) for offset in offsets],
                "x": [row / 4 for row in range(24)],
                "day": [date(2024, 1, 1 + row) for row in range(24)],
                ORDER: list(range(24)),
            }
        )
        .with_columns(key.alias("key"))
        .drop("number")
    )


@pytest.mark.parametrize(
    ("kernel_name", "key_name"),
    [
        *((kernel, "text") for kernel in SPECS),
        *((kernel, key) for kernel in ("tumbling", "running") for key in KEY_TYPES),
    ],
)
def test_run_files_hold_what_memory_holds(kernel_name: str, key_name: str, tmp_path: Path) -> None:
    kernel = make_kernel(SPECS[kernel_name])
    key = KEY_TYPES[key_name]
    memory = MemoryState()
    runs: tuple[RunRef, ...] = ()
    start_us = (datetime(2024, 1, 1) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    fired_us = -(2**62)
    emitted = 0
    for batch in range(14):
        fire_us = END_OF_TIME if batch == 13 else start_us + (batch * 2 - 3) * SECOND_US
        closed_us = min(fire_us, start_us + 23 * SECOND_US)
        time = OperatorTime(batch, closed_us, fire_us, 0, fired_us)
        fired_us = fire_us
        sent = kernel.prepare(rows_of(batch, key), time).frame
        sent = kernel.combine(sent) if kernel.mergeable else sent
        sent = sent.with_columns(hash_keys(sent, ["key"]).alias(HASH))
        files = RunFiles(open_store(tmp_path), "state/0/0", WriteName(1, batch, 0, "x"))
        state = RunsOfSlot([RunRef.from_json(run.to_json()) for run in runs], files, files)
        on_files = kernel.advance([sent], kernel.mergeable, state, time)
        in_memory = kernel.advance([sent], kernel.mergeable, memory, time)
        runs = state.runs()
        assert on_files.frame.equals(in_memory.frame)
        assert (on_files.late_rows, on_files.next_due_us) == (in_memory.late_rows, in_memory.next_due_us)
        assert (on_files.late is None) == (in_memory.late is None)
        assert on_files.late is None or on_files.late.equals(in_memory.late)
        emitted += on_files.frame.height
    assert emitted > 0
