"""Python values that must fit a Polars type, found out when they are stored, not when a batch ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import polars as pl

MISFITS = (
    TypeError,
    ValueError,
    ArithmeticError,
    RuntimeError,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)
"""What Polars and Python raise about values that do not fit: a Decimal of NaN, for one, makes Polars panic."""
Check = Callable[[Any], Any]
"""Returns a value as it will be read again; raises ``TypeError`` that says what was found and what fits."""
_Keeps = Callable[[Any], bool]
"""Says whether a value comes back as it was put in; where it says no, it may all the same."""

_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_FIRST_YEAR, _LAST_YEAR = 1678, 2261
"""Those that nanoseconds reach from end to end."""
_MOST_DAYS = 100_000
"""Durations that every unit reaches."""


def make_check(dtype: pl.DataType) -> Check:
    """Return the check for a type.

    What it returns is what a later batch would read: a number in Float32 is rounded at once, so that results do not
    depend on where the stream was cut into batches. Lists and structs come back as plain copies, checked at every
    depth: Polars cuts 1.5 in a struct's Int64 to 1, and forgets fields that it does not know.
    """
    if dtype.is_nested():
        return _make_nested_check(dtype)
    if dtype.is_integer():
        return partial(_check_whole, *_limits(dtype), dtype)
    simple: dict[pl.DataType, Callable[[pl.DataType, Any], Any]] = {
        pl.Float64(): _check_real,
        pl.String(): _check_text,
        pl.Binary(): _check_bytes,
        pl.Boolean(): _check_truth,
        pl.Date(): _check_date,
        pl.Datetime("us"): _check_naive,
    }
    if dtype in simple:
        return partial(simple[dtype], dtype)
    keeps = _make_keeps(dtype)
    return partial(_check_by_polars, dtype) if keeps is None else partial(_check_unchanged, keeps, dtype)


def _make_nested_check(dtype: pl.DataType) -> Check:
    if isinstance(dtype, pl.Struct):
        checks = {field.name: or_null(make_check(_instance(field.dtype))) for field in dtype.fields}
        return partial(_check_struct, checks, dtype)
    if isinstance(dtype, pl.List | pl.Array):
        width = dtype.size if isinstance(dtype, pl.Array) else None
        return partial(_check_list, _check_for_all(_instance(dtype.inner)), width, dtype)
    return partial(_check_by_polars, dtype)


def or_null(check: Check) -> Check:
    """Return a check that null passes, too."""
    return lambda value: None if value is None else check(value)


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
    try:
        return float(value)
    except OverflowError as error:
        raise _misfit(value, dtype) from error


# Of a class below Python's own, such as an enumeration of strings or a timestamp of pandas, a later batch reads
# Python's.


def _check_text(dtype: pl.DataType, value: Any) -> Any:
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise _misfit(value, dtype)
    return str.__str__(value)


def _check_bytes(dtype: pl.DataType, value: Any) -> Any:
    if type(value) is bytes:
        return value
    if not isinstance(value, bytes):
        raise _misfit(value, dtype)
    return b"".join((value,))


def _check_truth(dtype: pl.DataType, value: Any) -> Any:
    if not isinstance(value, bool):
        raise _misfit(value, dtype)
    return value


def _check_date(dtype: pl.DataType, value: Any) -> Any:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise _misfit(value, dtype)
    return value if type(value) is date else date(value.year, value.month, value.day)


def _check_naive(dtype: pl.DataType, value: Any) -> Any:
    if not isinstance(value, datetime):
        raise _misfit(value, dtype)
    try:
        naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise _misfit(value, dtype) from error
    if type(naive) is datetime and not naive.fold:
        return naive
    return datetime.combine(date(naive.year, naive.month, naive.day), naive.time().replace(fold=0))


def _check_struct(checks: Mapping[str, Check], dtype: pl.DataType, value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        # Dataclasses and named tuples, among others.
        value = _check_by_polars(dtype, value)
    strangers = [name for name in value if name not in checks]
    if strangers:
        msg = f"{describe_value(value)} does not fit {dtype}: it has no field {strangers[0]!r}"
        raise TypeError(msg)
    return {name: check(value.get(name)) for name, check in checks.items()}


def _check_list(check_all: Check, width: int | None, dtype: pl.DataType, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, np.ndarray | pl.Series):
        value = value.tolist() if isinstance(value, np.ndarray) else value.to_list()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _misfit(value, dtype)
    if width is not None and len(value) != width:
        raise _misfit(value, dtype)
    return check_all(value)


def _check_for_all(dtype: pl.DataType) -> Check:
    """Return the check for all values of a list at once."""
    check = make_check(dtype)
    if getattr(check, "func", None) is _check_by_polars:
        return lambda values: _convert_by_polars(dtype, list(values))
    check = or_null(check)
    return lambda values: [check(value) for value in values]


def _check_unchanged(keeps: _Keeps, dtype: pl.DataType, value: Any) -> Any:
    return value if keeps(value) else _check_by_polars(dtype, value)


def _make_keeps(dtype: pl.DataType) -> _Keeps | None:
    """Return what says which values of a type Polars gives back as they were put in; None if only Polars knows."""
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


def _check_by_polars(dtype: pl.DataType, value: Any) -> Any:
    return _convert_by_polars(dtype, [value])[0]


def _convert_by_polars(dtype: pl.DataType, values: list[Any]) -> list[Any]:
    described = values[0] if len(values) == 1 else values
    try:
        stored = pl.Series(values, dtype=dtype, strict=True)
        read = stored.to_list()
    except MISFITS as error:
        raise _misfit(described, dtype) from error
    if stored.dtype != dtype:
        raise _misfit(described, dtype)
    return read


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made


def _misfit(value: Any, dtype: pl.DataType) -> TypeError:
    return TypeError(f"{describe_value(value)} does not fit {dtype}")
