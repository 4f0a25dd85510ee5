"""Plain twins of ``written_times``."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.plain.memory import bytes_at

_DAY = rb"([0-9]{4})-([0-9]{2})-([0-9]{2})"
_TIME = rb"[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?"
_MOMENT = re.compile(_DAY + rb"(?:" + _TIME + rb")?")
_TICKS = re.compile(rb"-?(?:0|[1-9][0-9]{0,18})")
_DATE_BYTES = 10
_LARGEST = 2**63 - 1


def read_day(first: int, end: int) -> tuple[bool, int]:
    """Return whether a text is a day, and its number since 1970."""
    found = re.fullmatch(_DAY, bytes_at(first, end - first))
    try:
        return (False, 0) if found is None else (True, (date(*map(int, found.groups())) - date(1970, 1, 1)).days)
    except ValueError:
        return False, 0


def read_moment(first: int, end: int, kept_digits: int) -> tuple[bool, int]:
    """Return whether a text is a time, and its ticks; one without an offset is UTC."""
    text = bytes_at(first, end - first)
    if len(text) < _DATE_BYTES or text[4:5] != b"-":
        is_number = _TICKS.fullmatch(text) is not None and abs(int(text)) <= _LARGEST
        return is_number, int(text) if is_number else 0
    found = _MOMENT.fullmatch(text)
    if found is None:
        return False, 0
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = (part or b"0" for part in found.groups())
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second))
        ahead = datetime(1, 1, 1, int(hours), int(minutes)) - datetime(1, 1, 1)
    except ValueError:
        return False, 0
    passed = moment - datetime(1970, 1, 1) - (-ahead if sign == b"-" else ahead)
    seconds, per_second = passed // timedelta(seconds=1), 10**kept_digits
    if abs(seconds) > _LARGEST // per_second - 1:
        return False, 0
    return True, seconds * per_second + int(fraction.ljust(kept_digits, b"0")[:kept_digits] or b"0")


def read_moments(ends: NDArray[np.int64], texts: NDArray[np.uint8], kept_digits: int, ticks: NDArray[np.int64]) -> int:
    """Read times that lie behind each other; return how many were read before the first that is none."""
    first = texts.ctypes.data
    for number, end in enumerate(ends.tolist()):
        last = texts.ctypes.data + end - 1
        if last > first:
            fits, ticks[number] = read_moment(first, last, kept_digits)
            if not fits:
                return number
        first = last + 1
    return len(ends)
