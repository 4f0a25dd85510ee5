"""Grouping that is fast on whole numbers and whose order is the same in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.operators.aggregates.text_codes import CodedRows, code_columns, code_numbers

_PACKED = "__packed"
# Offsets within a packed number must not overflow on the way.
_LARGEST_PACKED = 2**62
_SMALLEST_INT64, _LARGEST_INT32 = -(2**63), 2**31 - 1
_MOST_PLACES_A_ROW = 2
_MOST_PLACES_A_MERGED_ROW = 8
_WORTH_OPTIMIZING_ROWS = 10_000
"""Optimizing the plan takes 0.1 ms to 0.3 ms, of 0.5 ms to 1.5 ms that few rows take; from here on it is nothing."""


@dataclass(frozen=True, slots=True)
class _Digit:
    """One grouping column as a digit of a packed number."""

    column: str
    dtype: pl.DataType
    lowest: int
    stride: int
    span: int


def group_rows(
    frame: pl.DataFrame,
    by: Sequence[str],
    aggregations: Sequence[pl.Expr],
    strides: Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """Group by columns without nulls; groups come in the order of their first rows.

    That order, unlike one made by sorting afterwards, also settles where text and bytes lie in memory and in files.
    Whole numbers are packed into one: that is more than twice as fast as grouping by two columns. Texts become numbers
    first. ``strides`` names columns whose values are all equal modulo a number (window starts).
    """
    coded = code_keys(frame, by)
    digits = _pack(coded.frame, by, strides or {})
    if digits is None:
        return frame.group_by(by, maintain_order=True).agg(aggregations)
    return coded.restore(
        coded.frame.lazy()
        .with_columns(_pack_digits(digits))
        .group_by(_PACKED, maintain_order=True)
        .agg(aggregations)
        .select(*_unpack_digits(digits), pl.exclude(_PACKED, *by))
        .collect(engine="in-memory", optimizations=_optimizations_for(frame.height))
    )


def _optimizations_for(rows: int) -> pl.QueryOptFlags:
    return pl.QueryOptFlags() if rows >= _WORTH_OPTIMIZING_ROWS else pl.QueryOptFlags.none()


def find_earliest(frame: pl.DataFrame, by: Sequence[str], order: str) -> NDArray[np.integer] | None:
    """Return where the row of each group lies whose ``order`` is smallest, rising; None where this way is closed.

    ``order`` names an Int64 column without nulls that is different in all rows of a group.
    """
    if not WORTH_COMPILED_CODE_ROWS <= frame.height < _LARGEST_INT32:
        return None
    coded = code_keys(frame, by)
    digits = _pack(coded.frame, by, {})
    if digits is None:
        return None
    from anabranch.compiled.grouping_loops import raise_places

    found = code_numbers(coded.frame.select(_pack_digits(digits)).to_series().to_numpy())
    orders = frame.get_column(order).to_numpy()
    if (orders[1:] > orders[:-1]).all():
        return found.firsts
    # The largest of what is smaller the later it is.
    earliest = np.full(len(found.firsts), _SMALLEST_INT64)
    raise_places(found.codes, ~orders, earliest)
    places = np.flatnonzero(earliest[found.codes] == ~orders)
    return places if len(places) == len(found.firsts) else None


def code_keys(frame: pl.DataFrame, by: Sequence[str]) -> CodedRows:
    """Return the rows with texts to group by as numbers, where all of ``by`` can be numbers then."""
    texts = [name for name in by if frame.schema[name] == pl.String]
    if not texts or not all(_is_whole(frame.schema[name]) for name in by if name not in texts):
        return CodedRows(frame, {})
    return code_columns(frame, texts)


def count_and_add(
    frame: pl.DataFrame,
    by: Sequence[str],
    row_counts: Sequence[str],
    sums: Mapping[str, str],
    strides: Mapping[str, int] | None = None,
    largest: Sequence[str] = (),
) -> pl.DataFrame | None:
    """Count rows and add floats up per group, None where this way is closed; groups come in the order of their values.

    Whole numbers that lie close together, such as ids, need no hash table: each group has a place in an array, which is
    three times as fast. ``sums`` names columns by the column of their total, ``largest`` Int64 columns without nulls.
    """
    if any(frame.schema[column] != pl.Float64 or frame[column].null_count() for column in sums.values()):
        return None
    digits = _pack(frame, by, strides or {})
    if digits is None:
        return None
    places = prod(digit.span for digit in digits)
    if places > _MOST_PLACES_A_ROW * frame.height:
        return None
    is_large = frame.height >= WORTH_COMPILED_CODE_ROWS and places < _LARGEST_INT32
    fill = _fill_places_compiled if is_large else _fill_places
    counts, added, raised = fill(frame, digits, places, list(sums.values()), largest)
    present = np.flatnonzero(counts)
    columns = {_PACKED: pl.Series(present), **{name: pl.Series(counts[present]) for name in row_counts}}
    columns |= {total: pl.Series(values[present]) for total, values in zip(sums, added, strict=True)}
    columns |= {column: pl.Series(values[present]) for column, values in zip(largest, raised, strict=True)}
    return pl.DataFrame(columns).select(*_unpack_digits(digits), pl.exclude(_PACKED))


def _fill_places(
    frame: pl.DataFrame, digits: Sequence[_Digit], places: int, sums: Sequence[str], largest: Sequence[str]
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Return by place the number of rows, the sums of some columns, and the largest values of others."""
    packed = frame.select(_pack_digits(digits)).to_series().to_numpy()
    raised = [np.full(places, _SMALLEST_INT64) for _ in largest]
    for column, values in zip(largest, raised, strict=True):
        np.maximum.at(values, packed, frame[column].to_numpy())
    counts: NDArray[np.int64] = np.bincount(packed, minlength=places).astype(np.int64, copy=False)
    added: list[NDArray[Any]] = [np.bincount(packed, frame[column].to_numpy(), minlength=places) for column in sums]
    return counts, added, raised


