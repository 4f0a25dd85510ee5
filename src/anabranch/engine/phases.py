"""Rows and state under routes that may change with the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.eventtime import drop_limit_us, first_window_us, last_window_us
from anabranch.model import HASH, WINDOW, AggregateSpec, OperatorSpec, TopKSpec, WindowSpec
from anabranch.routing.keys import KeyBatch
from anabranch.routing.phases import PhasedRoutes, find_new_slots
from anabranch.routing.routes import Routes


def window_of(spec: OperatorSpec) -> WindowSpec | None:
    """Return the window of an operator that keeps its state by window."""
    if not isinstance(spec, AggregateSpec | TopKSpec) or spec.keeps_state_by_key:
        return None
    return spec.window


def can_wait(window: WindowSpec | None, old: Routes, new: Routes) -> bool:
    """Say whether the window protocol can do a change, or its state must move.

    Sessions and running aggregates have no end to wait for. What a slot fires is looked at by the hash alone. And
    where windows overlap, a row goes to its old and to its new slot: if a key had several of each, one slot could
    get the row twice.
    """
    if window is None or window.kind == "session" or old.needs_values or new.needs_values:
        return False
    return window.kind == "tumbling" or not (PhasedRoutes(old).splits or PhasedRoutes(new).splits)


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
    return KeyBatch(rows.get_column(HASH).to_numpy(), values)


def moving_to(routes: Routes, keys: tuple[str, ...], slot: int) -> Callable[[pl.DataFrame], npt.NDArray[np.int32]]:
    """Return the function that says where the state of a slot belongs under new routes."""
    return lambda rows: find_new_slots(routes, keys_of(routes, rows, keys), slot)


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
