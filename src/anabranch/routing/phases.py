"""Routes that change at a moment of event time, and what a slot is to its keys meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes


@dataclass(frozen=True, slots=True)
class Earlier:
    """The routes of windows that start before the switch."""

    routes: Routes
    switch_us: int


@dataclass(frozen=True, slots=True)
class PhasedRoutes:
    """The routes of one stateful operator in one batch.

    Under the window protocol, windows that start before the switch stay with their old owners; where windows overlap,
    rows go to both until the last old window has closed.
    """

    routes: Routes
    earlier: Earlier | None = None

    @property
    def slots(self) -> int:
        """How many slots must run."""
        return self.routes.slots if self.earlier is None else max(self.routes.slots, self.earlier.routes.slots)

    @property
    def splits(self) -> bool:
        """Whether keys may be on several slots."""
        every = [self.routes] if self.earlier is None else [self.routes, self.earlier.routes]
        return any(routes.splitter is not None or len(routes.table.split_keys()) > 0 for routes in every)

    @property
    def needs_standing(self) -> bool:
        """Whether slots must look at what they fire."""
        return self.earlier is not None or self.splits

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data, for the manifest."""
        data = self.routes.to_json()
        if self.earlier is not None:
            data["earlier"] = {"routes": self.earlier.routes.to_json(), "switch_us": self.earlier.switch_us}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        earlier = data.get("earlier")
        return cls(
            Routes.from_json(data),
            None if earlier is None else Earlier(Routes.from_json(earlier["routes"]), earlier["switch_us"]),
        )


def find_new_slots(routes: Routes, keys: KeyBatch, slot: int) -> NDArray[np.int32]:
    """Return where state that lies on a slot belongs: there, if the slot is one of its key's, else on the first."""
    if routes.splitter is None and not len(routes.table.keys):
        return routes.home_slots(keys)
    rows, slots = routes.operation_slots(keys)
    targets = np.empty(len(keys), np.int32)
    # Written backwards, so that the first slot of each row is written last.
    targets[rows[::-1]] = slots[::-1]
    targets[rows[slots == slot]] = slot
    return targets


@dataclass(frozen=True, slots=True)
class SlotStanding:
    """What one slot is to its keys: a ``Standing`` for kernels."""

    phases: PhasedRoutes
    slot: int

    @property
    def split_hashes(self) -> pl.Series | None:
        """The hashes of all keys that several slots share, sorted; None under a row splitter, which may share any."""
        if self.phases.routes.splitter is not None:
            return None
        return pl.Series(self.phases.routes.table.split_keys(), dtype=pl.UInt64)

    def shares(self, hashes: pl.Series, windows: pl.Series | None) -> pl.Series:
        """Say of each row whether other slots may hold parts of the same result."""
        keys = hashes.to_numpy()
        shared = self.phases.routes.split_keys(keys)
        if self.phases.earlier is not None and windows is not None:
            before = windows.to_numpy() < self.phases.earlier.switch_us
            shared = np.where(before, self.phases.earlier.routes.split_keys(keys), shared)
        return pl.Series(shared)

    def lacks(self, hashes: pl.Series, windows: pl.Series) -> pl.Series | None:
        """Say of each row whether its window is another slot's; None if none is."""
        earlier = self.phases.earlier
        if earlier is None:
            return None
        keys = KeyBatch(hashes.to_numpy())
        before = windows.to_numpy() < earlier.switch_us
        return pl.Series(
            np.where(before, ~_holds(earlier.routes, keys, self.slot), ~_holds(self.phases.routes, keys, self.slot))
        )


def _holds(routes: Routes, keys: KeyBatch, slot: int) -> NDArray[np.bool_]:
    if slot >= routes.slots:
        return np.zeros(len(keys), np.bool_)
    held: NDArray[np.bool_] = find_new_slots(routes, keys, slot) == slot
    return held
