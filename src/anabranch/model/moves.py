"""Plans: which keys or buckets go where, why, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anabranch.model.routes import BucketMap, RoutingTable


class MoveKind(IntEnum):
    """Where a move leads, seen from the key's home."""

    RETURN_HOME = 0
    SHIFT = 1
    MOVE_OUT = 2


class MoveEffect(IntEnum):
    """What a move does to the key."""

    MERGE = 0
    WHOLE = 1
    SPLIT = 2


class MoveReason(IntEnum):
    """Why a move is made."""

    OVERLOADED = 0
    SLOT_REMOVED = 1
    NEW_HOME = 2
    MAKES_ROOM = 3
    COOLED = 4
    SWAPPED = 5
    GATHERED = 6
    NARROWS_GAP = 7


_SENTENCES = {
    MoveReason.OVERLOADED: "slot {source} is above its limit",
    MoveReason.SLOT_REMOVED: "slot {source} is removed",
    MoveReason.NEW_HOME: "the base route now leads to slot {target}",
    MoveReason.MAKES_ROOM: "slot {source} takes a larger key whole",
    MoveReason.COOLED: "the key's load fell below what keeps it away from home or split",
    MoveReason.SWAPPED: "slot {source} exchanges it for a key of another size",
    MoveReason.GATHERED: "this planner keeps keys whole and small ones at home",
    MoveReason.NARROWS_GAP: "slot {target} has less to do than slot {source}",
}


@dataclass(frozen=True, slots=True)
class Move:
    """Hand a key, a part of one, or a bucket to another slot."""

    subject: int
    """A key's hash, or a bucket."""
    source: int
    target: int
    load: float
    state_bytes: float
    kind: MoveKind
    effect: MoveEffect
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Many moves in columns; iterating gives each of them as a ``Move``."""

    of: Literal["key", "bucket"]
    subjects: NDArray[np.uint64]
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]
    shares: NDArray[np.float64]
    """The part of the key that moves."""
    loads: NDArray[np.float64]
    state_bytes: NDArray[np.float64]
    kinds: NDArray[np.int8]
    effects: NDArray[np.int8]
    reasons: NDArray[np.int8]

    @classmethod
    def none(cls, of: Literal["key", "bucket"] = "key") -> Moves:
        """Return no moves."""
        slots, numbers, codes = np.empty(0, np.int32), np.empty(0), np.empty(0, np.int8)
        return cls(of, np.empty(0, np.uint64), slots, slots, numbers, numbers, numbers, codes, codes, codes)

    def __len__(self) -> int:
        return len(self.subjects)

    def __getitem__(self, row: int) -> Move:
        source, target = int(self.sources[row]), int(self.targets[row])
        sentence = _SENTENCES[MoveReason(self.reasons[row])]
        return Move(
            subject=int(self.subjects[row]),
            source=source,
            target=target,
            load=float(self.loads[row]),
            state_bytes=float(self.state_bytes[row]),
            kind=MoveKind(self.kinds[row]),
            effect=MoveEffect(self.effects[row]),
            reason=sentence.format(source=source, target=target),
        )

    def __iter__(self) -> Iterator[Move]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moves):
            return NotImplemented
        columns = (column for column in Moves.__slots__ if column != "of")
        return self.of == other.of and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in columns)

    # Compared by its arrays, which have no hash; mypy would allow None only where ``object`` does.
    __hash__ = None  # type: ignore[assignment]

    def count(self, *, kind: MoveKind | None = None, effect: MoveEffect | None = None) -> int:
        """Return how many moves are of a kind, have an effect, or both."""
        chosen = np.ones(len(self), np.bool_)
        if kind is not None:
            chosen &= self.kinds == kind
        if effect is not None:
            chosen &= self.effects == effect
        return int(chosen.sum())


@dataclass(frozen=True, slots=True)
class PlanCosts:
    """What a plan costs: before (O1), while (O3) and after (O2, O4) it is carried out."""

    planning_seconds: float | None = field(compare=False)
    """O1; unknown when the planner was given no clock."""
    table_rows: int
    """O2: rows of the routing table, one a (key, slot) pair."""
    moved_bytes: float
    """O3: state that changes its slot."""
    split_load: float
    """O4: the load of the keys that several slots share, whose partial results must meet further down."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class MovePlan:
    """The moves, where keys go once they are made, and what it costs."""

    planner: str
    moves: Moves
    table: RoutingTable
    """The whole routing table after the plan, keys included that do not move."""
    bucket_map: BucketMap | None
    """The bucket map after the plan; none where buckets stay."""
    loads_before: NDArray[np.float64]
    loads_after: NDArray[np.float64]
    """By slot, the slots included that come or go."""
    means: NDArray[np.float64]
    """By slot, its fair share of the load; 0 for a slot that is removed."""
    limits: NDArray[np.float64]
    costs: PlanCosts
    shortfall: str = ""
    """Why some slot stays above its limit; empty when none does."""

    @property
    def meets_limits(self) -> bool:
        """Whether every slot is within its limit."""
        return not self.shortfall

    @property
    def imbalance_before(self) -> float:
        """The busiest slot's load over its fair share, before the plan; slots that are removed do not count."""
        return find_imbalance(self.loads_before, self.means)

    @property
    def imbalance_after(self) -> float:
        """The busiest slot's load over its fair share, after the plan."""
        return find_imbalance(self.loads_after, self.means)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MovePlan):
            return NotImplemented
        return (
            (self.planner, self.moves, self.table, self.bucket_map, self.costs, self.shortfall)
            == (other.planner, other.moves, other.table, other.bucket_map, other.costs, other.shortfall)
            and np.array_equal(self.loads_before, other.loads_before)
            and np.array_equal(self.loads_after, other.loads_after)
            and np.array_equal(self.limits, other.limits)
        )

    # Compared by its arrays, which have no hash; mypy would allow None only where ``object`` does.
    __hash__ = None  # type: ignore[assignment]


def find_imbalance(loads: NDArray[np.float64], means: NDArray[np.float64]) -> float:
    """Return the largest load over its fair share; 1 is even, and so is no load at all."""
    stays: NDArray[np.bool_] = means > 0
    return float((loads[stays] / means[stays]).max()) if stays.any() else 1.0
