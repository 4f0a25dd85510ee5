"""Rows as JSON, whatever is in them: Polars stops the whole process at bytes, and at times of no year that it knows."""

from __future__ import annotations

import polars as pl

from anabranch.eventtime.time_range import TIME_TYPES, find_times_out_of_range
from anabranch.model.column_kinds import holds, with_leaves


def write_json_rows(frame: pl.DataFrame) -> pl.Series:
    """Return each row as a JSON object: bytes in base64, and times out of range as the numbers that they are."""
    ready = frame.select(_make_writable(column) for column in frame.iter_columns())
    return ready.select(pl.struct(pl.all()).struct.json_encode()).to_series()


def write_json_values(values: pl.Series) -> pl.Series:
    """Return each value as JSON, by the same rules; nulls stay nulls."""
    texts = write_json_rows(values.to_frame("v")).str.strip_prefix('{"v":').str.strip_suffix("}")
    return texts.set(values.is_null(), None).rename(values.name)


def _make_writable(column: pl.Series) -> pl.Series:
    if holds(column.dtype, *TIME_TYPES) and find_times_out_of_range(column) is not None:
        column = column.cast(with_leaves(column.dtype, _as_number))
    if not holds(column.dtype, pl.Binary):
        return column
    return column.to_frame().select(_in_base64(pl.col(column.name), column.dtype)).to_series().rename(column.name)


def _as_number(kind: pl.DataType) -> pl.DataType:
    if isinstance(kind, pl.Date):
        return pl.Int32()
    return pl.Int64() if isinstance(kind, TIME_TYPES) else kind


def _in_base64(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if isinstance(kind, pl.Binary):
        return value.bin.encode("base64")
    if not holds(kind, pl.Binary):
        return value
    if isinstance(kind, pl.Array):
        value, kind = value.arr.to_list(), pl.List(kind.inner)
    if isinstance(kind, pl.List):
        return value.list.eval(_in_base64(pl.element(), kind.inner))  # type: ignore[arg-type]
    assert isinstance(kind, pl.Struct)
    fields = [
        _in_base64(value.struct.field(field.name), field.dtype).alias(field.name)  # type: ignore[arg-type]
        for field in kind.fields
    ]
    return pl.when(value.is_not_null()).then(pl.struct(fields))
