"""What ``window()``, ``session()`` and ``count_window()`` are told, checked and brought into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from anabranch.errors import FlowError
from anabranch.eventtime import parse_duration
from anabranch.model import (
    EMISSION,
    LATE_POLICIES,
    WINDOW_END,
    WINDOW_NUMBER,
    WINDOW_START,
    CountWindowSpec,
    LatePolicy,
    WindowSpec,
)
from anabranch.model.windows import UNFILLED_POLICIES, UnfilledPolicy
from anabranch.query.event_times import Duration
from anabranch.query.nodes import Node, Stateful, Union


def make_window(
    size: Duration,
    every: Duration | None,
    offset: Duration,
    late: LatePolicy,
    lateness: Duration,
    early: Duration | None,
) -> WindowSpec:
    """Return a tumbling or sliding window, or raise ``FlowError`` if there cannot be such a one."""
    size_us = parse_duration(size, "window's size")
    slide_us = size_us if every is None else parse_duration(every, "window's every")
    if size_us <= 0 or slide_us <= 0 or slide_us > size_us:
        msg = f"window: size {size!r} and every {every!r} must be positive, and every at most the size"
        raise FlowError(msg)
    kind: Literal["tumbling", "sliding"] = "tumbling" if slide_us == size_us else "sliding"
    window = WindowSpec(kind, size_us, slide_us, parse_duration(offset, "window's offset"))
    return replace(_with_lateness(window, "window", late, lateness), early_us=_read_early("window", early))


def make_session(gap: Duration, late: LatePolicy, lateness: Duration, early: Duration | None = None) -> WindowSpec:
    """Return a session window, or raise ``FlowError`` if there cannot be such a one."""
    gap_us = parse_duration(gap, "session's gap")
    if gap_us <= 0:
        msg = f"session: the gap must be positive, got {gap!r}"
        raise FlowError(msg)
    session = _with_lateness(WindowSpec("session", gap_us, gap_us), "session", late, lateness)
    return replace(session, early_us=_read_early("session", early))


def make_count_window(
    rows: int, every: int | None, idle: Duration | None = None, unfilled: UnfilledPolicy = "emit"
) -> CountWindowSpec:
    """Return a count window, or raise ``FlowError`` if there cannot be such a one."""
    window = CountWindowSpec(rows, rows if every is None else every)
    for number in (window.size_rows, window.slide_rows):
        if isinstance(number, bool) or not isinstance(number, int):
            msg = f"count_window goes by rows, got {number!r}; windows of a length of time are .window('10s')"
            raise FlowError(msg)
    if not 1 <= window.slide_rows <= window.size_rows:
        msg = f"count_window: rows {rows} and every {every} must be at least 1, and every at most the rows"
        raise FlowError(msg)
    if unfilled not in UNFILLED_POLICIES:
        choices = ", ".join(UNFILLED_POLICIES)
        msg = f"count_window: unfilled={unfilled!r} is unknown; windows that silent keys had begun can be {choices}"
        raise FlowError(msg)
    idle_us = None if idle is None else parse_duration(idle, "count_window's idle")
    if idle_us is not None and idle_us <= 0:
        msg = f"count_window: idle must be longer than nothing, got {idle!r}; leave it out to keep all keys"
        raise FlowError(msg)
    return replace(window, idle_us=idle_us, unfilled=unfilled)


def check_key_names(where: str, keys: Sequence[str], window: WindowSpec | CountWindowSpec) -> None:
    """Raise ``FlowError`` if a key has the name of a column that windows add."""
    added = [WINDOW_NUMBER]
    if isinstance(window, WindowSpec):
        added = [WINDOW_START, WINDOW_END, *([EMISSION] if window.marks_emissions else [])]
    for key in keys:
        if key in added:
            msg = f"{where}: the key {key!r} would be written over by the window's own column; rename it first"
            raise FlowError(msg)


def _read_early(where: str, early: Duration | None) -> int | None:
    """Return how often results so far are emitted."""
    early_us = None if early is None else parse_duration(early, f"{where}'s early")
    if early_us is not None and early_us <= 0:
        msg = f"{where}: early must be positive, got {early!r}"
        raise FlowError(msg)
    return early_us


def _with_lateness(window: WindowSpec, where: str, late: LatePolicy, lateness: Duration) -> WindowSpec:
    """Return the window with what happens to late rows."""
    if late not in LATE_POLICIES:
        msg = f"{where}: late={late!r} is unknown; late rows can be {', '.join(LATE_POLICIES)}"
        raise FlowError(msg)
    lateness_us = parse_duration(lateness, f"{where}'s lateness")
    if (late == "update") != (lateness_us > 0):
        msg = (
            f'{where}: late="update" and a lateness belong together: late="update", lateness="1m" changes results '
            f"for a minute after their window closed; got late={late!r}, lateness={lateness!r}"
        )
        raise FlowError(msg)
    return replace(window, late=late, lateness_us=lateness_us)


def find_lost_time(nodes: Mapping[int, Node], node: Node) -> str:
    """Return where a stream lost its event time, or that it never had one, with what to do."""
    while node.inputs:
        above = [nodes[source] for source in node.inputs]
        known = [source.time for source in above if source.time is not None]
        if isinstance(node.operation, Union) and known:
            return (
                "the united streams have different watermarks; give them the same, or call .watermark(…) behind union()"
            )
        if isinstance(node.operation, Stateful):
            break
        if known:
            column = known[0].column
            return f"{node.label} leaves no {column!r} to follow; keep it, or call .watermark(…) behind it"
        node = above[0]
    if isinstance(node.operation, Stateful) and WINDOW_END in node.schema:
        return (
            "behind windows of keys that have their own time, say it anew, by the last instant of a window: "
            """.with_columns(at="window_end - INTERVAL '1us'").watermark("at", …)"""
        )
    return 'call .watermark("ts", delay="2s") before, and keep its column'
