"""Times as they are written, read by compiled code. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.byte_words import MINUS, PLUS, POINT, ZERO, byte_at
from anabranch.compiled.jit import compile_loop
from anabranch.compiled.written_numbers import MOST_INTEGER_DIGITS, read_digits

_DASH, _COLON, _LARGE_T, _BLANK, _LARGE_Z = b"-:T Z"
_LARGEST = np.uint64(2**63 - 1)
_POWERS = np.array([10**power for power in range(10)], np.int64)
_MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_DATE_BYTES = 10
_NO_PAIR = 100


def _read_pair(at: int) -> Any:
    """Return what two digits are, a number above 99 if one is none."""
    tens, ones = np.uint8(byte_at(at) - ZERO), np.uint8(byte_at(at + 1) - ZERO)
    return np.int64(tens) * 10 + np.int64(ones) if tens <= 9 and ones <= 9 else _NO_PAIR


_pair = compile_loop(_read_pair)


def _read_date(at: int) -> Any:
    """Return whether there is a day such as 2026-01-31, and its number since 1970."""
    century, year, month, day = _pair(at), _pair(at + 2), _pair(at + 5), _pair(at + 8)
    if byte_at(at + 4) != _DASH or byte_at(at + 7) != _DASH:
        return False, 0
    if century >= _NO_PAIR or year >= _NO_PAIR or not 1 <= month <= 12:
        return False, 0
    year += century * 100
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year == 0 or day == 0 or day > _MONTH_DAYS[month] + (month == 2 and is_leap):
        return False, 0
    # Years that begin in March: the leap day comes last, so months have fixed starts.
    marched = year - (month <= 2)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return True, marched * 365 + marched // 4 - marched // 100 + marched // 400 + day_of_year - 719_468


_date = compile_loop(_read_date)


def _read_day(first: int, end: int) -> Any:
    """Return whether a text is a day, and its number since 1970."""
    if end - first != _DATE_BYTES:
        return False, 0
    return _date(first)


read_day = compile_loop(_read_day)


def _read_moment(  # noqa: PLR0911, PLR0912 - form after form
    first: int, end: int, kept_digits: int
) -> Any:
    """Return whether a text is a time as ``text_values`` knows them, and its ticks; one without an offset is UTC.

    Every form is read, but for numbers with leading zeros and what does not fit into 64 bits.
    """
    size = end - first
    if size < _DATE_BYTES or byte_at(first + 4) != _DASH:
        negative = byte_at(first) == MINUS
        at = first + negative
        behind, number = read_digits(at, np.uint64(0))
        if behind != end or not at < end <= at + MOST_INTEGER_DIGITS or number > _LARGEST:
            return False, 0
        if end > at + 1 and byte_at(at) == ZERO:
            return False, 0
        return True, -np.int64(number) if negative else np.int64(number)
    is_day, days = _date(first)
    if not is_day:
        return False, 0
    seconds = days * 86_400
    fraction: Any = 0
    at = first + _DATE_BYTES
    if at < end:
        byte = byte_at(at)
        if (byte not in (_LARGE_T, _BLANK)) or end - at < 6 or byte_at(at + 3) != _COLON:
            return False, 0
        hour, minute = _pair(at + 1), _pair(at + 4)
        if hour > 23 or minute > 59:
            return False, 0
        seconds += hour * 3600 + minute * 60
        at += 6
        if at < end and byte_at(at) == _COLON:
            second = _pair(at + 1)
            if second > 59 or end - at < 3:
                return False, 0
            seconds += second
            at += 3
            if at < end and byte_at(at) == POINT:
                at += 1
                digits_at = at
                while at < end and np.uint8(byte_at(at) - ZERO) <= 9:
                    if at - digits_at < kept_digits:
                        fraction = fraction * 10 + np.int64(byte_at(at) - ZERO)
                    at += 1
                if not 1 <= at - digits_at <= 9:
                    return False, 0
                fraction *= _POWERS[max(0, kept_digits - (at - digits_at))]
        if at < end:
            sign = byte_at(at)
            if sign == _LARGE_Z:
                at += 1
            elif sign in (PLUS, MINUS):
                minutes_at = at + 4 if end - at == 6 and byte_at(at + 3) == _COLON else at + 3
                if end - minutes_at != 2:
                    return False, 0
                hour, minute = _pair(at + 1), _pair(minutes_at)
                if hour > 23 or minute > 59:
                    return False, 0
                offset_seconds = hour * 3600 + minute * 60
                seconds += offset_seconds if sign == MINUS else -offset_seconds
                at = end
            if at != end:
                return False, 0
    per_second = _POWERS[kept_digits]
    most_seconds = np.int64(_LARGEST) // per_second - 1
    if seconds < -most_seconds or seconds > most_seconds:
        return False, 0
    return True, seconds * per_second + fraction


read_moment = compile_loop(_read_moment)


def _read_texts(ends: NDArray[np.int64], texts: NDArray[np.uint8], kept_digits: int, ticks: NDArray[np.int64]) -> int:
    """Read times that lie behind each other, each with a byte behind it that is no digit; return how many were read.

    The first that is no time, or is left to others, ends it. Behind the last one, 32 bytes may be looked at.
    """
    # Signed: an unsigned address and a signed place would be added as floats.
    memory = np.int64(texts.ctypes.data)
    first = memory
    for number in range(len(ends)):
        end = memory + ends[number] - 1
        if end > first:
            fits, ticks[number] = read_moment(first, end, kept_digits)
            if not fits:
                return number
        first = end + 1
    return len(ends)


read_moments = compile_loop(_read_texts)
