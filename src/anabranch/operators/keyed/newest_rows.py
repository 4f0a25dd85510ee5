"""State in which the newest run that has a key holds all there is of it.

Operators whose keys live in their own time cannot keep state by window: what is due differs from key to key. They load
all rows of the keys that a batch touches, and write them anew; older runs' rows of the same hash no longer count. A key
of which nothing is left is written as a tombstone, a row without content, until no older run can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among, merge_hashes, sort_by_hash
from anabranch.model import SlotState
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.compaction import count_due_runs

Evolve = Callable[[pl.DataFrame], pl.DataFrame]
"""Returns rows of an older run as one would be written today."""


def as_they_are(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows unchanged."""
    return rows


def newest_rows(runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return for every hash its rows in the newest run that has it, by hash; runs are sorted, oldest first."""
    if len(runs) == 1:
        return runs[0]
    kept: list[pl.DataFrame] = []
    superseded: Hashes = np.empty(0, np.uint64)
    for rows in reversed(runs):
        hashes = hashes_of(rows)
        if superseded.size:
            rows = rows.filter(~is_among(hashes, superseded))  # noqa: PLW2901
        kept.append(rows)
        superseded = merge_hashes(superseded, hashes) if superseded.size else hashes
    return sort_by_hash(concatenate(kept[::-1]))


def load_rows(state: SlotState, hashes: Hashes, evolve: Evolve = as_they_are) -> pl.DataFrame | None:
    """Return all that is known of these keys (sorted, unique hashes), by hash; None if that is nothing."""
    found = state.lookup_newest(pl.Series(hashes, dtype=pl.UInt64))
    return sort_by_hash(concatenate([evolve(rows) for rows in found])) if found else None


def store_rows(
    state: SlotState,
    rows: pl.DataFrame,
    has_content: Callable[[pl.DataFrame], pl.Series],
    evolve: Evolve = as_they_are,
) -> None:
    """Write all rows of some keys, in place of what was known of them; merge runs if there are too many."""
    if rows.is_empty():
        return
    state.append(sort_by_hash(rows))
    count = count_due_runs(state)
    if not count:
        return
    merged = newest_rows([evolve(run) for run in state.newest(count)])
    if count == len(state.runs()):
        # There is no older run that a tombstone would have to hide.
        merged = merged.filter(has_content(merged))
    state.replace_newest(count, merged)


def sweep_runs(
    state: SlotState, is_over: Callable[[pl.DataFrame], NDArray[np.bool_]], evolve: Evolve = as_they_are
) -> list[pl.DataFrame]:
    """Return the rows that are over, and write the state anew without them if that is half of what counts in it.

    What newer runs have superseded goes when runs are merged, which has a measure of its own.
    """
    runs = state.live()
    found: list[pl.DataFrame] = []
    newer: Hashes = np.empty(0, np.uint64)
    counted = 0
    for rows in reversed(runs):
        hashes = hashes_of(rows)
        superseded = is_among(hashes, newer) if newer.size else np.zeros(len(hashes), np.bool_)
        over = is_over(rows) & ~superseded
        found.append(rows.filter(pl.Series(over)))
        counted += int((~superseded).sum())
        newer = merge_hashes(newer, hashes) if newer.size else hashes
    gone = sum(rows.height for rows in found)
    # State that changes hands is work enough for a batch.
    if gone and 2 * gone >= counted and not state.changes_hands:
        merged = newest_rows([evolve(rows) for rows in runs])
        # The old runs would not do in its place: a key that moves later would leave there what is not seen here.
        state.replace_newest(len(runs), merged.filter(pl.Series(~is_over(merged))), rebuildable=False)
    return found


def take_out(rows: pl.DataFrame | None, wanted: Hashes) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """Return the rows of other hashes, and those of the wanted ones (sorted); None for none."""
    if rows is None or not wanted.size:
        return rows, None
    among = is_among(hashes_of(rows), wanted)
    if not among.any():
        return rows, None
    if among.all():
        return None, rows
    return rows.filter(pl.Series(~among)), rows.filter(pl.Series(among))
