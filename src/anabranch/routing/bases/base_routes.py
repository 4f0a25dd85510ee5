"""Base routes: where every key goes that the routing table does not name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model import BucketMap, RouteError
from anabranch.routing.bases.ring import resize_map, ring_map
from anabranch.routing.hashing import slots_of, unit_interval
from anabranch.routing.keys import KeyBatch
from anabranch.routing.registry import Registry

SlotRanges = tuple[NDArray[np.int32], NDArray[np.int32]]
"""By row, the first and the last slot of an interval of slots."""


@runtime_checkable
class BaseRoute(Protocol):
    """A pure function of a key to its home slot; equal by value, and plain JSON data and back."""

    @property
    def slots(self) -> int:
        """How many slots there are."""

    @property
    def needs_values(self) -> bool:
        """Whether keys must come with their values, because hashes don't tell where they go."""

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        """Return the home slot of every row's key."""

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        """Return by row the slots that may be home to keys from low to high; None when any slot may be."""

    def resized(self, slots: int) -> BaseRoute:
        """Return the same route over another number of slots; keys move only if they must."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, from which the class's ``from_json`` makes an equal route."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BaseRoute:
        """Read what ``to_json`` wrote."""


_bases: Registry[type[BaseRoute]] = Registry("base route")
base_route = _bases.register
"""Enter a class as a base route, so that a checkpoint that names it can be read: ``@base_route("name")``."""


def base_to_json(base: BaseRoute) -> dict[str, Any]:
    """Return a base route with its name, as plain JSON data."""
    return {"kind": _bases.name_of(type(base)), **base.to_json()}


def base_from_json(data: Mapping[str, Any]) -> BaseRoute:
    """Read what ``base_to_json`` wrote; a route of the user's own must have been registered before."""
    return _bases.find(data["kind"]).from_json(data)


