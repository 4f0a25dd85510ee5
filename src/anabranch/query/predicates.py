"""What a join's predicate asks for, as far as rows can be searched by it: equal columns, and numbers that are near.

What is found here only spares the work of trying pairs: every pair that is found is held against the predicate
itself. So bounds may be too wide, never too narrow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

import polars as pl

from anabranch.model.joins import LEFT, RIGHT, Band

Number = int | float | timedelta
Sides = tuple[Collection[str], Collection[str]]
"""The columns of the left and of the right input, as results call them."""

_SURELY_AS_LONG = re.compile(r"-?(\d+(ns|us|ms|s|m|h))+")
"""Lengths of time that are as long at any time; a month is not."""
_COMPARISONS: Sequence[tuple[Callable[[pl.Expr, pl.Expr], pl.Expr], str, bool, bool]] = (
    (pl.Expr.le, "sql_lt_eq", True, False),
    (pl.Expr.lt, "sql_lt", True, False),
    (pl.Expr.ge, "sql_gt_eq", False, True),
    (pl.Expr.gt, "sql_gt", False, True),
    (pl.Expr.eq, "sql_eq", True, True),
)
"""A comparison, what it is called where Polars' SQL compares with a number that has a point, and whether it says that
the first is at most the second, or the second at most the first."""
_CLOSED = ("both", "left", "right", "none")
_UNITS_A_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_SECONDS_A_DAY = 86_400
_SAFE_TO_ADD_TO = (pl.Int32, pl.Int64)
"""Integers of fewer bits, or without a sign, soon wrap around when something is added to them or taken from them."""


def split_conjuncts(predicate: pl.Expr) -> list[pl.Expr]:
    """Return the conditions that must all be true."""
    parts = predicate.meta.pop()[::-1]
    if len(parts) == 2 and _is(predicate, parts[0] & parts[1]):
        return [one for part in parts for one in split_conjuncts(part)]
    return [predicate]


def find_equal_columns(conditions: Sequence[pl.Expr], sides: Sides) -> list[tuple[int, str, str]]:
    """Return the conditions, by their places, that say that a column of each side are equal, and these columns."""
    found = []
    for place, condition in enumerate(conditions):
        parts = condition.meta.pop()[::-1]
        if (
            len(parts) != 2
            or not all(part.meta.is_column() for part in parts)
            or not _is(condition, parts[0] == parts[1])
        ):
            continue
        names = [part.meta.output_name() for part in parts]
        for left, right in (names, names[::-1]):
            if left in sides[LEFT] and right in sides[RIGHT]:
                found.append((place, left, right))
                break
    return found


def find_band(conditions: Sequence[pl.Expr], sides: Sides, schema: Mapping[str, pl.DataType]) -> Band | None:
    """Return the narrowest band that numbers of both sides must be in for the conditions to be true.

    One that is bounded on both sides counts as narrower than one that is not.
    """
    gaps: list[_Gap] = []
    for at_most in (one for condition in conditions for one in _find_orders(condition)):
        gap = _find_gap(at_most, sides)
        if gap is None:
            continue
        for place, known in enumerate(gaps):
            if _is(known.left, gap.left) and _is(known.right, gap.right):
                gaps[place] = replace(known, bounds=(*known.bounds, *gap.bounds))
                break
        else:
            gaps.append(gap)
    bands = [band for gap in gaps if (band := _make_band(gap, schema)) is not None]
    return next((band for band in bands if band.is_closed), bands[0] if bands else None)


# -- inside ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AtMost:
    """That one expression is at most another one."""

    less: pl.Expr
    more: pl.Expr


@dataclass(frozen=True, slots=True)
class _Gap:
    """How far apart expressions of both sides may be: the right one less the left one."""

    left: pl.Expr
    right: pl.Expr
    bounds: tuple[_Bound, ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    """One end of a gap."""

    number: Number
    is_most: bool
    """Whether the gap is at most so much, or at least."""
    for_all: bool = True
    """Whether it holds of all values; else not where a difference is no number, or would be less than 0 and cannot:
    both are more than any number."""


def _find_orders(condition: pl.Expr) -> Iterator[_AtMost]:
    """Yield what a condition says of which expression is at most which other."""
    parts = condition.meta.pop()[::-1]
    if len(parts) == 3:
        value, low, high = parts
        if any(_is(condition, value.is_between(low, high, closed=closed)) for closed in _CLOSED):  # type: ignore[arg-type]
            yield _AtMost(low, value)
            yield _AtMost(value, high)
    if len(parts) != 2:
        return
    first, second = parts
    for compare, in_sql, rises, falls in _COMPARISONS:
        if _is(condition, compare(first, second)) or _calls(condition, in_sql, first, second):
            if rises:
                yield from _open_absolute(_AtMost(first, second))
            if falls:
                yield from _open_absolute(_AtMost(second, first))


def _open_absolute(order: _AtMost) -> Iterator[_AtMost]:
    """Yield the same; of |a - b| at most c, that a - b and b - a are."""
    inner = order.less.meta.pop()
    if len(inner) == 1 and _is(order.less, inner[0].abs()):
        parts = inner[0].meta.pop()[::-1]
        if len(parts) == 2 and _is(inner[0], parts[0] - parts[1]):
            yield _AtMost(inner[0], order.more)
            yield _AtMost(parts[1] - parts[0], order.more)
        return
    yield order


def _find_gap(order: _AtMost, sides: Sides) -> _Gap | None:
    less_side, more_side = _side_of(order.less, sides), _side_of(order.more, sides)
    if less_side is not None and more_side is not None and less_side != more_side:
        (less, less_more), (more, more_more) = _divide(order.less), _divide(order.more)
        return _bound(less, less_side, more, _subtract(more_more, less_more))
    limit = _literal(order.more)
    parts = order.less.meta.pop()[::-1]
    if limit is not None and len(parts) == 2 and _is(order.less, parts[0] - parts[1]):
        return _bound_difference(parts, limit, sides)
    limit = _literal(order.less)
    parts = order.more.meta.pop()[::-1]
    if limit is not None and len(parts) == 2 and _is(order.more, parts[0] - parts[1]):
        gap = _bound_difference(parts[::-1], -limit, sides)
        return None if gap is None else replace(gap, bounds=(replace(gap.bounds[0], for_all=False),))
    return None


def _bound_difference(parts: Sequence[pl.Expr], limit: Number, sides: Sides) -> _Gap | None:
    """Return what it says that the first part less the second is at most something."""
    first_side, second_side = (_side_of(part, sides) for part in parts)
    if first_side is None or second_side is None or first_side == second_side:
        return None
    (first, first_more), (second, second_more) = (_divide(part) for part in parts)
    room = _subtract(second_more, first_more)
    return None if room is None else _bound(first, first_side, second, _subtract(limit, -room))


def _bound(less: pl.Expr, less_side: int, more: pl.Expr, room: Number | None) -> _Gap | None:
    """Return that one expression less the other is at most so much."""
    if room is None:
        return None
    if less_side == LEFT:
        return _Gap(less, more, (_Bound(-room, is_most=False),))
    return _Gap(more, less, (_Bound(room, is_most=True),))


def _side_of(expression: pl.Expr, sides: Sides) -> int | None:
    """Return the side that all columns of an expression are of, if it has any."""
    names = set(expression.meta.root_names())
    return next((number for number in (LEFT, RIGHT) if names and names <= set(sides[number])), None)


def _divide(expression: pl.Expr) -> tuple[pl.Expr, Number]:
    """Return an expression without the constants that are added to it or taken from it, and their sum."""
    parts = expression.meta.pop()[::-1]
    if len(parts) != 2:
        return expression, 0
    first, second = parts
    if _is(expression, first.dt.offset_by(second)):
        moved = _offset(second)
        return (expression, 0) if moved is None else _add(first, moved, expression)
    adds = _is(expression, first + second) or _calls(expression, "sql_add", first, second)
    subtracts = _is(expression, first - second) or _calls(expression, "sql_sub", first, second)
    for base, constant, is_made, sign in (
        (first, second, adds, 1),
        (second, first, adds, 1),
        (first, second, subtracts, -1),
    ):
        number = _literal(constant)
        if number is not None and is_made:
            return _add(base, sign * number, expression)
    return expression, 0


def _add(base: pl.Expr, number: Number, whole: pl.Expr) -> tuple[pl.Expr, Number]:
    inner, known = _divide(base)
    total = _subtract(number, -known)
    return (whole, 0) if total is None else (inner, total)


def _subtract(one: Number, other: Number) -> Number | None:
    """Return a difference; None between a number and a length of time."""
    if isinstance(one, timedelta) or isinstance(other, timedelta):
        lengths = [value or timedelta(0) for value in (one, other)]
        if not all(isinstance(length, timedelta) for length in lengths):
            return None
        return lengths[0] - lengths[1]  # type: ignore[operator]
    return one - other


def _literal(expression: pl.Expr) -> Number | None:
    """Return the number or length of time that an expression is, if it is one."""
    if expression.meta.root_names():
        return None
    try:
        value = pl.select(expression).item()
    except (pl.exceptions.PolarsError, ValueError):
        return None
    value = float(value) if isinstance(value, Decimal) else value
    return value if isinstance(value, int | float | timedelta) and not isinstance(value, bool) else None


def _offset(expression: pl.Expr) -> timedelta | None:
    if expression.meta.root_names():
        return None
    text = pl.select(expression).item()
    if not isinstance(text, str) or not _SURELY_AS_LONG.fullmatch(text):
        return None
    start = datetime(2000, 1, 1)
    moved: datetime = pl.select(pl.lit(start).dt.offset_by(text)).item()
    return moved - start


def _make_band(gap: _Gap, schema: Mapping[str, pl.DataType]) -> Band | None:
    """Return a gap as a band of numbers; None where its expressions have no order that can be searched."""
    shown = pl.DataFrame(schema=dict(schema)).select(gap.left.alias("left"), gap.right.alias("right")).schema
    left, right = shown["left"], shown["right"]
    is_time = left.is_temporal() and left == right and left != pl.Time
    is_moved = any(bound.number for bound in gap.bounds)
    if not is_time and not all(_is_number(dtype, is_moved=is_moved) for dtype in (left, right)):
        return None
    whole = is_time or (left.is_integer() and right.is_integer())
    may_be_odd = not whole or left.is_unsigned_integer() or right.is_unsigned_integer()
    ends: dict[bool, list[float]] = {True: [], False: []}
    for bound in gap.bounds:
        number = _in_units(bound.number, left, is_time)
        if number is not None and (bound.for_all or not may_be_odd):
            ends[bound.is_most].append(number)
    if not ends[True] and not ends[False]:
        return None
    low, high = max(ends[False], default=None), min(ends[True], default=None)
    if whole:
        # Whoever rounds outwards keeps all that may be in the band.
        low, high = (None if low is None else math.floor(low)), (None if high is None else math.ceil(high))
    return Band(gap.left, gap.right, low, high, whole, single=pl.Float32 in (left, right))


def _is_number(dtype: pl.DataType, *, is_moved: bool) -> bool:
    if dtype.is_float():
        return True
    if not dtype.is_integer() or dtype in (pl.UInt64, pl.Int128, pl.UInt128):
        return False
    return not is_moved or dtype in _SAFE_TO_ADD_TO


def _in_units(number: Number, dtype: pl.DataType, is_time: bool) -> float | None:
    """Return a bound in the units that values of a type are stored in."""
    if not is_time:
        return None if isinstance(number, timedelta) else number
    if not isinstance(number, timedelta):
        return None if number else 0
    micros = number // timedelta(microseconds=1)
    if dtype == pl.Date:
        return micros / (_SECONDS_A_DAY * 10**6)
    assert isinstance(dtype, pl.Datetime | pl.Duration)
    return micros * _UNITS_A_SECOND[dtype.time_unit] / 10**6


def _calls(expression: pl.Expr, function: str, first: pl.Expr, second: pl.Expr) -> bool:
    """Say whether an expression is a call of a function that only Polars' SQL knows."""
    return str(expression) == f"{first}.{function}([{second}])"


def _is(one: pl.Expr, other: pl.Expr) -> bool:
    return bool(one.meta.eq(other))
