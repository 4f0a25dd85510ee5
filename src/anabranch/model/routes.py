"""Where keys go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.errors import FlowError

DEFAULT_BUCKETS = 512
MOST_SLOTS = 10_000
"""Of a stateful subquery."""

SHARE_TOLERANCE = 1e-9
"""How far the shares of one key may be from 1 in sum."""


class RouteError(FlowError):
    """A route is wrong: an unknown strategy, a slot that does not exist, shares that do not make a whole."""


@dataclass(frozen=True, slots=True)
class BucketMap:
    """Bucket → slot for one stateful level; ``slot_of[b]`` is the owner of bucket b."""

    slots: int
    slot_of: tuple[int, ...]

    @property
    def buckets(self) -> int:
        return len(self.slot_of)

    @classmethod
    def even(cls, slots: int, buckets: int = DEFAULT_BUCKETS) -> BucketMap:
        """Deal the buckets to the slots in turn."""
        return cls(slots, tuple(bucket % slots for bucket in range(buckets)))


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a key's rows that one slot stores."""

    slot: int
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class RoutingTable:
    """The keys that are not where their base route puts them, each with its slots and their shares.

    A key is its 64-bit hash: keys of equal hashes move together. A moved key has one row, a split key one row a slot.
    """

    keys: NDArray[np.uint64]
    """Sorted; the rows of one key are adjacent, by slot."""
    slots: NDArray[np.int32]
    shares: NDArray[np.float64]
    """The part of the key's rows that the slot stores; those of one key sum to 1."""

    def __post_init__(self) -> None:
        columns: tuple[tuple[str, type[np.generic]], ...] = (
            ("keys", np.uint64),
            ("slots", np.int32),
            ("shares", np.float64),
        )
        for name, dtype in columns:
            object.__setattr__(self, name, _frozen_column(name, getattr(self, name), dtype))
        self._check()

    @classmethod
    def empty(cls) -> RoutingTable:
        """Return the table under which every key follows its base route."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.float64))

    @classmethod
    def of(cls, placements: Mapping[int, Mapping[int, float]]) -> RoutingTable:
        """Return the table of key → {slot: share}."""
        rows = [(key, slot, share) for key, parts in placements.items() for slot, share in parts.items()]
        without_slots = [f"{key:016x}" for key, parts in placements.items() if not parts]
        if without_slots:
            msg = f"keys {without_slots} have no slot; give each at least one, or leave it out to follow its base route"
            raise RouteError(msg)
        rows.sort()
        keys, slots, shares = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(np.array(keys, np.uint64), np.array(slots, np.int32), np.array(shares, np.float64))

    @classmethod
    def assemble(cls, keys: ArrayLike, slots: ArrayLike, shares: ArrayLike | None = None) -> RoutingTable:
        """Return the table of the given rows, in any order; without shares, every key has one row."""
        key_column, slot_column = np.asarray(keys, np.uint64), np.asarray(slots, np.int32)
        share_column = np.ones(len(key_column)) if shares is None else np.asarray(shares, np.float64)
        order = np.lexsort((slot_column, key_column))
        return cls(key_column[order], slot_column[order], share_column[order])

    def __len__(self) -> int:
        """Return the number of keys, not of rows."""
        return len(self.first_rows())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        return (
            np.array_equal(self.keys, other.keys)
            and np.array_equal(self.slots, other.slots)
            and np.array_equal(self.shares, other.shares)
        )

    # Compared by its arrays, which have no hash; mypy would allow None only where ``object`` does.
    __hash__ = None  # type: ignore[assignment]

    def owners(self, key: int) -> tuple[Share, ...]:
        """Return the slots of a key with their shares, by slot; none if the key follows its base route."""
        first, after = (np.searchsorted(self.keys, np.uint64(key), side) for side in ("left", "right"))
        return tuple(
            Share(slot, share)
            for slot, share in zip(self.slots[first:after].tolist(), self.shares[first:after].tolist(), strict=True)
        )

    def first_rows(self) -> NDArray[np.int64]:
        """Return the first row of every key."""
        if not len(self.keys):
            return np.empty(0, np.int64)
        return np.concatenate(([0], np.flatnonzero(self.keys[1:] != self.keys[:-1]) + 1))

    def parts_a_key(self) -> NDArray[np.int64]:
        """Return the number of rows of every key."""
        return np.diff(self.first_rows(), append=len(self.keys))

    def whole_keys(self) -> NDArray[np.uint64]:
        """Return the keys that one slot has to itself, sorted."""
        whole: NDArray[np.bool_] = self.parts_a_key() == 1
        return self.keys[self.first_rows()[whole]]

    def split_keys(self) -> NDArray[np.uint64]:
        """Return the keys that several slots share, sorted."""
        split: NDArray[np.bool_] = self.parts_a_key() > 1
        return self.keys[self.first_rows()[split]]

    def without(self, keys: ArrayLike) -> RoutingTable:
        """Return the table from which the given keys are gone: they follow their base route."""
        kept = np.isin(self.keys, np.asarray(keys, np.uint64), invert=True)
        return RoutingTable(self.keys[kept], self.slots[kept], self.shares[kept])

    def overlaid(self, newer: RoutingTable) -> RoutingTable:
        """Return the table in which the keys of ``newer`` are placed as it says, and all others as here."""
        kept = self.without(newer.keys)
        return RoutingTable.assemble(
            np.concatenate((kept.keys, newer.keys)),
            np.concatenate((kept.slots, newer.slots)),
            np.concatenate((kept.shares, newer.shares)),
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """Return plain JSON data; keys are hexadecimal text, because JSON numbers don't hold 64 bits everywhere."""
        return {
            "keys": [f"{key:016x}" for key in self.keys.tolist()],
            "slots": self.slots.tolist(),
            # Python writes the shortest decimal that reads back as the same float, so shares come back bit by bit.
            "shares": self.shares.tolist(),
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[Any]]) -> RoutingTable:
        """Read what ``to_columns`` wrote."""
        return cls(
            np.array([int(key, 16) for key in columns["keys"]], np.uint64),
            np.array(columns["slots"], np.int32),
            np.array(columns["shares"], np.float64),
        )

    def _check(self) -> None:
        lengths = {"keys": len(self.keys), "slots": len(self.slots), "shares": len(self.shares)}
        if len(set(lengths.values())) > 1:
            msg = f"the columns of a routing table differ in length: {lengths}; give one slot and one share a row"
            raise RouteError(msg)
        if not len(self.keys):
            return
        if (self.slots < 0).any():
            strangers = _some(self.keys[self.slots < 0])
            msg = f"a routing table names slots below 0 for keys {strangers}; slots count from 0"
            raise RouteError(msg)
        same_key = self.keys[1:] == self.keys[:-1]
        twice = same_key & (self.slots[1:] == self.slots[:-1])
        if twice.any():
            msg = f"keys {_some(self.keys[1:][twice])} name a slot twice; add their shares up in one row"
            raise RouteError(msg)
        if (self.keys[1:] < self.keys[:-1]).any() or (same_key & (self.slots[1:] < self.slots[:-1])).any():
            msg = "the rows of a routing table are not sorted by (key, slot); build it with RoutingTable.assemble"
            raise RouteError(msg)
        wrong = ~((self.shares > 0) & (self.shares <= 1 + SHARE_TOLERANCE))
        if wrong.any():
            msg = (
                f"keys {_some(self.keys[wrong])} have shares {self.shares[wrong][:3].tolist()}; "
                "a share is above 0 and at most 1, so leave out slots that store nothing"
            )
            raise RouteError(msg)
        firsts = self.first_rows()
        sums = np.add.reduceat(self.shares, firsts)
        partial = np.abs(sums - 1) > SHARE_TOLERANCE
        if partial.any():
            msg = (
                f"the shares of keys {_some(self.keys[firsts[partial]])} sum to {sums[partial][:3].tolist()}; "
                "the shares of one key must sum to 1, because each of its rows is stored once"
            )
            raise RouteError(msg)


def _frozen_column(name: str, values: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a read-only view: the caller's own array stays writable."""
    column = np.asarray(values, dtype).view()
    if column.ndim != 1:
        msg = f"the {name} of a routing table have {column.ndim} dimensions; give one plain column"
        raise RouteError(msg)
    column.flags.writeable = False
    return column


def _some(keys: Iterable[np.uint64]) -> str:
    """Return a few keys as hexadecimal text, for an error."""
    texts = [f"{int(key):016x}" for key in keys]
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")
