"""How columns and lengths of time read in labels and errors."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.eventtime.durations import describe_duration
from anabranch.model import Clock, CountWindowSpec, WindowSpec


def describe_window(window: WindowSpec | CountWindowSpec) -> str:
    """Return a window in words: ``windows of 10s every 5s``."""
    if isinstance(window, CountWindowSpec):
        every = f" every {window.slide_rows}" if window.slide_rows < window.size_rows else ""
        return f"windows of {window.size_rows} rows{every}"
    size = describe_duration(window.size_us)
    rest = ""
    if window.late != "drop":
        rest += f", late rows {'update' if window.late == 'update' else 'aside'}"
    if window.lateness_us:
        rest += f" for {describe_duration(window.lateness_us)}"
    if window.early_us is not None:
        rest += f", early every {describe_duration(window.early_us)}"
    if window.kind == "session":
        return f"sessions of gap {size}{rest}"
    every = f" every {describe_duration(window.slide_us)}" if window.kind == "sliding" else ""
    offset = f" from {describe_duration(window.offset_us)}" if window.offset_us else ""
    return f"windows of {size}{every}{offset}{rest}"


def describe_clock(clock: Clock) -> str:
    """Return a watermark's clock in words: ``delay 2s per key``."""
    parts = [f"delay {describe_duration(clock.delay_us)}"]
    if clock.per != "flow":
        parts[0] += f" per {clock.per}" + (f" of {clock.groups}" if clock.per == "group" else "")
    if clock.idle_us is not None:
        parts.append(f"idle after {describe_duration(clock.idle_us)}")
    if clock.forget_us is not None:
        parts.append(f"forgotten after {describe_duration(clock.forget_us)}")
    if clock.behind_us is not None:
        parts.append(f"at most {describe_duration(clock.behind_us)} behind")
    return ", ".join(parts)


def describe_columns(schema: Mapping[str, pl.DataType]) -> str:
    """Return columns with their types, in order."""
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items()) or "no columns"
