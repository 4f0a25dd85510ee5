"""Sums beyond the range of their type, found before they are made: Polars lets them wrap around in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import polars as pl

from anabranch.operators.aggregates.grouping import group_rows

SMALLEST_INT64, LARGEST_INT64 = -(2**63), 2**63 - 1
_LARGEST_INT128, _LARGEST_DECIMAL = 2**127 - 1, 10**38 - 1
_LIMB = 2**64
_HIGH, _LOW = "__high", "__low"


@dataclass(frozen=True, slots=True)
class Overflow:
    """A group whose numbers add up to more than fits."""

    row: Mapping[str, Any]
    """The carried columns."""
    total: int | Decimal


def may_overflow(column: pl.Series) -> bool:
    """Say whether some of these numbers could add up beyond their type: a look at the largest costs next to nothing."""
    limit = largest_total(column.dtype)
    if limit is None:
        return False
    whole = column.to_physical() if column.dtype.is_decimal() else column
    lowest, highest = whole.min(), whole.max()
    if lowest is None or highest is None:
        return False
    return len(column) * max(-int(lowest), int(highest)) > limit  # type: ignore[arg-type]


def largest_total(dtype: pl.DataType) -> int | None:
    """Return the largest total of numbers of this type, those of a Decimal without its point; None if there is none."""
    if dtype.is_decimal():
        return _LARGEST_DECIMAL
    if dtype == pl.Int128:
        return _LARGEST_INT128
    return LARGEST_INT64 if dtype == pl.Int64 else None


def find_overflow(
    rows: pl.DataFrame, by: Sequence[str], column: str, carried: Sequence[str], strides: Mapping[str, int] | None
) -> Overflow | None:
    """Return the first group of which a column of Int128 or Decimal adds up beyond its type.

    There is no wider type to add up in. Halves of 64 bits are added up apart, which leaves room for 2^63 rows.
    ``carried`` names columns that are the same throughout a group.
    """
    dtype, limb = rows.schema[column], pl.lit(_LIMB, pl.Int128)
    whole = pl.col(column).to_physical().cast(pl.Int128)
    others = [name for name in carried if name not in by]
    halves = rows.select(*by, *others, (whole // limb).alias(_HIGH), (whole % limb).alias(_LOW))
    sums = group_rows(halves, by, [pl.col(others).first(), pl.col(_HIGH, _LOW).sum()], strides)
    sums = sums.with_columns(pl.col(_HIGH) + pl.col(_LOW) // limb, pl.col(_LOW) % limb)
    limit = largest_total(dtype)
    assert limit is not None
    fits_128_bits = pl.col(_HIGH).is_between(SMALLEST_INT64, LARGEST_INT64)
    smallest = -limit if dtype.is_decimal() else -limit - 1
    fits = fits_128_bits & (pl.col(_HIGH) * limb + pl.col(_LOW)).is_between(smallest, limit)
    beyond = sums.filter(~fits)
    if beyond.is_empty():
        return None
    row = beyond.row(0, named=True)
    total: int | Decimal = row[_HIGH] * _LIMB + row[_LOW]
    if isinstance(dtype, pl.Decimal):
        total = Decimal(total).scaleb(-dtype.scale, Context(prec=100))
    return Overflow({name: row[name] for name in carried}, total)


def way_out(dtype: pl.DataType) -> str:
    """Return what a person can do where numbers of this type add up beyond it, and how far that goes."""
    if dtype.is_decimal():
        what = "to a Decimal with fewer digits behind the point, of 38 in all, or to pl.Float64, which rounds"
    elif dtype == pl.Int128:
        what = "to pl.Float64, which rounds"
    else:
        what = "to pl.Decimal(38), which is exact up to 38 digits, or pl.Float64, which rounds"
    return f"cast what is added up, {what}, and start with a new checkpoint"
