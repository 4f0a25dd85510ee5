"""Windows laid over panes of which every row has its own limits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime import last_window_ends_us, window_ends_after_us
from anabranch.eventtime.key_clocks import PLACE
from anabranch.model import WindowSpec
from anabranch.operators.aggregates.partials import Partials

PANE = "__pane"
"""Int64: the start of the pane; null where a key has none."""
START = "__start"
"""Int64: the start of a window that is laid over panes."""


def lay_windows(
    partials: Partials,
    window: WindowSpec,
    panes: pl.DataFrame,
    after: NDArray[np.int64],
    until: NDArray[np.int64],
    flags: Sequence[str] = (),
) -> pl.DataFrame | None:
    """Return the windows that end in (after, until], which each pane says for itself; None if there are none.

    Panes have their PLACE; a flag of a window is true if that of any of its panes is.
    """
    starts = panes.get_column(PANE).to_numpy()
    first_ends = window_ends_after_us(window, starts, after)
    last_ends = np.minimum(last_window_ends_us(window, starts), until)
    chosen = first_ends <= last_ends
    if not chosen.any():
        return None
    windows = panes.filter(pl.Series(chosen))
    if window.kind == "tumbling":
        return windows.rename({PANE: START})
    spans = pl.DataFrame({"first": first_ends[chosen] - window.size_us, "last": last_ends[chosen] - window.size_us})
    laid = spans.select(pl.int_ranges("first", pl.col("last") + 1, window.slide_us).alias(START)).to_series()
    spread = windows.drop(PANE).with_columns(laid).explode(START)
    return partials.merge_placed([spread], [PLACE, START], flags, strides={START: window.slide_us})
