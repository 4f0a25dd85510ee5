"""Routes that change at a moment of event time, what a slot is to its keys meanwhile, and rows and state under them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime import drop_limit_us, first_window_us, last_window_us
from anabranch.model import HASH, WINDOW, AggregateSpec, JoinSpec, OperatorSpec, TopKSpec, WindowSpec
from anabranch.model.joins import AT, LEFT, RIGHT
from anabranch.model.runs import Leaving
from anabranch.routing.keys import KeyBatch
from anabranch.routing.routes import Routes, RowSlots


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


def first_slots(routes: Routes, keys: KeyBatch) -> NDArray[np.int32]:
    """Return the first slot of each row's key."""
    return pick_first_slots(routes.operation_slots(keys), len(keys))


def pick_first_slots(places: RowSlots, count: int) -> NDArray[np.int32]:
    """Return the first slot of each of so many rows, which all have one."""
    rows, slots = places
    firsts = np.empty(count, np.int32)
    # Written backwards, so that the first slot of each row is written last.
    firsts[rows[::-1]] = slots[::-1]
    return firsts


def find_new_slots(routes: Routes, keys: KeyBatch, slot: int) -> NDArray[np.int32]:
    """Return where state that lies on a slot belongs: there, if the slot is one of its key's, else on the first."""
    if routes.splitter is None and not len(routes.table.keys):
        return routes.home_slots(keys)
    rows, slots = routes.operation_slots(keys)
    targets = first_slots(routes, keys)
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

    def count_slots(self, rows: pl.DataFrame, keys: tuple[str, ...]) -> pl.Series:
        """Return how many slots share the key of each row, which has HASH and the key's columns."""
        routes = self.phases.routes
        return pl.Series(routes.count_slots(keys_of(routes, rows, keys)))

    def finds_copies(self, hashes: pl.Series, *, may_swap: bool, is_usual: bool) -> pl.Series:
        """Say of each row of an input of a join whether it is a copy of one that another slot counts."""
        routes = self.phases.routes
        swapped = routes.swapped if may_swap else ()
        elsewhere = [
            key
            for key in routes.table.split_keys().tolist()
            if is_usual != (key in swapped) and min(part.slot for part in routes.table.owners(key)) != self.slot
        ]
        return hashes.is_in(pl.Series(elsewhere, dtype=pl.UInt64).implode())


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


@dataclass(frozen=True, slots=True)
class JoinEnd:
    """When rows of a join that are older than some moment have met all that they can meet."""

    reach_us: int
    """How much later than a row its partners may be."""
    hold_us: int
    """How long beyond its AT a row is kept."""
    window: WindowSpec | None
    """What both rows of a pair must be in, if that is said."""

    @property
    def wait_us(self) -> int:
        """How long after the switch rows that both owners got are gone."""
        return self.reach_us + self.hold_us


End = WindowSpec | JoinEnd
"""What a change of routes has to wait for if no state is to move."""


def end_of(spec: OperatorSpec) -> End | None:
    """Return what ends by itself in an operator, so that a change may wait for it."""
    if not isinstance(spec, JoinSpec):
        return window_of(spec)
    # A row of another kind of join must know whether it met somebody, or who was the newest, and would on one of two
    # slots only.
    if spec.how != "inner" or spec.newest or not spec.is_bounded or spec.near:
        return None
    if spec.follows_own_time:
        # The clock of a key, which both slots would need, is with its rows.
        return None
    reach_us = 0 if spec.within is None else max(spec.within.most_us, -spec.within.least_us, 0)
    return JoinEnd(reach_us, max(spec.hold_us(number) or 0 for number in (LEFT, RIGHT)), spec.window)


def divide_by_phase(
    frame: pl.DataFrame, phases: PhasedRoutes, end: End | None
) -> Iterator[tuple[Routes, pl.DataFrame]]:
    """Yield the rows of each phase with its routes.

    A row whose windows lie on both sides of the switch, or that may meet rows of both sides, is in both phases, unless
    they put it on the same slot.
    """
    earlier = phases.earlier
    if earlier is None:
        yield phases.routes, frame
        return
    assert end is not None, "there is an end to wait for"
    if isinstance(end, JoinEnd):
        yield from _divide_joined(frame, phases.routes, earlier, end)
        return
    window = end
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


def _divide_joined(
    frame: pl.DataFrame, routes: Routes, earlier: Earlier, end: JoinEnd
) -> Iterator[tuple[Routes, pl.DataFrame]]:
    keys = KeyBatch(frame.get_column(HASH).to_numpy())
    # Split keys are not changed by what waits, so their first slots say enough.
    moves = pl.Series(first_slots(earlier.routes, keys) != first_slots(routes, keys))
    before = frame.filter((pl.col(AT) < earlier.switch_us) | ((pl.col(AT) < earlier.switch_us + end.reach_us) & moves))
    if before.height:
        yield earlier.routes, before
    after = frame.filter(pl.col(AT) >= earlier.switch_us)
    if after.height:
        yield routes, after


def drop_copies(rows: pl.DataFrame, phases: PhasedRoutes, end: End | None, slot: int) -> pl.DataFrame:
    """Return a slot's state without the rows that the next owner of their keys has got, too.

    Only where rows go to both: what was seen before the change is in no window of the next owner.
    """
    if phases.earlier is None or end is None:
        return rows
    keys = KeyBatch(rows.get_column(HASH).to_numpy())
    owned = pl.Series(find_new_slots(phases.routes, keys, slot) == slot)
    if isinstance(end, JoinEnd):
        return rows.filter(owned | (pl.col(AT) < phases.earlier.switch_us))
    window = end
    if window.kind != "sliding":
        return rows
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


def switch_after(latest_us: int, end: End) -> int:
    """Return the start of the first window that no event so far is in, or the first moment that none is at."""
    window = end.window if isinstance(end, JoinEnd) else end
    if window is None:
        return latest_us + 1
    return (latest_us - window.offset_us) // window.slide_us * window.slide_us + window.offset_us + window.slide_us


def settle(phases: PhasedRoutes, end: End | None, fired_us: int) -> PhasedRoutes:
    """Return the routes without the earlier ones, once nothing is left of what they were for.

    Where rows go to both owners, the old one also has some that are the new one's: they must be gone, too.
    """
    if phases.earlier is None or end is None:
        return phases
    if isinstance(end, JoinEnd):
        return phases if fired_us < phases.earlier.switch_us + end.wait_us else PhasedRoutes(phases.routes)
    window = end
    last_needed_us = phases.earlier.switch_us + window.size_us - window.slide_us
    return phases if drop_limit_us(window, fired_us) < last_needed_us else PhasedRoutes(phases.routes)