def _fill_places_compiled(
    frame: pl.DataFrame, digits: Sequence[_Digit], places: int, sums: Sequence[str], largest: Sequence[str]
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Do the same in fewer steps a row; sums are made in the same order."""
    from anabranch.compiled.grouping_loops import add_digit, add_to_places, count_places, raise_places

    packed = np.zeros(frame.height, np.int32)
    for digit in digits:
        numbers = frame.select(_physical(digit)).to_series().to_numpy()
        add_digit(packed, np.ascontiguousarray(numbers), digit.lowest, digit.stride, digit.span)
    counts = np.zeros(places, np.int64)
    count_places(packed, counts)
    added = [np.zeros(places, np.float64) for _ in sums]
    for column, values in zip(sums, added, strict=True):
        add_to_places(packed, np.ascontiguousarray(frame[column].to_numpy()), values)
    raised = [np.full(places, _SMALLEST_INT64) for _ in largest]
    for column, values in zip(largest, raised, strict=True):
        raise_places(packed, np.ascontiguousarray(frame[column].to_numpy()), values)
    return counts, added, raised


def add_up(
    frame: pl.DataFrame,
    by: Sequence[str],
    sums: Sequence[str],
    flags: Sequence[str] = (),
    strides: Mapping[str, int] | None = None,
) -> pl.DataFrame | None:
    """Add Int64 and Float64 columns up per group; None where this way is closed.

    Groups come in an order that depends on the rows alone. Of all other columns the first value of each group is kept;
    a flag is true if any of the group is.
    """
    if any(frame.schema[column] not in (pl.Int64, pl.Float64) or frame[column].null_count() for column in sums):
        return None
    digits = _pack(frame, by, strides or {})
    places = prod(digit.span for digit in digits) if digits is not None else 0
    if digits is None or places > _MOST_PLACES_A_MERGED_ROW * frame.height:
        return None
    packed = frame.select(_pack_digits(digits)).to_series().to_numpy()
    first_rows = np.full(places, -1)
    first_rows[packed[::-1]] = np.arange(frame.height - 1, -1, -1)
    present = np.flatnonzero(first_rows >= 0)
    if len(present) == frame.height:
        return frame
    columns = []
    for name in sums:
        values = frame[name].to_numpy()
        if values.dtype == np.float64:
            added = np.bincount(packed, values, minlength=places)
        else:
            added = np.zeros(places, np.int64)
            np.add.at(added, packed, values)
        columns.append(pl.Series(name, added[present]))
    for name in flags:
        columns.append(pl.Series(name, np.bincount(packed[frame[name].to_numpy()], minlength=places)[present] > 0))
    return frame[first_rows[present]].with_columns(columns)


def _pack(frame: pl.DataFrame, by: Sequence[str], strides: Mapping[str, int]) -> list[_Digit] | None:
    """Return how the columns fit into one Int64, or None if they do not."""
    dtypes = [frame.schema[column] for column in by]
    if not by or frame.is_empty() or not all(_is_whole(dtype) for dtype in dtypes):
        return None
    bounds = frame.select(
        *(pl.col(column).min().to_physical().cast(pl.Int64).alias(f"{i}.min") for i, column in enumerate(by)),
        *(pl.col(column).max().to_physical().cast(pl.Int64).alias(f"{i}.max") for i, column in enumerate(by)),
    ).row(0)
    digits: list[_Digit] = []
    room = 1
    for i, (column, dtype) in enumerate(zip(by, dtypes, strict=True)):
        lowest, highest = bounds[i], bounds[len(by) + i]
        stride = strides.get(column, 1)
        span = (highest - lowest) // stride + 1
        room *= span
        # The lowest value is subtracted before anything else: the difference itself must fit, too.
        if room > _LARGEST_PACKED or highest - lowest > _LARGEST_PACKED:
            return None
        digits.append(_Digit(column, dtype, lowest, stride, span))
    return digits


def _pack_digits(digits: Sequence[_Digit]) -> pl.Expr:
    packed = pl.lit(0, dtype=pl.Int64)
    for digit in digits:
        offset = _physical(digit) - digit.lowest
        if digit.stride != 1:
            offset = offset // digit.stride
        packed = offset if digit is digits[0] else packed * digit.span + offset
    return packed.alias(_PACKED)


def _unpack_digits(digits: Sequence[_Digit]) -> list[pl.Expr]:
    unpacked: list[pl.Expr] = []
    rest = pl.col(_PACKED)
    for digit in reversed(digits):
        offset = rest if digit is digits[0] else rest % digit.span
        value = (offset * digit.stride if digit.stride != 1 else offset) + digit.lowest
        unpacked.append(value.cast(digit.dtype).alias(digit.column))
        rest = rest // digit.span
    return unpacked[::-1]


def _is_whole(dtype: pl.DataType) -> bool:
    # UInt64 keys may lie beyond Int64, Int128 ones too: they take the general path.
    return dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.Date, pl.Boolean)


def _physical(digit: _Digit) -> pl.Expr:
    column = pl.col(digit.column)
    if digit.dtype == pl.Int64:
        return column
    return column.to_physical().cast(pl.Int64)
