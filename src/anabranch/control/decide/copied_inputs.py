"""Which input of a join is copied to all slots of a split key: the smaller one, where either may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anabranch.control.observe.join_loads import JoinLoads
from anabranch.model.joins import LEFT, RIGHT
from anabranch.routing.routes import Routes

_CLEARLY = 2.0
"""The copied input of a split key must bring so many times the rows of the other before they change places: all its
state has to move for it."""


def copy_smaller_inputs(new: Routes, now: Routes, join: JoinLoads | None) -> Routes:
    """Return new routes that say of each split key which input is copied; those of now stay unless they are far off."""
    if join is None or not join.swaps:
        return new
    swapped = [key for key in new.table.split_keys().tolist() if choose_copied_input(join, now, key) != join.copied]
    return replace(new, swapped=tuple(swapped))


def choose_copied_input(join: JoinLoads, now: Routes, key: int) -> int:
    """Return the input that is to be copied if the key is split."""
    if not join.swaps:
        return join.copied
    rows = join.rows_of(key)
    if len(now.table.owners(key)) > 1:
        copied = join.copied_under(now, key)
        return 1 - copied if rows[copied] > _CLEARLY * rows[1 - copied] else copied
    if rows[LEFT] == rows[RIGHT]:
        return join.copied
    return LEFT if rows[LEFT] < rows[RIGHT] else RIGHT


def find_copied_loads(
    join: JoinLoads, now: Routes, keys: NDArray[np.uint64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each key, the rows and the state that all its slots have if it is split."""
    copied = [choose_copied_input(join, now, key) for key in keys.tolist()]
    rows = [join.rows_of(key)[number] for key, number in zip(keys.tolist(), copied, strict=True)]
    sizes = [join.state_bytes_of(key)[number] for key, number in zip(keys.tolist(), copied, strict=True)]
    return np.array(rows, np.float64), np.array(sizes, np.float64)
