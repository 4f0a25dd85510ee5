"""Which Python values a Polars type gives back exactly as they were put in: those need no trip through Polars."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import polars as pl

Keeps = Callable[[Any], bool]
"""Says whether a value comes back as it is; where it says no, it may all the same."""

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_FIRST_YEAR, _LAST_YEAR = 1678, 2261
"""Those that nanoseconds reach from end to end."""
_MOST_DAYS = 100_000
"""Durations that every unit reaches."""


def make_keeps(dtype: pl.DataType) -> Keeps | None:
    """Return what says it of values of a type; None if only Polars knows."""
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is None:
        return partial(_keeps_moment, dtype.time_unit)
    if isinstance(dtype, pl.Duration):
        return partial(_keeps_duration, dtype.time_unit)
    if isinstance(dtype, pl.Decimal):
        return partial(_keeps_decimal, dtype.precision, -dtype.scale)
    if isinstance(dtype, pl.Enum):
        return partial(_keeps_category, frozenset(dtype.categories.to_list()))
    if dtype == pl.Float32:
        return _keeps_real
    return _keeps_time if dtype == pl.Time else None


def _keeps_moment(unit: str, value: Any) -> bool:
    if type(value) is not datetime or value.tzinfo is not None or value.fold:
        return False
    return value.microsecond % 1000 == 0 if unit == "ms" else _FIRST_YEAR <= value.year <= _LAST_YEAR


def _keeps_duration(unit: str, value: Any) -> bool:
    if type(value) is not timedelta or abs(value.days) > _MOST_DAYS:
        return False
    return unit != "ms" or value.microseconds % 1000 == 0


def _keeps_decimal(precision: int, exponent: int, value: Any) -> bool:
    if type(value) is not Decimal:
        return False
    sign, digits, found = value.as_tuple()
    # There is no negative zero among those of Polars.
    return found == exponent and len(digits) <= precision and not (sign and digits == (0,))


def _keeps_category(categories: frozenset[str], value: Any) -> bool:
    return type(value) is str and value in categories


def _keeps_real(value: Any) -> bool:
    return type(value) is float and abs(value) <= _LARGEST_FLOAT32 and float(np.float32(value)) == value


def _keeps_time(value: Any) -> bool:
    return type(value) is time and value.tzinfo is None and not value.fold
