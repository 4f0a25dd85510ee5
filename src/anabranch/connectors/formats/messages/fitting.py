"""Values as columns of the declared types; rows with a value that does not fit are set apart, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from anabranch.eventtime.time_range import TIME_TYPES, describe_time_bounds, find_times_out_of_range

PLACE = "__place__"
_MOST_LETTERS = 80
_UNFIT = (PolarsError, TypeError, ValueError, OverflowError)
_TEXTS = (pl.String, pl.Categorical, pl.Enum)


@dataclass(frozen=True, slots=True)
class Given:
    """The values of one field, and what makes a column of the field's own type of them; null for what is none."""

    values: list[Any] | pl.Series
    make: Callable[[list[Any] | pl.Series], pl.Series]

    def column(self) -> pl.Series:
        """Return all values that can be in such a column, null for the others."""
        try:
            return self.make(self.values)
        except _UNFIT:
            return pl.concat([self._make_one(value) for value in self.values])

    def _make_one(self, value: Any) -> pl.Series:
        try:
            return self.make([value])
        except _UNFIT:
            return self.make([None])

    def nulls(self) -> pl.Series:
        """Say which values are null by themselves."""
        if isinstance(self.values, pl.Series):
            return self.values.is_null()
        return pl.Series([value is None for value in self.values], dtype=pl.Boolean)


def can_fit(own: pl.DataType, kind: pl.DataType) -> bool:
    """Say whether values of one type can be of another at all; texts are no numbers, whatever they say."""
    if own == kind:
        return True
    if isinstance(own, _TEXTS) and not isinstance(kind, (*_TEXTS, pl.Binary)):
        return False
    try:
        pl.Series([None], dtype=own).cast(kind, strict=True)
    except PolarsError:
        return False
    return own.is_nested() == kind.is_nested()


def fit_columns(
    given: Mapping[str, Given], places: list[int], schema: Mapping[str, pl.DataType]
) -> tuple[pl.DataFrame, dict[int, str]]:
    """Return the rows that fit, with their places, and why the others do not; a column that is not given is null."""
    columns = [pl.Series(PLACE, places, dtype=pl.Int64)]
    faults: dict[int, str] = {}
    for name, kind in schema.items():
        if name not in given:
            columns.append(pl.repeat(None, len(places), dtype=kind, eager=True).alias(name))
            continue
        column = _cast(given[name].column(), kind).alias(name)
        columns.append(column)
        _note(faults, places, column.is_null() & ~given[name].nulls(), _explain_misfit(name, kind, given[name]))
        late = find_times_out_of_range(column)
        if late is not None:
            _note(faults, places, late, _explain_time(name, kind))
    frame = pl.DataFrame(columns)
    return (frame.filter(~pl.col(PLACE).is_in(list(faults))) if faults else frame), faults


def _note(faults: dict[int, str], places: list[int], rows: pl.Series, explain: Callable[[int], str]) -> None:
    for row in rows.arg_true().to_list():
        faults.setdefault(places[row], explain(row))


def _explain_misfit(name: str, kind: pl.DataType, given: Given) -> Callable[[int], str]:
    def explain(row: int) -> str:
        value = repr(given.values[row])
        shown = value if len(value) <= _MOST_LETTERS else f"{value[: _MOST_LETTERS - 1]}…"
        return f"column {name!r} is declared as {kind}, found {shown}"

    return explain


def _explain_time(name: str, kind: pl.DataType) -> Callable[[int], str]:
    what = describe_time_bounds(kind) if isinstance(kind, TIME_TYPES) else "with a time outside of the years 1 to 9999"
    return lambda row: f"column {name!r} holds a value {what}"


def _cast(own: pl.Series, kind: pl.DataType) -> pl.Series:
    """Return a column in another type; null where that would be another value."""
    if own.dtype == kind:
        return own
    if kind.is_nested():
        return _cast_nested(own, kind)
    made = own.cast(kind, strict=False)
    if (own.dtype.is_float() or own.dtype.is_decimal()) and (kind.is_integer() or kind.is_decimal()):
        made = made.set((made.cast(own.dtype, strict=False) != own).fill_null(value=False), None)
    elif own.dtype.is_float() and kind.is_float():
        made = made.set((own.is_finite() & ~made.is_finite()).fill_null(value=False), None)
    return made


def _cast_nested(own: pl.Series, kind: pl.DataType) -> pl.Series:
    try:
        return own.cast(kind, strict=True)
    except PolarsError:
        pass
    made = []
    for row in range(len(own)):
        try:
            made.append(own.slice(row, 1).cast(kind, strict=True))
        except PolarsError:
            made.append(pl.Series([None], dtype=kind))
    return pl.concat(made)
