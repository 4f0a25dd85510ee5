"""How much keys, buckets and slots have to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anabranch.errors import FlowError
from anabranch.model.routes import BucketMap


class LoadError(FlowError):
    """Loads do not fit together: columns of different lengths, keys without a load, slots that do not exist."""


@dataclass(frozen=True, slots=True, eq=False)
class KeyLoads:
    """What each key costs, and where its base route puts it.

    A key that the routing table names must be listed, with load 0 if nothing came for it (``including``): its home is
    known from here alone.
    """

    keys: NDArray[np.uint64]
    """Sorted, each once."""
    loads: NDArray[np.float64]
    """What a slot receives and does for the key, in any one unit: rows, CPU seconds."""
    state_bytes: NDArray[np.float64]
    homes: NDArray[np.int32]
    """The slot of each key's base route now."""
    next_homes: NDArray[np.int32] | None = None
    """The slot of the base route that holds once the plan is carried out; as ``homes`` when it stays the same."""
    splittable: NDArray[np.bool_] | None = None
    """Whether the key's rows may be shared out; all of them may when it is not given."""
    unlisted: NDArray[np.float64] | None = None
    """By slot, the load of keys that are not listed here: nothing can move it key by key."""

    def __post_init__(self) -> None:
        count = len(self.keys)
        for name, dtype in _KEY_COLUMNS.items():
            value = getattr(self, name)
            if value is None:
                continue
            column = _freeze(value, dtype)
            object.__setattr__(self, name, column)
            if name != "unlisted" and len(column) != count:
                msg = f"{name} has {len(column)} rows for {count} keys; give one a key"
                raise LoadError(msg)
        if count and not (self.keys[1:] > self.keys[:-1]).all():
            msg = "keys are not sorted, or one of them is there twice; build the loads with KeyLoads.of"
            raise LoadError(msg)
        for name in ("loads", "state_bytes", "homes", "next_homes", "unlisted"):
            _refuse_negative(name, getattr(self, name))

    @classmethod
    def of(
        cls, keys: ArrayLike, loads: ArrayLike, homes: ArrayLike, state_bytes: ArrayLike | None = None, **others: Any
    ) -> KeyLoads:
        """Return the loads of keys in any order; state that is not known counts as none."""
        key_column = np.asarray(keys, np.uint64)
        order = np.argsort(key_column, kind="stable")
        unlisted = others.pop("unlisted", None)
        columns = {
            "loads": loads,
            "homes": homes,
            "state_bytes": np.zeros(len(key_column)) if state_bytes is None else state_bytes,
            **{name: column for name, column in others.items() if column is not None},
        }
        for name, column in columns.items():
            if len(np.asarray(column)) != len(key_column):
                msg = f"{name} has {len(np.asarray(column))} rows for {len(key_column)} keys; give one a key"
                raise LoadError(msg)
        ordered = {name: np.asarray(column, _KEY_COLUMNS[name])[order] for name, column in columns.items()}
        return cls(keys=key_column[order], unlisted=unlisted, **ordered)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def later_homes(self) -> NDArray[np.int32]:
        """The homes that hold once the plan is carried out."""
        return self.homes if self.next_homes is None else self.next_homes

    def including(
        self, keys: ArrayLike, homes: ArrayLike, next_homes: ArrayLike | None = None, splittable: bool = True
    ) -> KeyLoads:
        """Return the loads with the given keys added at load 0 where they are not listed yet."""
        given, first = np.unique(np.asarray(keys, np.uint64), return_index=True)
        fresh = np.isin(given, self.keys, assume_unique=True, invert=True)
        if not fresh.any():
            return self
        rows, count = first[fresh], int(fresh.sum())
        given_homes = np.asarray(homes, np.int32)[rows]
        given_next = given_homes if next_homes is None else np.asarray(next_homes, np.int32)[rows]
        may_split = np.ones(len(self), np.bool_) if self.splittable is None else self.splittable
        return KeyLoads.of(
            np.concatenate((self.keys, given[fresh])),
            np.concatenate((self.loads, np.zeros(count))),
            np.concatenate((self.homes, given_homes)),
            np.concatenate((self.state_bytes, np.zeros(count))),
            next_homes=(
                None
                if self.next_homes is None and next_homes is None
                else np.concatenate((self.later_homes, given_next))
            ),
            splittable=(
                None
                if self.splittable is None and splittable
                else np.concatenate((may_split, np.full(count, splittable, np.bool_)))
            ),
            unlisted=self.unlisted,
        )


_KEY_COLUMNS: dict[str, type[np.generic]] = {
    "keys": np.uint64,
    "loads": np.float64,
    "state_bytes": np.float64,
    "homes": np.int32,
    "next_homes": np.int32,
    "splittable": np.bool_,
    "unlisted": np.float64,
}


@dataclass(frozen=True, slots=True, eq=False)
class StateSizes:
    """How many bytes of state keys have, as far as that was measured."""

    bucket_bytes: NDArray[np.float64]
    """By bucket, all of its keys, wherever their state is."""
    key_bytes: Mapping[int, float] = field(default_factory=dict)
    """Key hash → what handing the key over would write; the keys that were looked at one by one."""
    key_left_bytes: Mapping[int, float] = field(default_factory=dict)
    """Of a join, key hash → those of them that are of the left input."""

    @property
    def bytes(self) -> float:
        return float(self.bucket_bytes.sum())

    def fit(self, buckets: int) -> bool:
        """Say whether the sizes are of so many buckets."""
        return len(self.bucket_bytes) == buckets


@dataclass(frozen=True, slots=True, eq=False)
class BucketLoads:
    """What each bucket costs, and the slot that owns it."""

    buckets: BucketMap
    loads: NDArray[np.float64]
    state_bytes: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """By bucket; none are known when it is empty."""
    settled: NDArray[np.float64] | None = None
    """By slot, load that no bucket takes along: keys that the routing table sends there."""

    def __post_init__(self) -> None:
        loads = _freeze(self.loads, np.float64)
        state_bytes = np.zeros(len(loads)) if not len(self.state_bytes) else self.state_bytes
        object.__setattr__(self, "loads", loads)
        object.__setattr__(self, "state_bytes", _freeze(state_bytes, np.float64))
        for name in ("loads", "state_bytes"):
            column = getattr(self, name)
            if len(column) != self.buckets.buckets:
                msg = f"{name} has {len(column)} rows for {self.buckets.buckets} buckets; give one a bucket"
                raise LoadError(msg)
            _refuse_negative(name, column)
        if self.settled is not None:
            object.__setattr__(self, "settled", _freeze(self.settled, np.float64))
            _refuse_negative("settled", self.settled)

    @property
    def slots_of(self) -> NDArray[np.int32]:
        """The slot of every bucket."""
        return np.asarray(self.buckets.slot_of, np.int32)


def _freeze(values: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a read-only view: the caller's own array stays writable."""
    column = np.asarray(values, dtype).view()
    column.flags.writeable = False
    return column


def _refuse_negative(name: str, column: NDArray[Any] | None) -> None:
    # Written so that NaN is refused, too.
    if column is not None and not (column >= 0).all():
        wrong = column[~(column >= 0)][:3].tolist()
        msg = f"{name} holds {wrong}; loads, bytes and slots are numbers from 0 on"
        raise LoadError(msg)
