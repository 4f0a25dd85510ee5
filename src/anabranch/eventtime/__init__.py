"""Arithmetic of time, which knows rows, keys and windows, and no plan. Read it as time flows.

``durations`` and ``windows``: what people write, and which windows a time lies in. ``time_range``, ``bad_times``:
times that cannot be right. ``observations``, ``medians``: what tasks see of event time. ``watermarks``: the flow's.
``operator_clocks``: those of slots, groups and split keys, which the driver keeps. ``key_clocks``: those of keys, which
lie in slots. ``lateness``: whom they find late. ``timers``: what waits for them. ``forgetting``: whose is dropped.
What carries a flow's time between manifest, batch and report is in ``flow/``.
"""

from anabranch.eventtime.durations import parse_duration
from anabranch.eventtime.windows import (
    drop_limit_us,
    first_window_us,
    last_window_ends_us,
    last_window_us,
    lay_windows_over_panes,
    next_window_end_us,
    number_sessions,
    pane_start,
    pane_us,
    window_ends_after_us,
)

__all__ = [
    "drop_limit_us",
    "first_window_us",
    "last_window_ends_us",
    "last_window_us",
    "lay_windows_over_panes",
    "next_window_end_us",
    "number_sessions",
    "pane_start",
    "pane_us",
    "parse_duration",
    "window_ends_after_us",
]
