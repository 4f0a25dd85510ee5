"""When runs of a slot are merged, and which."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from anabranch.model import SlotState

MOST_RUNS = 10
"""A slot with more runs merges some: every due window and every lookup visits each run."""

_LIMITS = 4
"""Slots merge beyond this many different numbers of runs, up to the largest."""
_FEWEST_MERGED = 4
_MORE_WHILE_CHANGING_HANDS = 4
"""How many runs more a slot may have in a batch in which state changes hands."""


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


def count_due_runs(state: SlotState) -> int:
    """Return how many of a slot's newest runs are to be merged now; 0 for none.

    Slots that began together have as many runs: they would all merge in the same batch, which would take twice as long
    as the others. So their limits differ, by how many rows their oldest run has: that is as good as chance, and the
    same for a task that is run again. A slot whose state changes hands just now puts merging off, though not for ever.
    """
    runs = state.runs()
    if not runs:
        return 0
    earlier = runs[0].live_rows % _LIMITS
    later = _MORE_WHILE_CHANGING_HANDS if state.changes_hands else 0
    return count_runs_to_merge([run.live_rows for run in runs], MOST_RUNS - earlier + later)


def compact(state: SlotState, merge: Callable[[list[pl.DataFrame]], pl.DataFrame], *, rebuildable: bool = True) -> None:
    """Merge the newest runs if there are too many.

    ``merge`` gets their rows, oldest run first, and returns one sorted frame. ``rebuildable``: at any later time, the
    runs would do in its place.
    """
    count = count_due_runs(state)
    if count:
        state.replace_newest(count, merge(state.newest(count)), rebuildable)
