"""The compiled half of ``open_windows``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop
from anabranch.model.times import NO_PANE

TRIED_ROWS = 8192
"""So many rows tell whether it is worth going on."""
MOST_PANES = 64
"""A key with more is left to others: here panes are looked for one by one."""


def _merge(  # noqa: PLR0912, PLR0913, PLR0915, PLR0917 - one loop, compiled as a whole
    hashes: NDArray[np.uint64],
    panes: NDArray[np.int64],
    latest_us: NDArray[np.int64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
    known_hashes: NDArray[np.uint64],
    known_panes: NDArray[np.int64],
    known_clocks_us: NDArray[np.int64],
    known_integers: NDArray[np.int64],
    known_floats: NDArray[np.float64],
    delay_us: int,
    floor_us: int,
    pane_us: int,
    lateness_us: int,
    is_tumbling: bool,
    merged_from: NDArray[np.uint32],
    merged_clocks_us: NDArray[np.int64],
    merged_panes: NDArray[np.int64],
    merged_integers: NDArray[np.int64],
    merged_floats: NDArray[np.float64],
    firsts: NDArray[np.uint32],
    known_firsts: NDArray[np.uint32],
    is_left: NDArray[np.bool_],
    is_known_left: NDArray[np.bool_],
) -> int:
    """Merge rows that came with known ones, key by key; return how many rows that makes, or -1 if it is not worth it.

    All rows are by hash, and known ones are of hashes that came. Keys of which a window ends, or for which a late row
    came, are left, and marked as such. ``firsts`` and ``known_firsts`` say which row was the first that came for
    the hash of a row, ``merged_from`` says it of the rows that are made.
    """
    made, left_rows, here, known = 0, 0, 0, 0
    while here < len(hashes):
        this = hashes[here]
        end, latest, earliest = here, latest_us[here], panes[here]
        while end < len(hashes) and hashes[end] == this:
            latest = max(latest, latest_us[end])
            earliest = min(earliest, panes[end])
            firsts[end] = here
            end += 1
        known_end, clock_us = known, np.int64(NO_PANE)
        while known_end < len(known_hashes) and known_hashes[known_end] == this:
            clock_us = max(clock_us, known_clocks_us[known_end])
            known_firsts[known_end] = here
            known_end += 1
        fire_us = max(clock_us, floor_us, latest - delay_us)
        first = made
        # A window ends no earlier than the first pane of it.
        stays = earliest + pane_us > fire_us and known_end - known <= MOST_PANES
        for row in range(known, known_end):
            pane = known_panes[row]
            if not stays or pane == NO_PANE:
                continue
            if pane + pane_us <= fire_us:
                if not is_tumbling or pane + pane_us > clock_us:
                    stays = False
                    continue
                # It was emitted by an earlier batch, and waits for late rows only.
                if pane + pane_us <= fire_us - lateness_us:
                    continue
            merged_panes[made] = pane
            for column in range(len(integers)):
                merged_integers[column, made] = known_integers[column, row]
            for column in range(len(floats)):
                merged_floats[column, made] = known_floats[column, row]
            made += 1
        for row in range(here, end):
            if not stays:
                break
            place = first
            while place < made and merged_panes[place] != panes[row]:
                place += 1
            if place == made:
                stays = made - first < MOST_PANES
                merged_panes[made] = panes[row]
                for column in range(len(integers)):
                    merged_integers[column, made] = integers[column, row]
                for column in range(len(floats)):
                    merged_floats[column, made] = floats[column, row]
                made += 1
            else:
                for column in range(len(integers)):
                    merged_integers[column, place] += integers[column, row]
                for column in range(len(floats)):
                    merged_floats[column, place] += floats[column, row]
        if stays:
            for place in range(first, made):
                merged_from[place] = here
                merged_clocks_us[place] = fire_us
        else:
            made = first
            left_rows += end - here
            is_left[here:end] = True
            is_known_left[known:known_end] = True
        here, known = end, known_end
        if here >= TRIED_ROWS and left_rows > here // 2:
            return -1
    return made


merge_open = compile_loop(_merge)
