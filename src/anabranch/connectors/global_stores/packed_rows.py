"""Partial results as bytes, one text of bytes a row, exact for every type; and short names of keys and windows.

The layout follows the columns' types, which the flow knows. Stores keep it for years: it begins with a version, and
values never change their form within one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from hashlib import blake2b
from typing import Any

import polars as pl

from anabranch.errors import SinkError
from anabranch.model.column_kinds import with_leaves

VERSION = 1
_NAME_BYTES = 16
_DOUBLE = struct.Struct("<d")
_LENGTH = struct.Struct("<I")
_INTEGER_BYTES, _WIDE_BYTES = 8, 17
_EXACTLY = Context(prec=100)
"""Decimals of 38 digits are not rounded."""

_Write = Callable[[Any, bytearray], None]
_Read = Callable[[bytes, int], tuple[Any, int]]


def pack_rows(rows: pl.DataFrame) -> list[bytes]:
    """Return each row as bytes."""
    lines = [bytearray((VERSION,)) for _ in range(rows.height)]
    for column in rows.iter_columns():
        write = _writer(column.dtype)
        for line, value in zip(lines, column.cast(with_leaves(column.dtype, _without_time)).to_list(), strict=True):
            write(value, line)
    return [bytes(line) for line in lines]


def unpack_rows(lines: Sequence[bytes], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Return the rows that ``pack_rows`` made; raise ``SinkError`` if they were not made of such columns."""
    readers = [_reader(dtype) for dtype in schema.values()]
    columns: list[list[Any]] = [[] for _ in readers]
    for line in lines:
        if not line or line[0] != VERSION:
            raise _misfit(schema)
        place = 1
        try:
            for column, read in zip(columns, readers, strict=True):
                value, place = read(line, place)
                column.append(value)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise _misfit(schema) from error
        if place != len(line):
            raise _misfit(schema)
    return pl.DataFrame(
        [
            pl.Series(name, values, dtype=with_leaves(dtype, _without_time)).cast(dtype)
            for (name, dtype), values in zip(schema.items(), columns, strict=True)
        ]
    )


def name_rows(keys: pl.DataFrame) -> list[str]:
    """Return a short name of each row's values: the same for the same values, in every process and for ever.

    Names are 128 bits of BLAKE2b: that two keys ever have the same one is out of the question.
    """
    return [blake2b(line, digest_size=_NAME_BYTES).hexdigest() for line in pack_rows(keys)]


def _misfit(schema: dict[str, pl.DataType]) -> SinkError:
    columns = ", ".join(f"{name} {dtype}" for name, dtype in schema.items())
    return SinkError(
        f"the store holds partial results that are not made of {columns}: another version or another flow wrote them; "
        "let the flow write to a table of its own"
    )


def _writer(dtype: pl.DataType) -> _Write:
    write = _write_value(dtype)

    def write_or_null(value: Any, line: bytearray) -> None:
        if value is None:
            line.append(0)
        else:
            line.append(1)
            write(value, line)

    return write_or_null


def _write_value(dtype: pl.DataType) -> _Write:  # noqa: PLR0911 - one return a kind of value
    if dtype.is_integer() or dtype.is_temporal():
        width = _integer_bytes(dtype)
        return lambda value, line: line.extend(value.to_bytes(width, "little", signed=True))
    if isinstance(dtype, pl.Decimal):
        return lambda value, line: line.extend(
            int(_EXACTLY.scaleb(value, dtype.scale)).to_bytes(_WIDE_BYTES, "little", signed=True)
        )
    if isinstance(dtype, pl.Enum):
        # Its place is the same in every process, unlike that of a category which is found on the way.
        places = {category: place for place, category in enumerate(dtype.categories)}
        return lambda value, line: line.extend(places[value].to_bytes(_INTEGER_BYTES, "little", signed=True))
    if dtype.is_float():
        return lambda value, line: line.extend(_DOUBLE.pack(value))
    if dtype == pl.Boolean:
        return lambda value, line: line.append(value)
    if isinstance(dtype, pl.String | pl.Categorical):
        return lambda value, line: _write_bytes(value.encode(), line)
    if dtype == pl.Binary:
        return _write_bytes
    if isinstance(dtype, pl.Struct):
        fields = [(field.name, _writer(field.dtype)) for field in dtype.fields]  # type: ignore[arg-type]

        def write_fields(value: Any, line: bytearray) -> None:
            for name, write in fields:
                write(value[name], line)

        return write_fields
    if isinstance(dtype, pl.List | pl.Array):
        write_item = _writer(dtype.inner)  # type: ignore[arg-type]

        def write_items(value: Any, line: bytearray) -> None:
            line.extend(_LENGTH.pack(len(value)))
            for item in value:
                write_item(item, line)

        return write_items
    if isinstance(dtype, pl.Null):
        return lambda value, line: None
    msg = f"partial results of type {dtype} have no form in a store; use exchange='local'"
    raise SinkError(msg)


