"""Print a digest of everything each kernel sends, stores and emits for the same pseudo-random rows."""

from __future__ import annotations

import hashlib
import io
import random
from dataclasses import replace

import polars as pl

from anabranch.model import (
    HASH,
    ORDER,
    AggregateSpec,
    Clock,
    CountWindowSpec,
    DistinctSpec,
    OperatorSpec,
    OperatorTime,
    TopKSpec,
    WindowSpec,
)
from anabranch.operators.aggregates import functions as ab
from anabranch.operators.aggregates import sketches as sk
from anabranch.operators.kernels import make_kernel
from unit.operators.memory_state import MemoryState

SECOND_US = 1_000_000
ROWS = 1_500
AGGREGATES = {
    "rows": ab.count(),
    "total": ab.sum("real"),
    "average": ab.mean("real"),
    "spread": ab.variance("real"),
    "opening": ab.first("real"),
    "closing": ab.last("real"),
    "different": sk.approx_distinct("whole"),
    "quartiles": sk.quantiles("real", 0.25, 0.5, 0.75),
}
WINDOWS: list[WindowSpec | None] = [
    WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US),
    WindowSpec("sliding", 10 * SECOND_US, 4 * SECOND_US),
    WindowSpec("session", SECOND_US // 2, SECOND_US // 2),
    None,
]


def specs() -> list[OperatorSpec]:
    made: list[OperatorSpec] = []
    for window in WINDOWS:
        made += [AggregateSpec(keys, AGGREGATES, window, "ts") for keys in (("key",), ("name", "key"))]
    made.append(TopKSpec(("name",), "real", 3, True, ("whole",), WINDOWS[0], "ts"))
    made.append(DistinctSpec(("name",), "ts", 5 * SECOND_US))
    clock = Clock("key", SECOND_US)
    for late, lateness_us in (("side", 0), ("update", 9 * SECOND_US)):
        windows = [replace(window, late=late, lateness_us=lateness_us) for window in WINDOWS if window is not None]
        made += [AggregateSpec(("name", "key"), AGGREGATES, window, "ts", clock=clock) for window in windows]
    made.append(TopKSpec(("name",), "real", 3, True, ("whole",), WINDOWS[2], "ts", clock=clock))
    made += [AggregateSpec(("name",), AGGREGATES, count_window=CountWindowSpec(9, rows)) for rows in (3, 9)]
    return made


def rows(batch: int, split: int) -> pl.DataFrame:
    rng = random.Random(batch * 10 + split)
    keys = [int(rng.paretovariate(0.7)) % 500 for _ in range(ROWS)]
    return pl.DataFrame(
        {
            "key": keys,
            "name": [f"name-{key}" for key in keys],
            "ts": [batch * 5 * SECOND_US + rng.randrange(8 * SECOND_US) for _ in range(ROWS)],
            "whole": [rng.randrange(300) for _ in range(ROWS)],
            "real": [rng.random() for _ in range(ROWS)],
            ORDER: [(split << 36) + row for row in range(ROWS)],
        }
    ).with_columns(pl.col("ts").cast(pl.Datetime("us")))


def digest_of(spec: OperatorSpec) -> str:
    kernel = make_kernel(spec)
    state = MemoryState()
    digest = hashlib.sha256()
    fired_us = -(2**62)
    for batch in range(3):
        fire_us = (batch * 5 - 6) * SECOND_US
        time = OperatorTime(batch, fire_us, fire_us, batch, fired_us)
        fired_us = fire_us
        received = []
        for split in range(2):
            sent = kernel.prepare(rows(batch, split), time).frame
            sent = kernel.combine(sent) if kernel.mergeable else sent
            key = pl.col(spec.keys[-1]).cast(pl.String)
            received.append(sent.with_columns((key.str.len_bytes() % 3).cast(pl.UInt64).alias(HASH)))
        fired = kernel.advance(received, kernel.mergeable, state, time)
        for frame in [*received, *state.live(), fired.frame, *([] if fired.late is None else [fired.late])]:
            content = io.BytesIO()
            frame.write_ipc(content)
            digest.update(content.getvalue())
    return digest.hexdigest()


if __name__ == "__main__":
    for described in specs():
        print(digest_of(described))
