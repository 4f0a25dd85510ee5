"""JSON lines of texts and numbers that all look alike, read by compiled code: events, clicks, log records.

A JSON parser builds a tree for every line, and copies every text out of it. Lines that all have the first line's
layout, the same keys in the same order, need neither: texts stay where they are and only their places are noted, and
fields that nobody declared are passed over. With three of seven fields declared that is several times as fast. Whatever
does not fit to the last byte (a null, an escape, another key) is left to the parser, for the whole text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.connectors.formats.text_columns import convert_text, narrow_floats, to_datetime
from anabranch.connectors.formats.text_values import WORDS, is_utf8

_LARGEST_TEXT_BYTES = 2**31 - 1
"""Places in a column of texts have 32 bits."""
_SKIPPED_TEXT, _TEXT, _QUOTED_INTEGER, _INTEGER, _FLOAT, _WRITTEN_NUMBER = range(6)
"""As in ``fixed_layout_json_loops``, which is imported only when there is much to read."""

_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_FIELD = re.compile(
    rb'[ \t]*([{,])[ \t]*"([^"\\\x00-\x1f]*)"[ \t]*:[ \t]*(?:"([^"\\\x00-\x1f]*)"|(' + _NUMBER + rb")(?=[ \t,}]))"
)
_END = re.compile(rb"[ \t]*\}[ \t]*")
_DIGITS = re.compile(rb"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class _Field:
    """One place in the layout: the text before the value, and how the value is read."""

    name: str
    prefix: bytes
    kind: int


def parse_fixed_layout_lines(text: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Return the frame that the parser would, or None if some line is malformed or not of the first line's layout.

    Every line is a row: where a row is wanted of each of several texts, none of them had a line end in it.
    """
    if len(text) > _LARGEST_TEXT_BYTES or sys.byteorder != "little":
        return None
    layout = _read_layout(text[: text.find(b"\n")].rstrip(b"\r"), schema)
    if layout is None:
        return None
    fields, suffix = layout
    if not text.endswith(b"\n"):
        text += b"\n"
    # More than there can be: pages that nothing is written to cost nothing, counting lines would.
    columns = _Columns(fields, suffix, len(text) // (sum(len(field.prefix) for field in fields) + len(suffix) + 1))
    is_ascii = columns.read(np.frombuffer(text, np.uint8), None)
    if is_ascii is None or not (is_ascii or is_utf8(text)):
        return None
    return columns.to_frame(schema, [text])


@dataclass(frozen=True, slots=True)
class PlacedLines:
    """Memory with lines in it, and other things between them; there is a line end at each of ``ends``."""

    memory: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def parse_placed_lines(
    pieces: Sequence[PlacedLines], join: Callable[[], bytes], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame | None:
    """Return the frame of lines that lie in several places, as ``parse_fixed_layout_lines`` does, a row each.

    No piece is empty. ``join`` gives the text of all lines, which is asked for only where they are not plain ASCII.
    """
    if any(len(piece.memory) > _LARGEST_TEXT_BYTES for piece in pieces) or sys.byteorder != "little":
        return None
    first = pieces[0]
    layout = _read_layout(first.memory[first.starts[0] : first.ends[0]].tobytes().rstrip(b"\r"), schema)
    if layout is None:
        return None
    columns = _Columns(*layout, sum(len(piece.starts) for piece in pieces))
    is_ascii = True
    for piece in pieces:
        is_piece_ascii = columns.read(piece.memory, piece)
        if is_piece_ascii is None:
            return None
        is_ascii = is_ascii and is_piece_ascii
    if not (is_ascii or is_utf8(join())):
        return None
    return columns.to_frame(schema, [piece.memory for piece in pieces])


class _Columns:
    """The values of lines of one layout, while they are read."""

    def __init__(self, fields: Sequence[_Field], suffix: bytes, most_rows: int) -> None:
        from anabranch.compiled.fixed_layout_json_loops import NO_PLACES, read_lines

        self._read_lines, self._no_places = read_lines, NO_PLACES
        self._fields = fields
        kinds = np.array([field.kind for field in fields])
        places = np.zeros(len(fields), np.int64)
        for group in ((_TEXT, _WRITTEN_NUMBER), (_QUOTED_INTEGER, _INTEGER), (_FLOAT,)):
            of_group = np.isin(kinds, group)
            places[of_group] = np.arange(of_group.sum())
        self._places: list[int] = places.tolist()
        self._texts = np.empty((int(np.isin(kinds, (_TEXT, _WRITTEN_NUMBER)).sum()), most_rows, 2), np.uint64)
        self._integers = np.empty((int(np.isin(kinds, (_QUOTED_INTEGER, _INTEGER)).sum()), most_rows), np.int64)
        self._floats = np.empty((int((kinds == _FLOAT).sum()), most_rows), np.float64)
        prefixes = [field.prefix for field in fields]
        self._layout = (
            np.frombuffer(b"".join(prefixes), np.uint8),
            np.cumsum([0, *(len(prefix) for prefix in prefixes)]),
            np.frombuffer(suffix, np.uint8),
            kinds,
            places,
        )
        self._rows = self._pieces = 0

    def read(self, memory: NDArray[np.uint8], lines: PlacedLines | None) -> bool | None:
        """Add the lines of a text, or those that lie in it; say whether all is ASCII, None if one does not fit."""
        text = memory.view()
        # Compiled code is compiled anew for arrays that differ in this.
        text.flags.writeable = False
        starts, ends = (self._no_places, self._no_places) if lines is None else (lines.starts, lines.ends)
        columns = (self._texts, self._integers, self._floats)
        rows, is_ascii = self._read_lines(text, *self._layout, *columns, starts, ends, self._rows, self._pieces)
        if rows < 0:
            return None
        self._rows += rows
        self._pieces += 1
        return bool(is_ascii)

    def to_frame(self, schema: Mapping[str, pl.DataType], texts: Sequence[Any]) -> pl.DataFrame | None:
        """Return the declared columns, given the texts in the order in which they were read; None if a value is not of
        its column's type."""
        columns: dict[str, pl.Series] = {}
        for field, place in zip(self._fields, self._places, strict=True):
            if field.name in schema and field.kind != _SKIPPED_TEXT:
                held = {_TEXT: self._texts, _WRITTEN_NUMBER: self._texts, _FLOAT: self._floats}
                values = held.get(field.kind, self._integers)[place, : self._rows]
                column = _to_column(field.kind, values, texts, schema[field.name])
                if column is None:
                    return None
                columns[field.name] = column
        return pl.DataFrame(
            [
                columns[name].alias(name)
                if name in columns
                else pl.repeat(None, self._rows, dtype=kind, eager=True).alias(name)
                for name, kind in schema.items()
            ]
        )


def _read_layout(line: bytes, schema: Mapping[str, pl.DataType]) -> tuple[list[_Field], bytes] | None:
    """Take the first line apart; None unless it holds texts, numbers, and values as they are declared."""
    fields: list[_Field] = []
    at = before = 0
    while (match := _FIELD.match(line, at)) is not None:
        opening, name_bytes, text, number = match.groups()
        if (opening == b"{") != (at == 0):
            return None
        try:
            name = name_bytes.decode("utf-8")
        except UnicodeDecodeError:
            return None
        kind = _find_kind(schema.get(name), text, number)
        if kind is None:
            return None
        value_at = match.start(3) if text is not None else match.start(4)
        fields.append(_Field(name, line[before:value_at], kind))
        before = match.end(3) if text is not None else match.end(4)
        at = match.end()
    if not fields or len({field.name for field in fields}) != len(fields) or not _END.fullmatch(line, at):
        return None
    return fields, line[before:]


def _find_kind(declared: pl.DataType | None, text: bytes | None, number: bytes | None) -> int | None:
    """Return how a field is read, None if that is a matter for the parser."""
    if text is not None:
        if declared is None:
            return _SKIPPED_TEXT
        if isinstance(declared, pl.Datetime):
            return _QUOTED_INTEGER if _DIGITS.fullmatch(text) else _TEXT
        return _TEXT if isinstance(declared, (*WORDS, pl.Decimal, pl.Date, pl.Time)) else None
    if declared is None or declared.is_float():
        return _FLOAT
    if isinstance(declared, (*WORDS, pl.Decimal)):
        return _WRITTEN_NUMBER
    return _INTEGER if declared.is_integer() or isinstance(declared, pl.Datetime) else None


def _to_column(kind: int, values: NDArray[Any], texts: Sequence[Any], declared: pl.DataType) -> pl.Series | None:
    """Return a column of the declared type; None if a value is not of it."""
    if kind in (_TEXT, _WRITTEN_NUMBER):
        buffers = [None, pa.py_buffer(values), *(pa.py_buffer(text) for text in texts)]
        column = pl.Series(pa.Array.from_buffers(pa.string_view(), len(values), buffers))
        return convert_text(column, declared)
    if isinstance(declared, pl.Datetime):
        return to_datetime(pl.Series(values), declared)
    if declared.is_float():
        return narrow_floats(pl.Series(values), declared)
    column = pl.Series(values).cast(declared, strict=False)
    return None if column.null_count() else column
