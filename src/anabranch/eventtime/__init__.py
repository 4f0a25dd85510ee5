"""Event time: lengths of time, windows, panes and sessions, as Polars expressions."""

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
