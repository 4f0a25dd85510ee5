"""What becomes of the keys that the rows of a batch touch, on a slot that itself finds the late ones among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from anabranch.compiled.hash_order import sort_by_hash
from anabranch.eventtime.key_clocks import ROWS, Times
from anabranch.eventtime.lateness import ORIGINAL, Judged
from anabranch.operators.aggregates.partials import concatenate


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What became of the keys of a batch when its rows came and time went on."""

    judged: Judged
    results: list[pl.DataFrame]
    rows: pl.DataFrame | None
    """What is open, or may be changed by late rows, with its PLACE."""
    last_end_us: Times
    """By key, the end of the last window that was emitted; where there is none, the beginning of time."""


@dataclass(frozen=True, slots=True, eq=False)
class Advanced:
    """What became of some of a slot's keys in a batch."""

    judged: Judged
    results: list[pl.DataFrame]
    written: pl.DataFrame
    """All state rows of the keys that changed."""
    shared: pl.DataFrame | None = None
    """What must meet the parts that other slots have."""


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """What became of keys whose windows stay open, and all there is of other keys."""

    advanced: Advanced | None
    arrived: pl.DataFrame | None
    known: pl.DataFrame | None


def gather_rows(
    received: list[pl.DataFrame], combined: bool, combine: Callable[[pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame | None:
    """Return what came as one frame, by hash, of partial rows, or of single rows if they are carried as they came."""
    frames = [frame for frame in received if frame.height]
    if not frames:
        return None
    rows = concatenate(frames)
    if not combined:
        rows = rows.with_columns(pl.lit(1, pl.Int64).alias(ROWS)) if ORIGINAL in rows.columns else combine(rows)
    return sort_by_hash(rows)
