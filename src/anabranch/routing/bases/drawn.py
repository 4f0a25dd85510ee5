"""Base routes of joins that place a row by a number drawn for it: a grid of slots, and slots in two halves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import RouteError
from anabranch.model.joins import LEFT, PROBE, STORE
from anabranch.routing.bases.base_routes import SlotRanges, base_route
from anabranch.routing.hashing import GOLDEN_RATIO_64, mix, spread_over
from anabranch.routing.keys import KeyBatch

Draws = NDArray[np.uint32]
"""A number for each row, from 0 to 2³², evenly spread."""

_DRAW_SEED, _GROUP_SEED = 401, 402


@dataclass(frozen=True, slots=True, eq=False)
class RowPlaces:
    """Which slots get which rows, by row, then slot, and what for."""

    rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    uses: NDArray[np.uint8] | None = None
    """STORE, PROBE or both of them; None: all rows are stored where they go, and look for partners there."""

    @property
    def stored(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """The pairs (row, slot) of rows that are stored there."""
        if self.uses is None:
            return self.rows, self.slots
        chosen = (self.uses & STORE) > 0
        return self.rows[chosen], self.slots[chosen]


class DrawnRoute(ABC):
    """A base route under which rows of a join, not keys, have places: each pair of rows meets in one slot."""

    needs_values: ClassVar[bool] = False
    slots: int

    @abstractmethod
    def places_of(
        self, number: int, hashes: NDArray[np.uint64], draws: Draws, partners: NDArray[np.uint64] | None = None
    ) -> RowPlaces:
        """Return where rows of an input go; ``partners`` are the hashes that those of each may have, if not its own."""

    @property
    @abstractmethod
    def copies(self) -> tuple[float, float]:
        """How many slots get a row of each input, in the mean."""

    @abstractmethod
    def slot_rows(self, sides: tuple[float, float]) -> NDArray[np.float64]:
        """Return how many rows each slot gets if both inputs have so many."""

    @abstractmethod
    def fitted(self, sides: tuple[float, float]) -> DrawnRoute:
        """Return the route of this kind that is best if both inputs have so many rows."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is, for people."""

    @abstractmethod
    def resized(self, slots: int) -> DrawnRoute:
        """Return the same route over another number of slots."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""

    @classmethod
    @abstractmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        msg = f"in a {self.label} rows have places, and keys have none; ask places_of()"
        raise RouteError(msg)

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        return None


def draw_rows(count: int, first: int, seed: int) -> Draws:
    """Return the numbers of so many rows, from the ``first`` one of a task on; equal arguments give equal numbers."""
    start = mix(np.array([seed % 2**64], np.uint64), _DRAW_SEED)
    points = start + np.arange(first, first + count, dtype=np.uint64) * GOLDEN_RATIO_64
    return (points >> np.uint64(32)).astype(np.uint32)


@base_route("grid")
@dataclass(frozen=True, slots=True)
class GridRoute(DrawnRoute):
    """Slots as the cells of a grid: a left row goes to all cells of one row of it, a right row to those of a column.

    Where these cross, a pair meets, whatever it must fulfil. Slots beyond the last cell get nothing.
    """

    slots: int
    rows: int
    columns: int
    doubles: bool = False
    """Whether it has as many rows and columns as powers of two, as the matrix of *Dynamic* has."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1 or self.rows * self.columns > self.slots:
            msg = f"a grid of {self.rows} × {self.columns} cells does not fit {self.slots} slots; give fewer of them"
            raise RouteError(msg)

    @classmethod
    def over(cls, slots: int, sides: tuple[float, float] = (1.0, 1.0), doubles: bool = False) -> Self:
        """Return the grid whose cells get the fewest rows if both inputs have so many."""
        if slots < 1:
            msg = f"a grid over {slots} slots leads nowhere; give at least 1"
            raise RouteError(msg)
        counts = [2**power for power in range(slots.bit_length())] if doubles else range(1, slots + 1)
        left, right = (max(side, 0.0) for side in sides)

        def find_columns(rows: int) -> int:
            return 2 ** ((slots // rows).bit_length() - 1) if doubles else slots // rows

        # Ties to the grid that is nearest to a square: it is right for most that may come.
        best = min(counts, key=lambda rows: (left / rows + right / find_columns(rows), abs(rows - find_columns(rows))))
        return cls(slots, best, find_columns(best), doubles)

    @property
    def label(self) -> str:
        return f"grid of {self.rows} × {self.columns} slots"

    @property
    def copies(self) -> tuple[float, float]:
        return float(self.columns), float(self.rows)

    def places_of(
        self, number: int, hashes: NDArray[np.uint64], draws: Draws, partners: NDArray[np.uint64] | None = None
    ) -> RowPlaces:
        if number == LEFT:
            first, copies, step = _choose(draws, self.rows) * self.columns, self.columns, 1
        else:
            first, copies, step = _choose(draws, self.columns), self.rows, self.columns
        slots = (first[:, None] + np.arange(copies) * step).ravel()
        return RowPlaces(np.repeat(np.arange(len(draws)), copies), slots.astype(np.int32))

    def slot_rows(self, sides: tuple[float, float]) -> NDArray[np.float64]:
        got = np.zeros(self.slots)
        got[: self.rows * self.columns] = sides[0] / self.rows + sides[1] / self.columns
        return got

    def fitted(self, sides: tuple[float, float]) -> GridRoute:
        return GridRoute.over(self.slots, sides, self.doubles)

    def resized(self, slots: int) -> GridRoute:
        """As many rows to a column as before, as far as possible."""
        return GridRoute.over(slots, (self.rows, self.columns), self.doubles)

    def to_json(self) -> dict[str, Any]:
        return {"slots": self.slots, "rows": self.rows, "columns": self.columns, "doubles": self.doubles}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["slots"], data["rows"], data["columns"], data["doubles"])


@base_route("bipartite")
@dataclass(frozen=True, slots=True)
class BipartiteRoute(DrawnRoute):
    """Half of the slots store left rows, half right ones; each half is divided into groups, by the hash of the key.

    A row is stored on one slot of its group, and looks for partners on all slots of the same group in the other half.
    A slot alone is both halves.
    """

    slots: int
    most_groups: int = 1

    def __post_init__(self) -> None:
        if self.slots < 1 or self.most_groups < 1:
            msg = f"{self.slots} slots in {self.most_groups} groups lead nowhere; give at least 1 of both"
            raise RouteError(msg)

    @property
    def groups(self) -> int:
        """How many there are: no half can have more of them than slots."""
        return max(1, min(self.most_groups, self.slots // 2))

    @property
    def label(self) -> str:
        left, right = (count for _, count in self._halves)
        groups = f", {self.groups} groups each" if self.groups > 1 else ""
        return f"bipartite graph of {left} and {right} slots{groups}"

    @property
    def _halves(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """By input, the first slot that stores its rows, and how many do."""
        left = self.slots - self.slots // 2
        return (0, left), ((0, 1) if self.slots == 1 else (left, self.slots - left))

    def places_of(
        self, number: int, hashes: NDArray[np.uint64], draws: Draws, partners: NDArray[np.uint64] | None = None
    ) -> RowPlaces:
        every = np.arange(len(draws))
        if self.slots == 1:
            return RowPlaces(every, np.zeros(len(draws), np.int32))
        groups = self._groups_of(hashes)
        first, own = self._members(number, groups)
        asking, asked = (every, groups) if partners is None else self._find_asked(partners)
        other_first, others = self._members(1 - number, asked)
        stored = (
            first + ((draws.astype(np.uint64) * own.astype(np.uint64)) >> np.uint64(32)).astype(np.int64) * self.groups
        )
        ordinals = np.arange(int(others.sum())) - np.repeat(np.cumsum(others) - others, others)
        probed = np.repeat(other_first, others) + ordinals * self.groups
        rows = np.concatenate((every, np.repeat(asking, others)))
        slots = np.concatenate((stored, probed))
        uses = np.concatenate((np.full(len(every), STORE, np.uint8), np.full(len(probed), PROBE, np.uint8)))
        order = np.lexsort((slots, rows))
        return RowPlaces(rows[order], slots[order].astype(np.int32), uses[order])

    def _groups_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        return spread_over(mix(hashes, _GROUP_SEED), self.groups).astype(np.int64)

    def _find_asked(self, partners: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (row, group) for every group that has keys of a row's partners, each once."""
        asked = np.zeros((len(partners), self.groups), np.bool_)
        for hashes in partners.T:
            asked[np.arange(len(partners)), self._groups_of(hashes)] = True
        rows, groups = np.nonzero(asked)
        return rows, groups

    def _members(self, number: int, groups: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, of each group, the first slot that stores rows of an input, and how many of its slots do."""
        start, count = self._halves[number]
        return start + groups, (count - groups + self.groups - 1) // self.groups

    @property
    def copies(self) -> tuple[float, float]:
        if self.slots == 1:
            return 1.0, 1.0
        (_, left), (_, right) = self._halves
        return 1 + right / self.groups, 1 + left / self.groups

    def slot_rows(self, sides: tuple[float, float]) -> NDArray[np.float64]:
        if self.slots == 1:
            return np.array([sum(sides)])
        got = np.zeros(self.slots)
        for number, (start, count) in enumerate(self._halves):
            group = np.arange(count) % self.groups
            _, stored = self._members(number, group)
            got[start : start + count] = (sides[number] / stored + sides[1 - number]) / self.groups
        return got

    def fitted(self, sides: tuple[float, float]) -> BipartiteRoute:
        return self

    def resized(self, slots: int) -> BipartiteRoute:
        return BipartiteRoute(slots, self.most_groups)

    def to_json(self) -> dict[str, Any]:
        return {"slots": self.slots, "groups": self.most_groups}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["slots"], data["groups"])


def _choose(draws: Draws, choices: int) -> NDArray[np.int64]:
    """Return for each draw a number below ``choices``."""
    return (draws.astype(np.int64) * choices) >> 32