def _reader(dtype: pl.DataType) -> _Read:
    read = _read_value(dtype)

    def read_or_null(line: bytes, place: int) -> tuple[Any, int]:
        return read(line, place + 1) if line[place] else (None, place + 1)

    return read_or_null


def _read_value(dtype: pl.DataType) -> _Read:  # noqa: PLR0911 - one return a kind of value
    if dtype.is_integer() or dtype.is_temporal():
        width = _integer_bytes(dtype)
        return lambda line, place: (int.from_bytes(line[place : place + width], "little", signed=True), place + width)
    if dtype.is_float():
        return lambda line, place: (_DOUBLE.unpack_from(line, place)[0], place + _DOUBLE.size)
    if dtype == pl.Boolean:
        return lambda line, place: (bool(line[place]), place + 1)
    if isinstance(dtype, pl.Decimal):
        return lambda line, place: (_EXACTLY.scaleb(*_read_scaled(line, place, dtype.scale)), place + _WIDE_BYTES)
    if isinstance(dtype, pl.Enum):
        categories = dtype.categories.to_list()
        return lambda line, place: (
            categories[int.from_bytes(line[place : place + _INTEGER_BYTES], "little", signed=True)],
            place + _INTEGER_BYTES,
        )
    if isinstance(dtype, pl.String | pl.Categorical):
        return _read_text
    if dtype == pl.Binary:
        return _read_bytes
    if isinstance(dtype, pl.Struct):
        fields = [(field.name, _reader(field.dtype)) for field in dtype.fields]  # type: ignore[arg-type]

        def read_fields(line: bytes, place: int) -> tuple[Any, int]:
            value = {}
            for name, read in fields:
                value[name], place = read(line, place)
            return value, place

        return read_fields
    if isinstance(dtype, pl.List | pl.Array):
        read_item = _reader(dtype.inner)  # type: ignore[arg-type]

        def read_items(line: bytes, place: int) -> tuple[Any, int]:
            (length,) = _LENGTH.unpack_from(line, place)
            place += _LENGTH.size
            items = []
            for _ in range(length):
                item, place = read_item(line, place)
                items.append(item)
            return items, place

        return read_items
    if isinstance(dtype, pl.Null):
        return lambda line, place: (None, place)
    msg = f"partial results of type {dtype} have no form in a store; use exchange='local'"
    raise SinkError(msg)


def _integer_bytes(dtype: pl.DataType) -> int:
    # One signed form for all: the largest unsigned ones need the wider one.
    return _WIDE_BYTES if dtype in (pl.Int128, pl.UInt64, pl.UInt128) else _INTEGER_BYTES


def _read_scaled(line: bytes, place: int, scale: int) -> tuple[Decimal, int]:
    return Decimal(int.from_bytes(line[place : place + _WIDE_BYTES], "little", signed=True)), -scale


def _without_time(dtype: pl.DataType) -> pl.DataType:
    """Return the number that a time is kept as, and any other type as it is."""
    if isinstance(dtype, pl.Date):
        return pl.Int32()
    if dtype.is_temporal():
        return pl.Int64()
    return pl.String() if isinstance(dtype, pl.Categorical | pl.Enum) else dtype


def _write_bytes(value: bytes, line: bytearray) -> None:
    line.extend(_LENGTH.pack(len(value)))
    line.extend(value)


def _read_bytes(line: bytes, place: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(line, place)
    end = place + _LENGTH.size + length
    if end > len(line):
        raise IndexError
    return line[place + _LENGTH.size : end], end


def _read_text(line: bytes, place: int) -> tuple[str, int]:
    value, place = _read_bytes(line, place)
    return value.decode(), place
