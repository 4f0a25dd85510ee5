"""When runs of a slot are merged, and which."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from anabranch.model import SlotState

MOST_RUNS = 8
"""A slot with more runs merges some: every due window and every lookup visits each run."""

_FEWEST_MERGED = 4


def count_runs_to_merge(live_rows: list[int], most_runs: int = MOST_RUNS) -> int:
    """Return how many of the newest runs to merge into one; 0 for none. ``live_rows`` has the oldest run first.

    A run takes part only if the newer ones together have at least half its rows, so a row is rewritten
    a number of times that grows with the logarithm of the state, not with the number of batches.
    """
    if len(live_rows) <= most_runs:
        return 0
    merged = 0
    rows = 0
    for run_rows in reversed(live_rows):
        if merged >= _FEWEST_MERGED and run_rows > 2 * rows:
            break
        merged += 1
        rows += run_rows
    return merged


def compact(state: SlotState, merge: Callable[[list[pl.DataFrame]], pl.DataFrame], *, rebuildable: bool = True) -> None:
    """Merge the newest runs if there are too many.

    ``merge`` gets their rows, oldest run first, and returns one sorted frame. ``rebuildable``: at any later time, the
    runs would do in its place.
    """
    count = count_runs_to_merge([run.live_rows for run in state.runs()])
    if count:
        state.replace_newest(count, merge(state.newest(count)), rebuildable)
