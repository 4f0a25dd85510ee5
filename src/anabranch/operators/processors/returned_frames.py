"""Frames that users return: their columns must fit, and their keys be those of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import PLACE


class FrameError(Exception):
    """A frame that a user returned does not fit."""


def conform(frame: pl.DataFrame, wanted: Mapping[str, pl.DataType], what: str, source: str) -> pl.DataFrame:
    """Return these columns of a frame, in these types; numbers are widened, and nothing is narrowed in silence."""
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        msg = f"{what} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}"
        raise FrameError(msg)
    columns = []
    for name, dtype in wanted.items():
        column = frame.get_column(name)
        if column.dtype != dtype:
            if not _fits(column.dtype, dtype):
                msg = f"{what} has {name} as {column.dtype}; {source}, it is {dtype}: cast it"
                raise FrameError(msg)
            try:
                column = column.cast(dtype)
            except pl.exceptions.PolarsError as error:
                msg = f"{what} has {name} as {column.dtype}, with values that do not fit {dtype}: {error}"
                raise FrameError(msg) from error
        columns.append(column)
    return pl.DataFrame(columns)


def find_places(frame: pl.DataFrame, keys: pl.DataFrame, names: tuple[str, ...], what: str) -> NDArray[np.int64]:
    """Return by row the place of its key among the batch's keys."""
    numbered = keys.select(names).with_row_index(PLACE)
    placed = frame.select(names).join(numbered, on=list(names), how="left", maintain_order="left")
    places = placed.get_column(PLACE)
    if places.null_count():
        stranger = placed.filter(places.is_null()).row(0, named=True)
        key = ", ".join(f"{name}={stranger[name]!r}" for name in names)
        msg = f"{what} has the key {key}, which has neither rows nor timers in this batch on this slot"
        raise FrameError(msg)
    return places.cast(pl.Int64).to_numpy()


def _fits(found: Any, wanted: Any) -> bool:
    """Say whether values of one type are meant where the other is wanted, so that a cast loses nothing but range."""
    if found in (wanted, pl.Null) or (found.is_integer() and wanted.is_integer()):
        return True
    if isinstance(found, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return found.time_zone == wanted.time_zone
    if isinstance(found, pl.List) and isinstance(wanted, pl.List):
        return _fits(found.inner, wanted.inner)
    return bool(found.is_numeric() and not found.is_decimal() and wanted.is_float())
