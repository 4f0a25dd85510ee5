"""Where the rows of keys go, part by part: what planners shift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.model.loads import KeyLoads, LoadError
from anabranch.model.routes import RoutingTable


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Where the rows of every key go: one part a (key, slot) pair, by key and slot."""

    key_rows: NDArray[np.int64]
    """The row of the part's key in its ``KeyLoads``; rising."""
    slots: NDArray[np.int32]
    shares: NDArray[np.float64]
    loads: NDArray[np.float64]
    listed: NDArray[np.int64]
    """The parts that the routing table names; all others follow the base route."""

    def find(self, key_rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the parts of the given keys, and for each of them the position of its key in the question."""
        if len(self.key_rows) and self.key_rows[-1] == len(self.key_rows) - 1:
            # No key is split, so part and key are at the same place.
            return key_rows, np.arange(len(key_rows))
        first = np.searchsorted(self.key_rows, key_rows, "left")
        count = np.searchsorted(self.key_rows, key_rows, "right") - first
        asked = np.repeat(np.arange(len(key_rows)), count)
        within = np.arange(len(asked)) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(first, count) + within, asked


def locate_parts(loads: KeyLoads, table: RoutingTable) -> Parts:
    """Return the parts of all keys: as the table says, or at the later home of the base route.

    Raises LoadError if the table names a key without a load.
    """
    homes = loads.later_homes
    if not len(table.keys):
        everyone = np.arange(len(loads))
        return Parts(everyone, homes, np.ones(len(loads)), loads.loads, np.empty(0, np.int64))
    firsts = table.first_rows()
    rows = np.searchsorted(loads.keys, table.keys[firsts])
    known = rows < len(loads)
    known[known] = loads.keys[rows[known]] == table.keys[firsts][known]
    if not known.all():
        strangers = [f"{key:016x}" for key in table.keys[firsts][~known][:3].tolist()]
        msg = (
            f"the routing table names {int((~known).sum())} keys without a load, among them {', '.join(strangers)}; "
            "list them with load 0 (KeyLoads.including), so that their homes are known"
        )
        raise LoadError(msg)
    count = np.ones(len(loads), np.int64)
    parts_a_key = table.parts_a_key()
    count[rows] = parts_a_key
    key_rows = np.repeat(np.arange(len(loads)), count)
    # A key's parts begin behind those of the keys before it.
    begin = rows + np.cumsum(parts_a_key - 1) - (parts_a_key - 1)
    listed = np.repeat(begin - firsts, parts_a_key) + np.arange(len(table.keys))
    slots = homes[key_rows]
    shares = np.ones(len(key_rows))
    slots[listed] = table.slots
    shares[listed] = table.shares
    return Parts(key_rows, slots, shares, loads.loads[key_rows] * shares, listed)
