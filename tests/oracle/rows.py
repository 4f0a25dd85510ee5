"""Rows with their place in the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1)

BEGINNING_US = -(10**18)
"""Before every event."""
END_US = 10**18
"""After every event."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A row, its event time (0 where a flow has none) and the place that decides ties: (time, batch, order)."""

    time_us: int
    batch: int
    order: int
    row: dict[str, Any]

    @property
    def place(self) -> tuple[int, int, int]:
        return self.time_us, self.batch, self.order


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970 of a moment without a zone."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def to_moment(time_us: int) -> datetime:
    """Return the moment so many microseconds after the start of 1970."""
    return EPOCH + timedelta(microseconds=time_us)


def key_of(placed: Placed, keys: Sequence[str]) -> tuple[Any, ...]:
    """Return the row's key."""
    return tuple(placed.row[key] for key in keys)
