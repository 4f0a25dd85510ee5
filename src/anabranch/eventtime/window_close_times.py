"""When everything that an event may be part of is over."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anabranch.eventtime.windows import last_window_ends_us
from anabranch.model import AggregateSpec, OperatorSpec, OrderSpec, ProcessSpec, TopKSpec, WindowSpec

Times = NDArray[np.int64]
LastEnd = Callable[[Times], Times]
"""Says when the last window that holds an event ends."""


def last_end_of(spec: OperatorSpec) -> LastEnd:
    """Return the function that says when the last window of an operator that holds an event ends.

    A row that waits for its turn goes on once the watermark has passed it.
    """
    if isinstance(spec, ProcessSpec | OrderSpec):
        return _just_after
    window = spec.window if isinstance(spec, AggregateSpec | TopKSpec) else None
    return partial(_last_end_us, window) if window is not None else np.asarray


def _just_after(times_us: Times) -> Times:
    return times_us + 1


def _last_end_us(window: WindowSpec, times_us: Times) -> Times:
    return times_us + window.size_us if window.kind == "session" else last_window_ends_us(window, times_us)
