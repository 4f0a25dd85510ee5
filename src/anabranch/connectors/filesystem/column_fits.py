"""Which columns of Parquet and Arrow files a declared type takes: those whose values it can hold exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.connectors.formats.json_texts import write_json_rows
from anabranch.connectors.formats.rejects import RAW_TEXT_LIMIT
from anabranch.connectors.formats.text_values import integer_range
from anabranch.eventtime.time_range import TIME_TYPES, describe_time_bounds, find_times_out_of_range
from anabranch.model import ReadOutcome

_FLOAT_DIGITS = {"Float16": 11, "Float32": 24, "Float64": 53}
"""Bits of a whole number that a float holds exactly."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a column of a file becomes the declared one."""

    value: pl.Expr
    keeps: pl.Expr | None = None
    """Where the value is what the file has; None: everywhere, by the types alone."""


def fit_column(column: str, found: pl.DataType, wanted: pl.DataType) -> Fit | None:
    """Return how values of one type become those of another, or None if they are another kind of thing.

    Nothing is ever rounded, cut or guessed: what the types do not promise is looked at value by value.
    """
    held = pl.col(column)
    if found == wanted:
        return Fit(held)
    if isinstance(found, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return _fit_times(held, found, wanted)
    if _always_fits(found, wanted):
        return Fit(_widen(held, found, wanted))
    if _may_fit(found, wanted):
        value = held.cast(wanted, strict=False)
        return Fit(value, value.cast(found, strict=False).eq_missing(held))
    return None


def _always_fits(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Say whether every value of a type is one of another."""
    if found.is_nested() and wanted.is_nested():
        return _holds_items(found, wanted)
    match found, wanted:
        case ((pl.Categorical() | pl.Enum()), pl.String()):
            return True
        case pl.Datetime(), pl.Datetime():
            return found.time_unit == wanted.time_unit and bool(found.time_zone) == bool(wanted.time_zone)
        case pl.Decimal(), pl.Decimal():
            # Before the point as well as behind it.
            return found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale
    if found.is_integer() and wanted.is_integer():
        lowest, highest = integer_range(found)
        return integer_range(wanted)[0] <= lowest and highest <= integer_range(wanted)[1]
    if found.is_integer() and wanted.is_float():
        return integer_range(found)[1] <= 2.0 ** _FLOAT_DIGITS[str(wanted)]
    if found.is_float() and wanted.is_float():
        return _FLOAT_DIGITS[str(found)] <= _FLOAT_DIGITS[str(wanted)]
    return found in (wanted, pl.Null)


def _holds_items(found: pl.DataType, wanted: pl.DataType) -> bool:
    if isinstance(found, pl.Struct) and isinstance(wanted, pl.Struct):
        known, fields = _fields(found), _fields(wanted)
        shared = fields.keys() & known.keys()
        return bool(shared) and all(_always_fits(known[name], fields[name]) for name in shared)
    if isinstance(found, pl.List | pl.Array) and isinstance(wanted, pl.List):
        return _always_fits(_inner(found), _inner(wanted))
    return found == wanted


def _widen(held: pl.Expr, found: pl.DataType, wanted: pl.DataType) -> pl.Expr:
    """Return values of one type as those of another that holds them all; fields of structs are matched by name."""
    if found == wanted or not wanted.is_nested() or found == pl.Null:
        return held if found == wanted else held.cast(wanted)
    if isinstance(wanted, pl.List):
        items = held.arr.to_list() if isinstance(found, pl.Array) else held
        return items.list.eval(_widen(pl.element(), _inner(found), _inner(wanted)))
    known = _fields(found)
    fields = [
        (_widen(held.struct.field(name), known[name], kind) if name in known else pl.lit(None, kind)).alias(name)
        for name, kind in _fields(wanted).items()
    ]
    return pl.when(held.is_not_null()).then(pl.struct(fields))


def _may_fit(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Say whether some values of a type are ones of another: it is the same kind of thing, with less room."""
    is_whole = found.is_integer() or (isinstance(found, pl.Decimal) and found.scale == 0)
    return (
        (found.is_integer() and (wanted.is_integer() or wanted.is_float()))
        or (is_whole and wanted.is_integer())
        or (found.is_integer() and isinstance(wanted, pl.Decimal))
        or (isinstance(found, pl.Decimal) and isinstance(wanted, pl.Decimal))
        or (isinstance(found, pl.Duration) and isinstance(wanted, pl.Duration))
    )


def _fit_times(held: pl.Expr, found: pl.Datetime, wanted: pl.Datetime) -> Fit:
    """Take a time for the same instant; between one with a zone and one without as text is: UTC, or the zone's own."""
    value = held.cast(pl.Datetime(wanted.time_unit, found.time_zone), strict=False)
    keeps = None
    if found.time_unit != wanted.time_unit:
        keeps = value.cast(found, strict=False).eq_missing(held)
    if found.time_zone and wanted.time_zone:
        value = value.dt.convert_time_zone(wanted.time_zone)
    elif found.time_zone:
        value = value.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif wanted.time_zone:
        value = value.dt.replace_time_zone(wanted.time_zone, ambiguous="null", non_existent="null")
        happened_once = value.is_null() == held.is_null()
        keeps = happened_once if keeps is None else keeps & happened_once
    return Fit(value, keeps)


def _inner(kind: pl.DataType) -> pl.DataType:
    return _made(kind.inner)  # type: ignore[attr-defined]


def _fields(kind: pl.DataType) -> dict[str, pl.DataType]:
    return {field.name: _made(field.dtype) for field in kind.fields}  # type: ignore[attr-defined]


def _made(kind: pl.DataType | type[pl.DataType]) -> pl.DataType:
    # ``pl.List(pl.Int64)`` keeps the class that it was given.
    return kind() if isinstance(kind, type) else kind


def find_misfit(
    found: Mapping[str, pl.DataType], schema: Mapping[str, pl.DataType], required: Sequence[str]
) -> str | None:
    """Return why a file's columns cannot be taken for the declared ones, or None if they can.

    Columns that a file does not have are null, unless it has none at all or they are required: keys and event times.
    """
    shared = [column for column in schema if column in found]
    lacking = [column for column in schema if column not in found and (not shared or column in required)]
    if lacking:
        names = ", ".join(map(repr, lacking))
        role = "none of the declared columns is there" if not shared else "the flow takes its key or event time from it"
        return f"has no column {names}, and {role}; it has {list(found)}"
    for column in shared:
        if fit_column(column, found[column], schema[column]) is None:
            kinds = f"{found[column]}, declared as {schema[column]}"
            return f"has the column {column!r} as {kinds}: it cannot be taken for that without a guess"
    return None


def columns_to_read(
    found: Mapping[str, pl.DataType], schema: Mapping[str, pl.DataType], kept: Sequence[str]
) -> list[str]:
    """Return what must be read for the kept columns: they, and all whose values might make a row malformed."""
    wanted = set(kept)
    shared = [column for column in schema if column in found]
    read = [column for column in shared if column in wanted or _is_checked(column, found, schema)]
    # Something must be read to know how many rows there are.
    return read or shared[:1]


def _is_checked(column: str, found: Mapping[str, pl.DataType], schema: Mapping[str, pl.DataType]) -> bool:
    fit = fit_column(column, found[column], schema[column])
    return (fit is not None and fit.keeps is not None) or _may_be_strange(schema[column])


def _may_be_strange(kind: pl.DataType) -> bool:
    """Say whether a type has times, which may be ones that no stream may hold."""
    if isinstance(kind, pl.List | pl.Array):
        return _may_be_strange(_inner(kind))
    if isinstance(kind, pl.Struct):
        return any(map(_may_be_strange, _fields(kind).values()))
    return isinstance(kind, TIME_TYPES)


def fit_rows(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], kept: Sequence[str]) -> ReadOutcome:
    """Return rows of a file as rows of the declared columns; those with a value that does not fit are rejected."""
    fits = {column: fit for column in frame.columns if (fit := _fit_of(frame, schema, column)) is not None}
    reasons = [reason for column, fit in fits.items() for reason in _find_misfits(frame, column, fit, schema[column])]
    rejected: tuple[tuple[str, str], ...] = ()
    if reasons:
        # The first column that does not fit names the reason, so that equal files give equal letters.
        reason = pl.select(pl.coalesce(reasons)).to_series()
        texts = write_json_rows(frame.filter(reason.is_not_null())).str.slice(0, RAW_TEXT_LIMIT)
        rejected = tuple(zip(reason.drop_nulls(), texts, strict=True))
        frame = frame.filter(reason.is_null())
    columns = [
        fits[column].value.alias(column) if column in fits else pl.lit(None, schema[column]).alias(column)
        for column in kept
    ]
    # Added, not selected: a column that is not in the file has as many nulls as there are rows.
    return ReadOutcome(frame.with_columns(columns).select(kept), rejected)


def _fit_of(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], column: str) -> Fit | None:
    return fit_column(column, frame.schema[column], schema[column])


