"""Numbers as people read them: counts, bytes, durations, moments, small bars."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_SPARKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_count(count: float) -> str:
    """Return 1234567 as ``1,234,567``, and from ten million on as ``12.3 M``."""
    if abs(count) < 10_000_000:
        return f"{count:,.0f}"
    for unit, size in (("M", 1e6), ("G", 1e9)):
        if abs(count) < 1000 * size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e12:,.1f} T"


def format_bytes(size: float) -> str:
    """Return a size in bytes with the decimal unit that keeps it short: ``1.2 MB``."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:,.1f} TB"


def format_seconds(seconds: float) -> str:
    """Return a duration in the two units that matter: ``840 ms``, ``8.4 s``, ``2 m 05 s``, ``3 h 20 m``, ``12 d``."""
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400:,} d"


def format_elapsed(seconds: float) -> str:
    """Return a stopwatch's time: ``0:42``, ``1:02:03``."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def format_moment(microseconds: int) -> str:
    """Return a moment in UTC: ``2026-01-01 00:00:10Z``, with milliseconds if there are any."""
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        # Drained flows stand at the end of time.
        return "the end of time" if microseconds > 0 else "the beginning of time"
    milliseconds = moment.microsecond // 1000
    fraction = f".{milliseconds:03d}" if milliseconds else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}Z"


def draw_spark(values: Sequence[float], width: int) -> str:
    """Return the last values as a line of small columns, the largest the highest; nothing is blank."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return " " * len(shown)
    return "".join(" " if value <= 0 else _SPARKS[min(7, int(value / top * 8))] for value in shown)


def draw_bar(value: float, largest: float, width: int) -> str:
    """Return a bar of eighths of characters, as long as the value is beside the largest."""
    eighths = round(8 * width * value / largest) if largest > 0 else 0
    bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return bar or ("▏" if value > 0 else "")
