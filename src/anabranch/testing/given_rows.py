"""Rows as people write them in tests, in the types that a flow declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any

import polars as pl

from anabranch.errors import FlowError, name_alternatives
from anabranch.model.frame_texts import describe_row

Rows = pl.DataFrame | Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""A Polars frame, dicts, or a single dict."""


def read_rows(given: Rows, schema: Mapping[str, pl.DataType], where: str) -> pl.DataFrame:
    """Return rows as a frame of the declared columns; raise ``FlowError`` that names what does not fit.

    Columns that a dict leaves out are null, as fields that a JSON line leaves out. Texts may stand for times.
    """
    if isinstance(given, pl.DataFrame):
        return _read_frame(given, schema, where)
    rows = [given] if isinstance(given, Mapping) else list(given)
    for number, row in enumerate(rows):
        _refuse_others(row, f"{where}: row {number}")
        _refuse_strangers(row, schema, f"{where}: row {number}")
    return pl.DataFrame(
        [_read_column(name, dtype, [row.get(name) for row in rows], rows, where) for name, dtype in schema.items()],
        height=len(rows),
    )


def _read_frame(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], where: str) -> pl.DataFrame:
    _refuse_strangers(frame.schema, schema, where)
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        msg = f"{where}: the frame has no column {', '.join(missing)}; it has {', '.join(frame.columns) or 'none'}"
        raise FlowError(msg)
    columns = []
    for name, dtype in schema.items():
        column = frame.get_column(name)
        if column.dtype == pl.String and _is_time(dtype):
            column = _read_column(name, dtype, column.to_list(), frame, where)
        columns.append(_cast(column, dtype, where))
    return pl.DataFrame(columns, height=frame.height)


def _cast(column: pl.Series, dtype: pl.DataType, where: str) -> pl.Series:
    if column.dtype == dtype:
        return column
    loses = column.dtype.is_float() and dtype.is_integer()
    alike = (column.dtype.is_numeric() and dtype.is_numeric()) or column.dtype.base_type() == dtype.base_type()
    if column.dtype == pl.Null or (alike and not loses):
        try:
            return column.cast(dtype)
        except pl.exceptions.PolarsError as error:
            msg = f"{where}: {column.name!r} is {dtype}, and does not hold all of the frame's {column.dtype}: {error}"
            raise FlowError(msg) from error
    msg = f"{where}: {column.name!r} is {dtype}, and {column.dtype} in the frame; cast it first"
    raise FlowError(msg)


def _read_column(
    name: str, dtype: pl.DataType, values: list[Any], rows: pl.DataFrame | list[Mapping[str, Any]], where: str
) -> pl.Series:
    if _is_time(dtype):
        values = [_read_time(value, dtype) if isinstance(value, str) else value for value in values]
    values = [_in_zone_of(dtype, value) if isinstance(value, datetime) else value for value in values]
    try:
        return pl.Series(name, values, dtype=dtype, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        number, value = _find_misfit(values, dtype)
        row = rows.row(number, named=True) if isinstance(rows, pl.DataFrame) else rows[number]
        msg = f"{where}: {name!r} is {dtype}, and {value!r} is none; row {number} is {describe_row(row)}"
        raise FlowError(msg) from error


def _find_misfit(values: list[Any], dtype: pl.DataType) -> tuple[int, Any]:
    for number, value in enumerate(values):
        try:
            pl.Series([value], dtype=dtype, strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            return number, value
    return 0, values[0]


def _is_time(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime | pl.Date | pl.Time)


def _read_time(text: str, dtype: pl.DataType) -> Any:
    """Return what a text in ISO 8601 says; the text itself, if it says nothing of the kind."""
    kind = datetime if isinstance(dtype, pl.Datetime) else date if isinstance(dtype, pl.Date) else time
    try:
        return kind.fromisoformat(text.strip())
    except ValueError:
        return text


def _in_zone_of(dtype: pl.DataType, moment: datetime) -> datetime:
    """Return a moment as a column has it: without a zone, it is in UTC."""
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is None and moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    return moment


def _refuse_others(row: object, where: str) -> None:
    if not isinstance(row, Mapping):
        msg = f"{where} is a {type(row).__name__}, {row!r}; give dicts, or a Polars frame"
        raise FlowError(msg)


def _refuse_strangers(found: Iterable[str], schema: Mapping[str, pl.DataType], where: str) -> None:
    for name in found:
        if name not in schema:
            msg = f"{where}: no column {name!r}; {name_alternatives(str(name), schema)}"
            raise FlowError(msg)
