"""Totals of keys that share a hash with others, whatever of these has expired."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

import anabranch as ab
from anabranch.model import HASH, AggregateSpec, OperatorTime
from anabranch.operators.kernels import make_kernel
from unit.operators.memory_state import MemoryState

SECOND_US = 1_000_000


def rows_of(key: int, second: int) -> pl.DataFrame:
    at = datetime.fromtimestamp(second, UTC).replace(tzinfo=None)
    return pl.DataFrame({"key": [key], "ts": pl.Series([at], dtype=pl.Datetime("us")), "n": [1]})


def test_an_expired_total_does_not_hide_that_of_another_key_with_its_hash() -> None:
    spec = AggregateSpec(("key",), {"rows": ab.count()}, None, "ts", ttl_us=10 * SECOND_US)
    kernel, state = make_kernel(spec), MemoryState()
    emitted = []
    # The second key's row is late: it has expired when the first comes again, and the run that has it is the newest.
    for batch, (key, second, watermark) in enumerate([(1, 30, 0), (2, 5, 20), (1, 31, 20)]):
        time = OperatorTime(batch, closed_us=watermark * SECOND_US)
        came = kernel.prepare(rows_of(key, second), time).frame
        came = came.with_columns(pl.lit(7, pl.UInt64).alias(HASH))
        emitted.append(kernel.advance([came], combined=False, state=state, time=time).frame)
    assert emitted[2].select("key", "rows").rows() == [(1, 2)]
