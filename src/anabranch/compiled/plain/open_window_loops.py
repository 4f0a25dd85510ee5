"""Plain twin of ``open_window_loops``."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.open_window_loops import MOST_PANES, TRIED_ROWS
from anabranch.model.times import NO_PANE

Panes = dict[int, tuple[list[int], list[float]]]
"""Pane → its whole numbers and its floats."""


def merge_open(  # noqa: PLR0913, PLR0917 - those of the loop
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
    """Merge rows that came with known ones, key by key; return how many rows that makes, -1 if it is not worth it."""
    made = left_rows = 0
    for this, group in groupby(range(len(hashes)), key=hashes.__getitem__):
        rows = list(group)
        known = np.flatnonzero(known_hashes == this).tolist()
        firsts[rows], known_firsts[known] = rows[0], rows[0]
        clock_us = max([NO_PANE, *known_clocks_us[known].tolist()])
        fire_us = max(clock_us, floor_us, int(latest_us[rows].max()) - delay_us)
        merged = _merge_key(
            {row: (int(panes[row]), integers[:, row].tolist(), floats[:, row].tolist()) for row in rows},
            {row: (int(known_panes[row]), known_integers[:, row], known_floats[:, row]) for row in known},
            *(clock_us, fire_us, pane_us, lateness_us if is_tumbling else None),
        )
        if merged is None:
            left_rows += len(rows)
            is_left[rows], is_known_left[known] = True, True
        else:
            for pane, (wholes, reals) in merged:
                merged_from[made], merged_clocks_us[made], merged_panes[made] = rows[0], fire_us, pane
                merged_integers[:, made], merged_floats[:, made] = wholes, reals
                made += 1
        if rows[-1] + 1 >= TRIED_ROWS and left_rows > (rows[-1] + 1) // 2:
            return -1
    return made


def _merge_key(
    arrived: dict[int, Any], known: dict[int, Any], clock_us: int, fire_us: int, pane_us: int, lateness_us: int | None
) -> list[Any] | None:
    """Return the panes of a key, None if a window of it ends; without a lateness, no pane waits for late rows."""
    if min(pane for pane, _, _ in arrived.values()) + pane_us <= fire_us or len(known) > MOST_PANES:
        return None
    kept: list[Any] = []
    for pane, wholes, reals in known.values():
        end_us = pane + pane_us
        if pane == NO_PANE:
            continue
        if end_us <= fire_us:
            if lateness_us is None or end_us > clock_us:
                return None
            # It was emitted by an earlier batch, and waits for late rows only.
            if end_us <= fire_us - lateness_us:
                continue
        kept.append((pane, (list(wholes), list(reals))))
    for pane, wholes, reals in arrived.values():
        held = next((values for other, values in kept if other == pane), None)
        if held is None:
            if len(kept) >= MOST_PANES:
                return None
            kept.append((pane, (list(wholes), list(reals))))
        else:
            held[0][:] = [one + other for one, other in zip(held[0], wholes, strict=True)]
            held[1][:] = [one + other for one, other in zip(held[1], reals, strict=True)]
    return kept