def _find_misfits(frame: pl.DataFrame, column: str, fit: Fit, wanted: pl.DataType) -> Iterator[pl.Series]:
    """Yield, if there are such rows, why the value of a column does not fit; null where it does."""
    declared = f"column {column!r} is declared as {wanted}"
    unheld = None if fit.keeps is None else ~frame.select(fit.keeps).to_series()
    if unheld is not None and unheld.any():
        shown = _showable(frame.get_column(column)).cast(pl.String)
        reason = pl.format(f"{declared}, which cannot hold {{}} of the file's {frame.schema[column]} exactly", shown)
        yield pl.select(pl.when(unheld).then(reason)).to_series()
    strange = find_times_out_of_range(frame.select(fit.value).to_series())
    if strange is not None and isinstance(wanted, TIME_TYPES):
        yield pl.select(
            pl.when(strange).then(pl.lit(f"{declared}, found one {describe_time_bounds(wanted)}"))
        ).to_series()
    elif strange is not None:
        yield pl.select(
            pl.when(strange).then(pl.lit(f"{declared}, found a time of no year from 1 to 9999"))
        ).to_series()


def _showable(column: pl.Series) -> pl.Series:
    # Polars gives up altogether on times of no year that it knows: such are shown as the numbers they are.
    is_strange = isinstance(column.dtype, pl.Duration) or find_times_out_of_range(column) is not None
    return column.to_physical() if is_strange else column
