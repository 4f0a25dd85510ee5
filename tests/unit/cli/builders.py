"""Synthetic progress, for tests that draw it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anabranch.metrics import RunHistory
from anabranch.model import BatchProgress
from anabranch.model.exchanges import ExchangeFigures

ORDINARY = BatchProgress(
    batch=0,
    rows_in=100_000,
    rows_out=120,
    late_rows=0,
    dead_rows=0,
    batch_seconds=0.5,
    watermark_us=1_760_000_000_000_000,
    slot_rows=(900, 1_100),
    slot_seconds=(0.2, 0.25),
    state_rows=20_000,
    state_bytes=1_234_567,
    exchanged_bytes=456_789,
    phase_seconds={"job": 0.4, "commit": 0.06, "publish": 0.04},
)

EXCHANGE = ExchangeFigures(
    operator="agg",
    way="merged",
    next_way="plain",
    reason="95.0% of the rows are left after the merge",
    rows=100_000,
    sent_rows=95_000,
    sent_bytes=456_789,
    left_share=0.95,
    merge_seconds=0.02,
    send_seconds=0.01,
    costs={"plain": 0.25, "merged": 0.36},
)


def batch(number: int = 0, **changes: Any) -> BatchProgress:
    """Return an ordinary batch, except for the changes."""
    return replace(ORDINARY, batch=number, **changes)


def history_of(*batches: BatchProgress, every_seconds: float = 1.0) -> RunHistory:
    """Return a run that started at 0 and whose batches ended one after the other."""
    history = RunHistory(started_seconds=0.0)
    for number, progress in enumerate(batches, start=1):
        history.add(progress, number * every_seconds)
    return history
