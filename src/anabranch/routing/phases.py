"""Routes that change at a moment of event time, what a slot is to its keys meanwhile, and rows and state under them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime import drop_limit_us, first_window_us, last_window_us
from anabranch.model import HASH, WINDOW, AggregateSpec, OperatorSpec, TopKSpec, WindowSpec
from anabranch.model.runs import Leaving
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
        return any(routes.may_split for routes in every)

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


FlowRoutes = Mapping[int, PhasedRoutes]
"""Stateful node → its routes."""


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


def window_of(spec: OperatorSpec) -> WindowSpec | None:
    """Return the window of an operator that keeps its state by window."""
    if not isinstance(spec, AggregateSpec | TopKSpec) or spec.keeps_state_by_key:
        return None
    return spec.window


def divide_by_phase(
    frame: pl.DataFrame, phases: PhasedRoutes, window: WindowSpec | None
) -> Iterator[tuple[Routes, pl.DataFrame]]:
    """Yield the rows of each phase with its routes.

    A row whose windows lie on both sides of the switch is in both phases, unless they put it on the same slot.
    """
    earlier = phases.earlier
    if earlier is None:
        yield phases.routes, frame
        return
    assert window is not None, "only windows have an end to wait for"
    in_earlier = first_window_us(pl.col(WINDOW), window) < earlier.switch_us
    before = frame.filter(in_earlier)
    if before.height:
        yield earlier.routes, before
    after = frame.filter(last_window_us(pl.col(WINDOW), window) >= earlier.switch_us)
    if window.kind == "sliding" and before.height and after.height:
        keys = KeyBatch(after.get_column(HASH).to_numpy())
        stays = pl.Series(earlier.routes.storage_slots(keys) == phases.routes.storage_slots(keys))
        after = after.filter(~(in_earlier & stays))
    if after.height:
        yield phases.routes, after


def drop_copies(rows: pl.DataFrame, phases: PhasedRoutes, window: WindowSpec | None, slot: int) -> pl.DataFrame:
    """Return a slot's state without the rows that the next owner of their keys has got, too.

    Only where windows overlap: what was seen before the change is in no window of the next owner.
    """
    if phases.earlier is None or window is None or window.kind != "sliding":
        return rows
    keys = KeyBatch(rows.get_column(HASH).to_numpy())
    owned = pl.Series(find_new_slots(phases.routes, keys, slot) == slot)
    return rows.filter(owned | (last_window_us(pl.col(WINDOW), window) < phases.earlier.switch_us))


def keys_of(routes: Routes, rows: pl.DataFrame, keys: tuple[str, ...]) -> KeyBatch:
    """Return the keys of rows that have HASH, with their values if the routes go by them."""
    values = rows.get_column(keys[0]) if routes.needs_values and len(keys) == 1 else None
    if values is not None and values.null_count():
        # Only rows of joins come without a key. They meet nobody, so any place will do if it is always the same.
        values = values.fill_null(pl.Series([0]).cast(values.dtype, strict=False)[0])
    return KeyBatch(rows.get_column(HASH).to_numpy(), values)


def moving_to(routes: Routes, keys: tuple[str, ...], slot: int) -> Callable[[pl.DataFrame], Leaving]:
    """Return the function that says where the state of a slot belongs under new routes."""
    return lambda rows: Leaving.to(find_new_slots(routes, keys_of(routes, rows, keys), slot), slot)


def switch_after(latest_us: int, window: WindowSpec) -> int:
    """Return the start of the first window that no event so far is in."""
    return (latest_us - window.offset_us) // window.slide_us * window.slide_us + window.offset_us + window.slide_us


def settle(phases: PhasedRoutes, window: WindowSpec | None, fired_us: int) -> PhasedRoutes:
    """Return the routes without the earlier ones, once nothing is left of what they were for.

    Where windows overlap, the old owner also has panes that belong to windows of the new one: they must be gone, too.
    """
    if phases.earlier is None or window is None:
        return phases
    last_needed_us = phases.earlier.switch_us + window.size_us - window.slide_us
    return phases if drop_limit_us(window, fired_us) < last_needed_us else PhasedRoutes(phases.routes)