@base_route("buckets")
@dataclass(frozen=True, slots=True)
class BucketRoute:
    """Hash → bucket → slot: the route of every flow at first, and the one whose buckets can be moved one by one."""

    bucket_map: BucketMap
    needs_values: ClassVar[bool] = False

    @classmethod
    def even(cls, slots: int, buckets: int) -> Self:
        """Deal the buckets to the slots in turn."""
        return cls(BucketMap.even(slots, buckets))

    @property
    def slots(self) -> int:
        return self.bucket_map.slots

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        return slots_of(keys.hashes, self.bucket_map)

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        return None

    def resized(self, slots: int) -> BucketRoute:
        return BucketRoute(resize_map(self.bucket_map, slots))

    def to_json(self) -> dict[str, Any]:
        return {"slots": self.slots, "slot_of": list(self.bucket_map.slot_of)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(BucketMap(data["slots"], tuple(data["slot_of"])))


@base_route("ring")
@dataclass(frozen=True, slots=True)
class RingRoute:
    """Consistent hashing: buckets lie on a ring, and each belongs to the next slot's point.

    A slot more takes about 1/n of the buckets and moves no other. The price is balance: arcs differ in length.
    """

    bucket_map: BucketMap
    points_a_slot: int
    needs_values: ClassVar[bool] = False

    @classmethod
    def over(cls, slots: int, buckets: int, points_a_slot: int) -> Self:
        """Lay out the ring."""
        return cls(ring_map(range(slots), buckets, points_a_slot), points_a_slot)

    @property
    def slots(self) -> int:
        return self.bucket_map.slots

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        return slots_of(keys.hashes, self.bucket_map)

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        return None

    def resized(self, slots: int) -> RingRoute:
        return RingRoute.over(slots, self.bucket_map.buckets, self.points_a_slot)

    def to_json(self) -> dict[str, Any]:
        # The map goes with it, although it could be computed: a checkpoint outlives the way rings are laid out.
        return {
            "slots": self.slots,
            "slot_of": list(self.bucket_map.slot_of),
            "points_a_slot": self.points_a_slot,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(BucketMap(data["slots"], tuple(data["slot_of"])), data["points_a_slot"])


@base_route("modulo")
@dataclass(frozen=True, slots=True)
class ModuloRoute:
    """Integer key modulo the number of slots: even for dense ids, and no better than luck for others.

    Keys of other types, or of several columns, go by their stable hash modulo the slots (``of_values`` is False).
    """

    slots: int
    of_values: bool = True

    def __post_init__(self) -> None:
        _check_slots(self.slots)

    @property
    def needs_values(self) -> bool:
        return self.of_values

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        if not self.of_values:
            return (keys.hashes % np.uint64(self.slots)).astype(np.int32)
        values = keys.require_values("modulo")
        if not has_modulo(values.dtype):
            msg = (
                f"modulo of values needs integer keys of at most 64 bits, found {values.dtype}; "
                "use ModuloRoute(…, of_values=False), which goes by the hash"
            )
            raise RouteError(msg)
        # Samples of joins know rows without a key: those go where 0 goes, and a column with nulls would become floats.
        numbers = values.fill_null(0).to_numpy()
        if numbers.dtype == np.uint64:
            return (numbers % np.uint64(self.slots)).astype(np.int32)
        return (numbers.astype(np.int64) % self.slots).astype(np.int32)

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        return None

    def resized(self, slots: int) -> ModuloRoute:
        return ModuloRoute(slots, self.of_values)

    def to_json(self) -> dict[str, Any]:
        return {"slots": self.slots, "of_values": self.of_values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["slots"], data["of_values"])


@base_route("weights")
@dataclass(frozen=True, slots=True)
class WeightRoute:
    """The circle of hashes cut into one arc a slot, as long as the slot's weight; weights sum to 100.

    The weights stand for the power of the slots. Keys are spread by them, rows only as far as keys are alike.
    """

    weights: tuple[float, ...]
    needs_values: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_weights(self.weights)

    @classmethod
    def of_powers(cls, powers: Sequence[float]) -> Self:
        """Return the route whose weights are the slots' powers, scaled to 100."""
        return cls(weights_of(powers))

    @property
    def slots(self) -> int:
        return len(self.weights)

    def slots_of(self, keys: KeyBatch) -> NDArray[np.int32]:
        return slots_at(unit_interval(keys.hashes) * 100, self.weights)

    def slots_between(self, lows: pl.Series | None, highs: pl.Series | None) -> SlotRanges | None:
        return None

    def resized(self, slots: int) -> WeightRoute:
        """A new slot gets the mean weight of the old ones."""
        _check_slots(slots)
        mean = 100 / len(self.weights)
        return WeightRoute.of_powers([*self.weights[:slots], *[mean] * (slots - len(self.weights))])

    def to_json(self) -> dict[str, Any]:
        return {"weights": list(self.weights)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(data["weights"]))


def weights_of(powers: Sequence[float]) -> tuple[float, ...]:
    """Return the powers scaled so that they sum to 100."""
    total = sum(powers)
    if not powers or total <= 0 or min(powers) < 0:
        msg = f"slot powers {list(powers)} make no weights; give one number a slot, none below 0 and one above"
        raise RouteError(msg)
    return tuple(float(power) * 100 / total for power in powers)


def check_weights(weights: Any) -> None:
    """Refuse weights that are no numbers, do not sum to 100 or are below 0."""
    listed = isinstance(weights, tuple | list)
    if not listed or any(isinstance(weight, bool) or not isinstance(weight, int | float) for weight in weights):
        msg = f"weights are {weights!r}; give a list with one number a slot, such as [50, 30, 20]"
        raise RouteError(msg)
    if not weights or not min(weights) >= 0 or not abs(sum(weights) - 100) <= 1e-6:
        msg = (
            f"weights {list(weights)} sum to {sum(weights):g}; they must be at least 0 and sum to 100; "
            "powers, which may have any sum, do the same (powers=, WeightRoute.of_powers)"
        )
        raise RouteError(msg)


def slots_at(points: NDArray[np.float64], weights: Sequence[float]) -> NDArray[np.int32]:
    """Return the slot of each point in [0, 100), by binary search in the cumulative weights."""
    ends = np.cumsum(weights)
    # The last end may lie a rounding error below 100, and a slot of weight 0 at the end must get nothing all the same.
    last = int(np.flatnonzero(np.asarray(weights) > 0)[-1])
    return np.minimum(np.searchsorted(ends, points, side="right"), last).astype(np.int32)


def deal_by_power(powers: Sequence[float], buckets: int) -> BucketMap:
    """Return the map that gives each slot as many buckets as its power says."""
    middles = (np.arange(buckets) + 0.5) * 100 / buckets
    return BucketMap(len(powers), tuple(slots_at(middles, weights_of(powers)).tolist()))


def has_modulo(dtype: pl.DataType) -> bool:
    """Return whether keys of a type are integers that ``ModuloRoute`` can divide."""
    return dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128)


def _check_slots(slots: int) -> None:
    if slots < 1:
        msg = f"a route over {slots} slots leads nowhere; give at least 1"
        raise RouteError(msg)
