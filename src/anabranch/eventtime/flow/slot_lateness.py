"""What would be late if every slot followed its own rows only: counted beside the flow's watermark, to compare them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import BEGINNING_OF_TIME, HASH, TIME, Kernel, OperatorTime
from anabranch.routing import hash_keys
from anabranch.routing.phases import keys_of
from anabranch.routing.routes import Routes

_SAMPLED_ROWS = 8192
_LATEST_OF_SAMPLE = 64


class SlotTimes:
    """Follows, in a task that sends rows to slots, the latest event time that each slot gets."""

    def __init__(self) -> None:
        self._latest_us: dict[int, NDArray[np.int64]] = defaultdict(lambda: np.empty(0, np.int64))

    def see(self, head: int, rows: pl.DataFrame, keys: tuple[str, ...], routes: Routes) -> None:
        """Look at rows on their way to an operator.

        The latest of each slot is among the latest of all, mostly: where every slot has one of those, no other row
        needs to be looked at.
        """
        latest_us = np.full(routes.slots, BEGINNING_OF_TIME, np.int64)
        for candidates in (_latest_rows(rows), rows):
            slots = _slots_of(candidates, keys, routes)
            np.maximum.at(latest_us, slots, candidates.get_column(TIME).to_physical().to_numpy())
            if (latest_us > BEGINNING_OF_TIME).all():
                break
        known = self._latest_us[head]
        self._latest_us[head] = np.maximum(known, latest_us) if len(known) else latest_us

    def latest_us(self) -> dict[int, tuple[int, ...]]:
        """Return the latest event times by operator and slot."""
        return {head: tuple(latest_us.tolist()) for head, latest_us in self._latest_us.items()}


def count_slot_late(
    kernel: Kernel, rows: pl.DataFrame, keys: tuple[str, ...], routes: Routes, time: OperatorTime
) -> int:
    """Return how many rows would be late under the watermarks of their slots, which are never above the flow's."""
    suspects = rows.filter(pl.col(TIME).to_physical() < time.closed_us)
    if suspects.is_empty() or isinstance(time.slot_closed_us, int):
        return 0
    slots = _slots_of(suspects, keys, routes)
    late_rows = 0
    for slot in np.unique(slots).tolist():
        if slot < len(time.slot_closed_us):
            own = replace(time, closed_us=int(time.slot_closed_us[slot]))
            late_rows += kernel.prepare(suspects.filter(pl.Series(slots == slot)), own).late_rows
    return late_rows


def _latest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return about one in a hundred rows, none of which is earlier than any other row."""
    if rows.height <= _SAMPLED_ROWS:
        return rows
    sample = rows.get_column(TIME).gather_every(rows.height // _SAMPLED_ROWS).to_physical().to_numpy()
    return rows.filter(pl.col(TIME).to_physical() >= int(np.partition(sample, -_LATEST_OF_SAMPLE)[-_LATEST_OF_SAMPLE]))


def _slots_of(rows: pl.DataFrame, keys: tuple[str, ...], routes: Routes) -> NDArray[np.int32]:
    hashed = rows.select(*keys, hash_keys(rows, keys).alias(HASH))
    slots: NDArray[np.int32] = routes.home_slots(keys_of(routes, hashed, keys))
    return slots
