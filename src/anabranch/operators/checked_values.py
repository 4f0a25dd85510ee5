"""Python values that must fit a Polars type, found out when they are stored, not when a batch ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import numpy as np
import polars as pl

Check = Callable[[Any], Any]
"""Returns a value as it will be read again; raises ``TypeError`` that says what was found and what fits."""


def make_check(dtype: pl.DataType) -> Check:
    """Return the check for a type.

    What it returns is what a later batch would read: a number in Float32 is rounded at once, so that results do not
    depend on where the stream was cut into batches.
    """
    if dtype.is_integer():
        return partial(_check_whole, *_limits(dtype), dtype)
    if dtype == pl.Float64:
        return partial(_check_real, dtype)
    simple = {pl.String: str, pl.Boolean: bool, pl.Binary: bytes}
    if type(dtype) in simple:
        return partial(_check_instance, simple[type(dtype)], dtype)
    if dtype == pl.Date:
        return partial(_check_date, dtype)
    if dtype == pl.Datetime("us"):
        return partial(_check_naive, dtype)
    return partial(_check_by_polars, dtype)


def describe_value(value: Any) -> str:
    """Return a value and its type, short enough for an error."""
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _limits(dtype: pl.DataType) -> tuple[int, int]:
    if dtype in (pl.Int128, pl.UInt128):
        return (0, 2**128 - 1) if dtype == pl.UInt128 else (-(2**127), 2**127 - 1)
    limits = np.iinfo(str(dtype).lower())
    return int(limits.min), int(limits.max)


def _check_whole(lowest: int, highest: int, dtype: pl.DataType, value: Any) -> Any:
    if type(value) is int and lowest <= value <= highest:
        return value
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not lowest <= value <= highest:
        raise _misfit(value, dtype)
    return int(value)


def _check_real(dtype: pl.DataType, value: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise _misfit(value, dtype)
    return float(value)


def _check_instance(expected: type, dtype: pl.DataType, value: Any) -> Any:
    if not isinstance(value, expected):
        raise _misfit(value, dtype)
    return value


def _check_date(dtype: pl.DataType, value: Any) -> Any:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _misfit(value, dtype)
    return value


def _check_naive(dtype: pl.DataType, value: Any) -> Any:
    if not isinstance(value, datetime):
        raise _misfit(value, dtype)
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _check_by_polars(dtype: pl.DataType, value: Any) -> Any:
    try:
        stored = pl.Series([value], dtype=dtype, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _misfit(value, dtype) from error
    if stored.dtype != dtype:
        raise _misfit(value, dtype)
    return stored.to_list()[0]


def _misfit(value: Any, dtype: pl.DataType) -> TypeError:
    return TypeError(f"{describe_value(value)} does not fit {dtype}")
