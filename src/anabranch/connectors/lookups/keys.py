"""Keys of a stream and of a table: which types can be equal, and values of the one as those of the other."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.errors import AnabranchError, FlowError, SourceError

Family = str
"""What a value is, whatever its width, unit or encoding."""

_NUMBERS = {"integer", "decimal"}


def family_of(dtype: pl.DataType) -> Family | None:
    """Return what values of a type are; None for those that only their database knows."""
    if isinstance(dtype, pl.Datetime):
        return "time without a zone" if dtype.time_zone is None else "time with a zone"
    if dtype.is_integer():
        return "integer"
    if dtype.is_float():
        return "float"
    known: dict[type[pl.DataType], Family] = {
        pl.Decimal: "decimal",
        pl.String: "text",
        pl.Categorical: "text",
        pl.Enum: "text",
        pl.Binary: "bytes",
        pl.Boolean: "boolean",
        pl.Date: "date",
        pl.Time: "time of day",
        pl.Duration: "duration",
    }
    return known.get(dtype.base_type())


def check_key_types(
    label: str,
    keys: Mapping[str, pl.DataType],
    found: Mapping[str, pl.DataType],
    stored_as: Mapping[Family, frozenset[Family]] | None = None,
    error: type[AnabranchError] = FlowError,
) -> None:
    """Raise an ``error`` if a key of the stream can never equal one of the table, or only by chance of its text.

    ``stored_as`` says what a database without a type of its own for some values keeps them as.
    """
    for name, dtype in keys.items():
        wanted, held = family_of(dtype), family_of(found[name])
        if wanted is None or held is None or wanted == held or {wanted, held} <= _NUMBERS:
            continue
        if held in (stored_as or {}).get(wanted, ()):
            continue
        # A stream has no keys that are floats, nor should it: nobody can say when two are equal.
        advice = "cast the table's" if held == "float" else "cast one of them, by with_columns() before the lookup"
        msg = (
            f"lookup: {label} has {found[name]} as its key {name!r}, the stream has {dtype}, which is another; {advice}"
        )
        raise error(msg)


def as_keys(rows: pl.DataFrame, keys: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the rows that a key of these types can find, with their keys in these types.

    Numbers, texts and times are compared by value: what does not fit into the stream's type equals none of its keys.
    """
    converted = []
    for name, dtype in keys.items():
        if rows.schema[name] != dtype:
            value = pl.col(name).cast(dtype, strict=False)
            same = value.cast(rows.schema[name], strict=False) == pl.col(name)
            converted.append(pl.when(same).then(value).alias(name))
    return rows.with_columns(converted).drop_nulls(list(keys))


def refuse_repeated(label: str, rows: pl.DataFrame, keys: Mapping[str, pl.DataType]) -> None:
    """Raise ``SourceError`` if several rows have the same key."""
    named = rows.select(list(keys))
    repeated = named.filter(named.is_duplicated())
    if repeated.height:
        raise several_rows(label, repeated.row(0, named=True))


def several_rows(label: str, key: Mapping[str, object]) -> SourceError:
    """Return the error for a key that a table has more than once."""
    return SourceError(
        f"{label} has several rows for {dict(key)}; a lookup needs one row a key: make it so, by unique() or a view"
    )
