"""What a change of routes has to carry: the part of each key's state that is where it may not stay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.routing.keys import KeyBatch
from anabranch.routing.lookup import find_keys
from anabranch.routing.routes import Routes


def count_new_slots(keys: KeyBatch, old: Routes, new: Routes) -> NDArray[np.int64]:
    """Return how many slots each key has under the new routes that it had not under the old ones."""
    rows, slots = old.operation_slots(keys)
    new_rows, new_slots = new.operation_slots(keys)
    most = max(old.slots, new.slots)
    came = ~np.isin(new_rows * most + new_slots, rows * most + slots)
    return np.bincount(new_rows[came], minlength=len(keys))


def moved_parts(keys: KeyBatch, old: Routes, new: Routes) -> NDArray[np.float64]:
    """Return the part of each key's state that has to change slots, from 0 to 1.

    A part stays where its slot is one of the key's under the new routes (``find_new_slots``). How much of a key is
    where is taken from the table's shares; under a row splitter, its choices have the same each.
    """
    rows, slots = old.operation_slots(keys)
    new_rows, new_slots = new.operation_slots(keys)
    most = max(old.slots, new.slots)
    stays = np.isin(rows * most + slots, new_rows * most + new_slots)
    shares = 1 / np.bincount(rows, minlength=len(keys))[rows]
    firsts = old.table.first_rows()
    listed, positions = find_keys(keys.hashes, old.table.keys[firsts])
    parts = old.table.parts_a_key()[positions]
    # Pairs come by row, then slot, and the table has its parts of a key in the same order.
    in_table = np.isin(rows, listed)
    ordinals = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    shares[in_table] = old.table.shares[np.repeat(firsts[positions], parts) + ordinals]
    moved: NDArray[np.float64] = np.bincount(rows[~stays], shares[~stays], minlength=len(keys)).astype(np.float64)
    return np.minimum(moved, 1.0)
