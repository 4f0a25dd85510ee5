"""Lengths of time as people write them, in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from anabranch.errors import FlowError

_MICROSECONDS_PER_UNIT = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_WRITTEN_UNITS = ("d", "h", "m", "s", "ms", "us")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|m|h|d|w)\s*")
_ACCEPTED = "'500ms', '10s', '2m', '1h30m', '1d', '1w', or a datetime.timedelta"


def parse_duration(length: object, role: str = "duration") -> int:
    """Return a length of time, a string or a timedelta, in microseconds; ``role`` names it in the error.

    A bare number is refused: 10 could be seconds or milliseconds. Negative lengths are refused, too.
    """
    if isinstance(length, timedelta):
        if length < timedelta(0):
            msg = f"the {role} must not be negative, found {length!r}; give {_ACCEPTED}"
            raise FlowError(msg)
        return length // timedelta(microseconds=1)
    if not isinstance(length, str):
        msg = f"the {role} is a {type(length).__name__}, {length!r}; give {_ACCEPTED}"
        raise FlowError(msg)
    text = length.strip()
    length_us = Fraction(0)
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            break
        length_us += Fraction(part[1]) * _MICROSECONDS_PER_UNIT[part[2]]
        position = part.end()
    if position < len(text) or not text:
        msg = f"the {role} {length!r} is not a length of time; give {_ACCEPTED}"
        raise FlowError(msg)
    if length_us.denominator != 1:
        msg = f"the {role} {length!r} is finer than a microsecond; give {_ACCEPTED}"
        raise FlowError(msg)
    return int(length_us)


def describe_duration(length_us: int) -> str:
    """Return a length of time as it would be written in a flow: ``1h30m``."""
    parts = []
    for unit in _WRITTEN_UNITS:
        count, length_us = divmod(length_us, _MICROSECONDS_PER_UNIT[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
