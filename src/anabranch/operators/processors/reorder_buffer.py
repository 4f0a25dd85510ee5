"""Rows that wait until the watermark has passed them, so that they go on in the order of their time."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import LATEST, PLACE, Times, places_of
from anabranch.model import BATCH, BEGINNING_OF_TIME, HASH, ORDER
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.keyed.keyed_state import TouchedKeys, align_by_key

HELD = "__held"
"""List of Struct: the rows of the key that wait, in their order; null if none does."""

IN_ORDER = (LATEST, BATCH, ORDER)
"""Event time; then what came first."""


def release_rows(touched: TouchedKeys, arrived: pl.DataFrame | None) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Return the rows that their key's watermark passes in this batch, and those that wait on, each in order.

    Rows that arrived are in time; they have PLACE, LATEST, BATCH and ORDER.
    """
    frames = []
    if touched.known is not None:
        waited = touched.known.filter(pl.col(HELD).is_not_null()).select(PLACE, HELD)
        if waited.height:
            frames.append(waited.explode(HELD).unnest(HELD))
    if arrived is not None and arrived.height:
        frames.append(arrived.drop(HASH))
    if not frames:
        return None, None
    rows = concatenate(frames).sort(IN_ORDER, maintain_order=True)
    passed = rows.get_column(LATEST).to_numpy() < touched.clocks.fire_us[places_of(rows)]
    released, held = rows.filter(pl.Series(passed)), rows.filter(pl.Series(~passed))
    return released if released.height else None, held if held.height else None


def hold_rows(held: pl.DataFrame | None, count: int, dtype: pl.DataType) -> pl.Series:
    """Return by key the rows that wait, as they are stored."""
    if held is None:
        return pl.Series([None], dtype=dtype).new_from_index(0, count)
    row = pl.struct(pl.exclude(PLACE)).alias(HELD)
    lists = held.select(PLACE, row).group_by(PLACE, maintain_order=True).agg(HELD)
    return align_by_key(lists.get_column(HELD), places_of(lists), count, lists.schema[HELD])


def held_type(touched: TouchedKeys, arrived: pl.DataFrame | None) -> pl.DataType:
    """Return the type of the column that rows wait in."""
    if touched.known is not None:
        return touched.known.schema[HELD]
    assert arrived is not None, "no key is touched of which nothing is known and for which nothing came"
    fields = {name: dtype for name, dtype in arrived.schema.items() if name not in (HASH, PLACE)}
    return pl.List(pl.Struct(fields))


def first_held_due_us(held: pl.Series) -> pl.Series:
    """Return by key the watermark that lets the first row that waits go on."""
    return held.list.first().struct.field(LATEST) + 1


def changed_by_holding(touched: TouchedKeys, held: pl.DataFrame | None) -> NDArray[np.bool_]:
    """Say of each key whether rows of it wait, or waited before."""
    changed = np.zeros(len(touched), np.bool_)
    if held is not None:
        changed[places_of(held)] = True
    if touched.known is not None:
        waited = touched.known.get_column(HELD).is_not_null().to_numpy()
        changed[touched.known_places[waited]] = True
    return changed


def last_released_us(released: pl.DataFrame | None, count: int) -> Times:
    """Return by key the time of its last row that goes on; the beginning of time if none does."""
    last_us = np.full(count, BEGINNING_OF_TIME, np.int64)
    if released is not None:
        np.maximum.at(last_us, places_of(released), released.get_column(LATEST).to_numpy())
    return last_us
