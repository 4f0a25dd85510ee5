"""Routes: where the rows of one stateful level are stored, and where they must look, for one batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import RouteError, RoutingTable
from anabranch.model.routes import DEFAULT_BUCKETS
from anabranch.routing.bases.base_routes import BaseRoute, BucketRoute, base_from_json, base_to_json
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.hashing import GOLDEN_RATIO_64, mix, unit_interval
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.routing.lookup import find_keys, take_turns
from anabranch.routing.strategies.splitters import RowSplitter, splitter_from_json, splitter_to_json

_PHASE_SEED = 301
MOST_NEAR_KEYS = 16
"""So many integers in a row are looked for one by one."""

RowSlots = tuple[NDArray[np.int64], NDArray[np.int32]]
"""Pairs (row, slot), by row, then slot."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The routing table over the row splitter, if any, over the base route.

    Storage routing gives every row one slot, operation routing every slot where a match of the row may be.
    """

    base: BaseRoute
    table: RoutingTable = field(default_factory=RoutingTable.empty)
    splitter: RowSplitter | None = None
    by: str = field(default="", compare=False)
    """The named strategy that decided them, with its options; empty where none did."""
    swapped: tuple[int, ...] = ()
    """Of a join, the split keys whose other input is copied than the one that the join would copy; rising."""

    def __post_init__(self) -> None:
        strangers = sorted(set(self.table.slots[self.table.slots >= self.slots].tolist()))
        if strangers:
            msg = (
                f"the routing table names slots {strangers}; there are {self.slots}, from 0 on; "
                "plan the moves out of slots that go before they go"
            )
            raise RouteError(msg)
        if self.splitter is not None and self.splitter.slots != self.slots:
            msg = f"the row splitter has {self.splitter.slots} slots, the base route {self.slots}; make both alike"
            raise RouteError(msg)
        if isinstance(self.base, DrawnRoute) and (len(self.table) or self.splitter is not None):
            msg = f"in a {self.base.label} rows have places, and no key is moved or split; leave table and splitter out"
            raise RouteError(msg)

    @classmethod
    def even(cls, slots: int, buckets: int = DEFAULT_BUCKETS) -> Self:
        """Return the routes of a flow that knows nothing of its keys yet."""
        return cls(BucketRoute.even(slots, max(buckets, slots)))

    @property
    def slots(self) -> int:
        return self.base.slots

    @property
    def may_split(self) -> bool:
        """Whether some key may be in several slots."""
        return self.splitter is not None or isinstance(self.base, DrawnRoute) or len(self.table.split_keys()) > 0

    @property
    def needs_values(self) -> bool:
        """Whether keys must come with their values."""
        return self.base.needs_values

    def home_slots(self, keys: KeyBatch) -> NDArray[np.int32]:
        """Return the slot of every row's key under the base route alone."""
        return self.base.slots_of(keys)

    def storage_slots(
        self,
        keys: KeyBatch,
        first_ordinal: int = 0,
        seed: int = 0,
        slot_rows: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """Return the one slot that stores each row.

        The rows of a split key take turns in a golden-ratio sequence: of its m rows in a call, a slot gets its share
        give or take 2 + log₁₀ m rows. The sequence begins where (seed, key, ``first_ordinal``) says: give the split's
        seed and the number of the call's first row in the split, so that many small calls don't favour a slot. Rows
        of other keys don't depend on how rows are cut into calls, except under a row splitter, which starts from
        ``slot_rows``, the rows that every slot got before.
        """
        slots = self.base.slots_of(keys)
        if self.splitter is None and not len(self.table.keys):
            return slots
        firsts = self.table.first_rows()
        rows, positions = find_keys(keys.hashes, self.table.keys[firsts])
        slots[rows] = self.table.slots[firsts[positions]]
        split = self.table.parts_a_key()[positions] > 1
        slots[rows[split]] = self._shared_slots(positions[split], firsts, first_ordinal, seed)
        if self.splitter is not None:
            others = np.delete(np.arange(len(keys)), rows)
            # What the table places counts, too: the splitter evens out all rows that the slots get.
            before = np.bincount(slots[rows], minlength=self.slots) + (0 if slot_rows is None else slot_rows)
            slots[others] = self.splitter.slots_of(keys.hashes[others], slots[others], before)
        return slots

    def operation_slots(self, keys: KeyBatch) -> RowSlots:
        """Return (row, slot) for every slot that may store rows of the row's key: where an equi-join probes."""
        if isinstance(self.base, DrawnRoute):
            return np.repeat(np.arange(len(keys)), self.slots), np.tile(
                np.arange(self.slots, dtype=np.int32), len(keys)
            )
        homes = self.base.slots_of(keys)
        if self.splitter is None and not len(self.table.keys):
            return np.arange(len(keys)), homes
        firsts = self.table.first_rows()
        rows, positions = find_keys(keys.hashes, self.table.keys[firsts])
        parts = self.table.parts_a_key()[positions]
        others = np.delete(np.arange(len(keys)), rows)
        other_rows, other_slots = others, homes[others]
        if self.splitter is not None:
            chosen, other_slots = self.splitter.choices_of(keys.hashes[others], homes[others])
            other_rows = others[chosen]
        ordinals = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
        table_slots = self.table.slots[np.repeat(firsts[positions], parts) + ordinals]
        all_rows = np.concatenate((other_rows, np.repeat(rows, parts)))
        all_slots = np.concatenate((other_slots, table_slots))
        # Each half is sorted by (row, slot), and no row is in both, so the order of slots survives a stable sort.
        order = np.argsort(all_rows, kind="stable")
        return all_rows[order], all_slots[order]

    def operation_slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> RowSlots:
        """Return (row, slot) for every slot that may store keys from low to high; a missing side is open.

        For theta joins. Of a few integers, the slots of each are found. Else only ranges know where a value's
        neighbours are: under every other route all slots may match. Of moved keys only the hash is known, so each slot
        that the routing table names may match, too.
        """
        if lows is None and highs is None:
            msg = "an operation without any bound matches every slot; give lows, highs or both"
            raise RouteError(msg)
        if lows is not None and highs is not None and _are_few_integers(lows, highs):
            return self._slots_of_each(lows, highs)
        rows = len(lows) if lows is not None else len(highs) if highs is not None else 0
        everywhere = np.arange(self.slots, dtype=np.int32)
        ranges = None if self.splitter is not None else self.base.slots_between(lows, highs)
        if ranges is None:
            return np.repeat(np.arange(rows), self.slots), np.tile(everywhere, rows)
        first, last = ranges
        named = np.zeros(self.slots, np.bool_)
        named[self.table.slots] = True
        matches = ((everywhere >= first[:, None]) & (everywhere <= last[:, None])) | (
            # An empty interval matches nothing, wherever keys were moved.
            named & (first <= last)[:, None]
        )
        matched_rows, matched_slots = np.nonzero(matches)
        return matched_rows, matched_slots.astype(np.int32)

    def _slots_of_each(self, lows: pl.Series, highs: pl.Series) -> RowSlots:
        """Return (row, slot) for every slot that may store one of the integers from low to high."""
        reached = np.zeros((len(lows), self.slots), np.bool_)
        most = (highs - lows).max()
        for step in range(int(most) + 1 if isinstance(most, int) else 0):
            values = (lows + step).rename("key")
            rows, slots = self.operation_slots(KeyBatch.of(values.to_frame(), ["key"]))
            inside = (values <= highs).to_numpy()[rows]
            reached[rows[inside], slots[inside]] = True
        matched_rows, matched_slots = np.nonzero(reached)
        return matched_rows, matched_slots.astype(np.int32)

    def split_keys(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of the keys may be in more than one slot."""
        if isinstance(self.base, DrawnRoute):
            return np.ones(len(keys), np.bool_)
        split = np.zeros(len(keys), np.bool_) if self.splitter is None else self.splitter.can_split(keys)
        rows, _ = find_keys(keys, self.table.whole_keys())
        split[rows] = False
        rows, _ = find_keys(keys, self.table.split_keys())
        split[rows] = True
        return split

    def count_slots(self, keys: KeyBatch) -> NDArray[np.int64]:
        """Return how many slots may store rows of each row's key."""
        counts = np.ones(len(keys), np.int64)
        if self.splitter is not None:
            # A splitter chooses around the home, which some bases find by the value alone.
            chosen, _ = self.splitter.choices_of(keys.hashes, self.base.slots_of(keys))
            counts = np.bincount(chosen, minlength=len(keys))
        firsts = self.table.first_rows()
        rows, positions = find_keys(keys.hashes, self.table.keys[firsts])
        counts[rows] = self.table.parts_a_key()[positions]
        return counts

    def loads(self, sample: KeySample) -> NDArray[np.float64]:
        """Return the load that each slot gets from the keys of a sample; of a join, half of it from each input."""
        if isinstance(self.base, DrawnRoute):
            half = float(sample.counts.sum()) / 2
            return self.base.slot_rows((half, half))
        homes = self.base.slots_of(sample.batch)
        firsts = self.table.first_rows()
        rows, positions = find_keys(sample.keys, self.table.keys[firsts])
        counts_by_key = np.zeros(len(firsts))
        counts_by_key[positions] = sample.counts[rows]
        counts_by_row = np.repeat(counts_by_key, self.table.parts_a_key()) * self.table.shares
        placed = np.bincount(self.table.slots, counts_by_row, minlength=self.slots).astype(np.float64)
        others = np.delete(np.arange(len(sample)), rows)
        if self.splitter is None:
            return placed + np.bincount(homes[others], sample.counts[others], minlength=self.slots)
        whole_counts, whole_placed = (np.rint(loads).astype(np.int64) for loads in (sample.counts[others], placed))
        by_slot = self.splitter.rows_by_slot(sample.keys[others], homes[others], whole_counts, whole_placed)
        return by_slot.astype(np.float64)

    def with_table(self, table: RoutingTable) -> Routes:
        """Return the same routes under another table."""
        split = set(table.split_keys().tolist()) if self.swapped else set()
        return replace(self, table=table, swapped=tuple(key for key in self.swapped if key in split))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, for the manifest."""
        return {
            "base": base_to_json(self.base),
            "table": self.table.to_columns(),
            "splitter": None if self.splitter is None else splitter_to_json(self.splitter),
            **({"by": self.by} if self.by else {}),
            **({"swapped": [f"{key:016x}" for key in self.swapped]} if self.swapped else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        splitter = data["splitter"]
        return cls(
            base_from_json(data["base"]),
            RoutingTable.from_columns(data["table"]),
            None if splitter is None else splitter_from_json(splitter),
            data.get("by", ""),
            tuple(int(key, 16) for key in data.get("swapped", ())),
        )

    def _shared_slots(
        self, positions: NDArray[np.int64], firsts: NDArray[np.int64], first_ordinal: int, seed: int
    ) -> NDArray[np.int32]:
        """Return the slot of each row of a split key; ``positions`` says which of the table's keys it is."""
        seen = np.bincount(positions, minlength=len(firsts)) > 0
        present = np.flatnonzero(seen)
        groups = (np.cumsum(seen) - 1)[positions]
        start = mix(np.array([first_ordinal % 2**64], np.uint64), seed)
        phases = mix(self.table.keys[firsts[present]] ^ start, _PHASE_SEED)
        order, turns = take_turns(groups, len(present))
        in_order = groups[order]
        points = unit_interval(phases[in_order] + turns.astype(np.uint64) * GOLDEN_RATIO_64)
        # One search for all keys: the parts of the key in group g end at g + their cumulative share.
        parts = self.table.parts_a_key()[present]
        ends_before = np.cumsum(parts) - parts
        table_rows = np.repeat(firsts[present] - ends_before, parts) + np.arange(int(parts.sum()))
        running = np.cumsum(self.table.shares[table_rows])
        shares_before = np.repeat(running[ends_before] - self.table.shares[firsts[present]], parts)
        ends = np.repeat(np.arange(len(present)), parts) + (running - shares_before)
        found = np.searchsorted(ends, in_order + points, side="right")
        # Rounding may push a point beyond its key's last part, never further.
        found = np.minimum(found, (ends_before + parts - 1)[in_order])
        slots = np.empty(len(positions), np.int32)
        slots[order] = self.table.slots[table_rows[found]]
        return slots


def _are_few_integers(lows: pl.Series, highs: pl.Series) -> bool:
    if not (lows.dtype.is_integer() and highs.dtype.is_integer()):
        return False
    most = (highs.cast(pl.Float64) - lows.cast(pl.Float64)).max()
    return isinstance(most, float) and most < MOST_NEAR_KEYS
