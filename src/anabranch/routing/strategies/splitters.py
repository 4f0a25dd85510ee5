"""Row splitters: routes that choose a slot row by row, so that one key lives in several slots.

PKG gives every key two slots to choose from. D-Choices and W-Choices give the *head*, the few keys that two slots
can't carry, more of them (Nasir et al. 2015 and 2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anabranch.model import RouteError
from anabranch.routing.hashing import mix, spread_over
from anabranch.routing.lookup import find_keys, take_turns
from anabranch.routing.registry import Registry
from anabranch.routing.strategies.sharing import Shared, interleave, share_out

_SECOND_CHOICE_SEED, _HEAD_CHOICES_SEED = 201, 202


@runtime_checkable
class RowSplitter(Protocol):
    """A rule that places single rows; ``homes`` is each row's slot under the base route."""

    @property
    def slots(self) -> int:
        """How many slots there are."""

    def slots_of(
        self, hashes: NDArray[np.uint64], homes: NDArray[np.int32], slot_rows: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the slot that stores each row, given how many rows each slot got from this router before."""

    def rows_by_slot(
        self,
        keys: NDArray[np.uint64],
        homes: NDArray[np.int32],
        counts: NDArray[np.int64],
        slot_rows: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return how many rows each slot would have then, if each key came once with ``counts`` rows."""

    def choices_of(
        self, hashes: NDArray[np.uint64], homes: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return (row, slot) for every slot where rows of the row's key may be, by row, then slot."""

    def can_split(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which keys may be in more than one slot."""

    def resized(self, slots: int) -> RowSplitter:
        """Return the same rule over another number of slots."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, from which the class's ``from_json`` makes an equal splitter."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RowSplitter:
        """Read what ``to_json`` wrote."""


_splitters: Registry[type[RowSplitter]] = Registry("row splitter")
row_splitter = _splitters.register
"""Enter a class as a row splitter, so that a checkpoint that names it can be read: ``@row_splitter("name")``."""


def splitter_to_json(splitter: RowSplitter) -> dict[str, Any]:
    """Return a row splitter with its name, as plain JSON data."""
    return {"kind": _splitters.name_of(type(splitter)), **splitter.to_json()}


def splitter_from_json(data: Mapping[str, Any]) -> RowSplitter:
    """Read what ``splitter_to_json`` wrote."""
    return _splitters.find(data["kind"]).from_json(data)


@row_splitter("choices")
@dataclass(frozen=True, slots=True)
class ChoiceSplitter:
    """Each row goes to the slot of its key's choices that got the fewest rows from this router.

    The first choice is the key's home, the second comes from another hash; a head key has ``head_choices`` of them.
    Every key may be in more than one slot. The rows of a call are counted before the first is placed: instead of
    row by row, they are shared out so that the counts after the call are as even as the choices allow, ties to the
    lower slot, and a key's rows alternate between its slots. So the places depend on how rows are cut into calls.
    """

    slots: int
    head: tuple[int, ...] = ()
    """The hashes of the head keys, sorted."""
    head_choices: int = 2

    def __post_init__(self) -> None:
        if list(self.head) != sorted(set(self.head)):
            msg = "the head keys of a row splitter are not sorted or not unique; give each hash once, in rising order"
            raise RouteError(msg)
        if not 2 <= self.head_choices <= max(self.slots, 2):
            msg = f"{self.head_choices} choices among {self.slots} slots; give a head key 2 to {max(self.slots, 2)}"
            raise RouteError(msg)

    def slots_of(
        self, hashes: NDArray[np.uint64], homes: NDArray[np.int32], slot_rows: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        if self.slots == 1 or not len(hashes):
            return np.zeros(len(hashes), np.int32)
        groups = self._group(hashes, homes)
        pair_rows = np.bincount(groups.pairs, minlength=self.slots**2).reshape(self.slots, self.slots)
        head_rows = np.bincount(groups.heads, minlength=len(groups.head_slots))
        return groups.place(share_out(pair_rows, head_rows.tolist(), groups.head_slots, slot_rows), len(hashes))

    def rows_by_slot(
        self,
        keys: NDArray[np.uint64],
        homes: NDArray[np.int32],
        counts: NDArray[np.int64],
        slot_rows: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        if self.slots == 1 or not len(keys):
            return slot_rows + np.int64(counts.sum())
        groups = self._group(keys, homes)
        pair_rows = _sum_by_group(groups.pairs, counts[groups.tail_rows], self.slots**2)
        head_rows = _sum_by_group(groups.heads, counts[groups.head_rows], len(groups.head_slots))
        pair_matrix = pair_rows.reshape(self.slots, self.slots)
        return share_out(pair_matrix, head_rows.tolist(), groups.head_slots, slot_rows).slot_rows

    def choices_of(
        self, hashes: NDArray[np.uint64], homes: NDArray[np.int32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        if self.slots == 1 or not len(hashes):
            return np.arange(len(hashes)), np.zeros(len(hashes), np.int32)
        groups = self._group(hashes, homes)
        low, high = np.divmod(groups.pairs, self.slots)
        of_heads = np.array(groups.head_slots, np.int64).reshape(-1, self.head_choices)[groups.heads]
        all_rows = np.concatenate((groups.tail_rows, groups.tail_rows, np.repeat(groups.head_rows, of_heads.shape[1])))
        all_slots = np.concatenate((low, high, of_heads.ravel()))
        order = np.lexsort((all_slots, all_rows))
        return all_rows[order], all_slots[order].astype(np.int32)

    def can_split(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.full(len(hashes), self.slots > 1)

    def resized(self, slots: int) -> ChoiceSplitter:
        # Who had all slots has all again.
        most = slots if self.head_choices == self.slots else self.head_choices
        return ChoiceSplitter(slots, self.head, max(2, min(most, slots)))

    def to_json(self) -> dict[str, Any]:
        return {
            "slots": self.slots,
            "head": [f"{key:016x}" for key in self.head],
            "head_choices": self.head_choices,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["slots"], tuple(int(key, 16) for key in data["head"]), data["head_choices"])

    def _group(self, hashes: NDArray[np.uint64], homes: NDArray[np.int32]) -> _Groups:
        head_rows, positions = find_keys(hashes, np.array(self.head, np.uint64))
        present, first_rows, heads = np.unique(positions, return_index=True, return_inverse=True)
        tail_rows = np.delete(np.arange(len(hashes)), head_rows)
        first = homes[tail_rows].astype(np.int64)
        second = self._second_choices(hashes[tail_rows], first)
        return _Groups(
            slots=self.slots,
            tail_rows=tail_rows,
            pairs=np.minimum(first, second) * self.slots + np.maximum(first, second),
            head_rows=head_rows,
            heads=heads,
            head_slots=tuple(
                self._head_slots(self.head[head], int(homes[head_rows[row]]))
                for head, row in zip(present.tolist(), first_rows.tolist(), strict=True)
            ),
        )

    def _second_choices(self, hashes: NDArray[np.uint64], first: NDArray[np.int64]) -> NDArray[np.int64]:
        # Never the first choice again: then a key would have no choice.
        return (first + 1 + spread_over(mix(hashes, _SECOND_CHOICE_SEED), self.slots - 1)) % self.slots

    def _head_slots(self, key: int, home: int) -> NDArray[np.int64]:
        """Return the slots of a head key, sorted: those it has as a tail key, and more by a rank of the key's own."""
        one = np.array([key], np.uint64)
        second = int(self._second_choices(one, np.array([home]))[0])
        ranks = mix(mix(one, _HEAD_CHOICES_SEED) ^ np.arange(self.slots, dtype=np.uint64), _HEAD_CHOICES_SEED)
        others = [slot for slot in np.argsort(ranks, kind="stable").tolist() if slot not in (home, second)]
        return np.sort(np.array([home, second, *others][: self.head_choices], np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The rows of a call by the slots that they may go to."""

    slots: int
    tail_rows: NDArray[np.int64]
    pairs: NDArray[np.int64]
    """By tail row, lower choice × slots + higher choice."""
    head_rows: NDArray[np.int64]
    heads: NDArray[np.int64]
    """By head row, the position of its key in ``head_slots``."""
    head_slots: tuple[NDArray[np.int64], ...]

    def place(self, shared: Shared, rows: int) -> NDArray[np.int32]:
        """Return the slot of each row: the rows of a group take turns, as often as the shares say."""
        places = np.empty(rows, np.int32)
        order, turns = take_turns(self.pairs, self.slots**2)
        pairs = self.pairs[order]
        low, high = np.divmod(pairs, self.slots)
        sizes = np.bincount(pairs, minlength=self.slots**2)[pairs]
        lows = shared.to_low.ravel()[pairs]
        places[self.tail_rows[order]] = np.where((turns + 1) * lows // sizes > turns * lows // sizes, low, high)
        by_head = self.head_rows[np.argsort(self.heads, kind="stable")]
        ends = np.cumsum(np.bincount(self.heads, minlength=len(self.head_slots)))
        for own, parts, end in zip(self.head_slots, shared.head_parts, ends.tolist(), strict=True):
            places[by_head[end - int(parts.sum()) : end]] = own[interleave(parts)]
        return places


def _sum_by_group(groups: NDArray[np.int64], counts: NDArray[np.int64], group_count: int) -> NDArray[np.int64]:
    # Sums of whole numbers are exact in floats below 2⁵³.
    return np.bincount(groups, counts, minlength=group_count).astype(np.int64)
