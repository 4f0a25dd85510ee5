"""Values as stores without types show them: texts that sort and read well, and back."""

from __future__ import annotations

import polars as pl

from anabranch.connectors.databases.staged_rows import is_nested, json_texts

_TIME = "%Y-%m-%d %H:%M:%S%.6f"
_MEANT: dict[str, pl.DataType] = {
    "BOOLEAN": pl.Boolean(),
    "INTEGER": pl.Int64(),
    "REAL": pl.Float64(),
    "BLOB": pl.Binary(),
    "TEXT": pl.String(),
    "EXACT TEXT": pl.String(),
}


def form_of(dtype: pl.DataType) -> str:
    """Return what a column of this type is declared as."""
    if dtype == pl.Boolean:
        return "BOOLEAN"
    if dtype in (pl.UInt64, pl.Int128, pl.UInt128) or dtype.is_decimal():
        # SQLite would make floats of what is beyond 64 bits.
        return "EXACT TEXT"
    if dtype.is_integer():
        return "INTEGER"
    if dtype.is_float():
        return "REAL"
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMP"
    if dtype == pl.Date:
        return "DATE"
    return "BLOB" if dtype == pl.Binary else "TEXT"


def as_shown(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return a column as it is shown."""
    if is_nested(dtype):
        return json_texts(name)
    column = pl.col(name)
    form = form_of(dtype)
    if isinstance(dtype, pl.Datetime):
        utc = column.dt.convert_time_zone("UTC") if dtype.time_zone is not None else column
        return utc.dt.strftime(_TIME)
    if isinstance(dtype, pl.Duration):
        return column.dt.total_microseconds().cast(pl.String)
    return column.cast(pl.String) if form in ("DATE", "TEXT", "EXACT TEXT") else column


def as_meant(name: str, form: str) -> pl.Expr:
    """Return a shown column as what it was declared as; exact numbers stay texts."""
    column = pl.col(name)
    if form == "TIMESTAMP":
        return column.cast(pl.String).str.to_datetime(_TIME, time_unit="us")
    if form == "DATE":
        return column.cast(pl.String).str.to_date()
    return column.cast(_MEANT[form])
