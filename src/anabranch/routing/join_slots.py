"""Where rows of a join go: those of one input to one slot of their key, those of the other to all of them.

So a pair is found once, however many slots share its key: where the first of the two is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model.joins import JoinSpec, is_of_input
from anabranch.model.runs import Leaving
from anabranch.routing.keys import KeyBatch
from anabranch.routing.phases import find_new_slots, keys_of
from anabranch.routing.routes import Routes


def leaving_join(old: Routes, new: Routes, spec: JoinSpec, slot: int) -> Callable[[pl.DataFrame], Leaving]:
    """Return the function that says where rows of a join belong under new routes."""

    def leave(rows: pl.DataFrame) -> Leaving:
        keys = keys_of(new if new.needs_values else old, rows, spec.keys)
        if is_of_input(rows, spec.copied).all():
            return leave_copies(old, new, keys, slot)
        return Leaving.to(find_new_slots(new, keys, slot), slot)

    return leave


def leave_copies(old: Routes, new: Routes, keys: KeyBatch, slot: int) -> Leaving:
    """Return where rows go of which every slot of their key has a copy.

    The first slot of a key sends them to slots that come to it; those that a key leaves forget them.
    """
    rows, slots = new.operation_slots(keys)
    stays = np.zeros(len(keys), np.bool_)
    stays[rows[slots == slot]] = True
    old_rows, old_slots = old.operation_slots(keys)
    most = max(old.slots, new.slots)
    missing = ~np.isin(rows * most + slots, old_rows * most + old_slots)
    sends = first_slots(old, keys) == slot
    chosen = missing & sends[rows]
    return Leaving(stays, rows[chosen], slots[chosen])


def first_slots(routes: Routes, keys: KeyBatch) -> NDArray[np.int32]:
    """Return the first slot of each row's key."""
    rows, slots = routes.operation_slots(keys)
    firsts = np.empty(len(keys), np.int32)
    # Written backwards, so that the first slot of each row is written last.
    firsts[rows[::-1]] = slots[::-1]
    return firsts


def drop_joined_copies(rows: pl.DataFrame, routes: Routes, spec: JoinSpec, slot: int) -> pl.DataFrame:
    """Return the rows of a slot without those of which the first slot of their key has a copy, too."""
    counts = first_slots(routes, keys_of(routes, rows, spec.keys)) == slot
    return rows.filter(pl.Series(counts | ~is_of_input(rows, spec.copied)))


def place_joined(rows: pl.DataFrame, routes: Routes, spec: JoinSpec) -> tuple[pl.DataFrame, NDArray[np.int32]]:
    """Return state rows, once for each slot that has them, and those slots."""
    keys = keys_of(routes, rows, spec.keys)
    places, slots = routes.operation_slots(keys)
    is_copied = is_of_input(rows, spec.copied)[places]
    chosen = is_copied | (slots == routes.storage_slots(keys)[places])
    return rows[places[chosen]], slots[chosen]
