"""JSON lines of any layout, read by Polars' parser wherever it reads them as they are written.

The parser turns numbers into floats before it makes texts of them, a lone half of a surrogate pair into a zero byte and
``-0`` into 0, and it panics at types that it does not know. Each of that is looked for, mostly in the columns, which is
cheap; in the text only if the columns leave a doubt. Then ``exact_json`` must read the lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from anabranch.connectors.formats.exact_json import DEEPEST_NESTING
from anabranch.connectors.formats.schemas import whole_type
from anabranch.connectors.formats.text_columns import convert_text, narrow_floats
from anabranch.connectors.formats.text_values import EPOCH, TIMES, WORDS

_FEW_BYTES = 4096
_MUCH_BYTES = 128 * 1024
"""Below it, looking through the text takes less time than asking a column anything."""
_BLANKS = b" \t\r\n"
_PLAIN_NAME = re.compile(r"[ !#-.0-\[\]-~]*")
"""What only an escape of a letter, sign or digit could write in another way."""
_ESCAPED_LETTER = re.compile(rb"\\u00[2-7]")
_HALF_PAIR = re.compile(
    rb"\\u(?:[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F])"
)
_MINUS_ZERO = re.compile(rb"-0[ \t\r\n,}\]]")
_MAY_BE_NO_STRING = r"^(?:-?[0-9.]+(?:e[+-]?[0-9]+)?$|true$|false$|\[|\{)"
"""How the parser writes what is no string, as a text."""
_SHORT_INTEGER = rb"(?:-?[1-9][0-9]{0,17}|0)[ \t\r]*+[,}]"
_SHORT_NUMBER = rb"(?=[-0-9.]{1,16}[ \t\r,}])-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?[ \t\r]*+[,}]"
"""With up to 15 digits, a float's shortest text is the number that was written."""


def parse_usual_lines(text: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Return the frame of lines, blank ones aside; None if one is malformed, or a matter for ``exact_json``."""
    if len(text) < _FEW_BYTES and not text.strip(_BLANKS):
        return pl.DataFrame(schema=dict(schema))
    kinds = {column: whole_type(kind) for column, kind in schema.items()}
    wire = {column: _wire_type(kind) for column, kind in kinds.items()}
    if b"\\" in text and _has_odd_escapes(text, kinds):
        return None
    known = {column: kind for column, kind in wire.items() if kind is not None}
    if len(known) < len(wire):
        return None
    try:
        frame = pl.read_ndjson(text, schema=known)
    except (PolarsError, PanicException):
        return None
    if text.count(b"{") + text.count(b"[") - frame.height >= DEEPEST_NESTING and _has_deep_lines(text):
        return None
    columns: list[pl.Series] = []
    for column, kind in kinds.items():
        converted = _convert(text, frame.get_column(column), kind)
        if converted is None:
            return None
        columns.append(converted.alias(column))
    return pl.DataFrame(columns)


def _wire_type(kind: pl.DataType) -> pl.DataType | None:
    """Return the type that the parser reads a column as; None if it reads none that would do."""
    if isinstance(kind, pl.UInt64 | pl.Int128 | pl.Boolean):
        return kind
    if isinstance(kind, pl.Decimal | pl.String | pl.Categorical | pl.Enum | pl.Datetime | pl.Date | pl.Time):
        return pl.String()
    if kind.is_float():
        return pl.Float64()
    if kind.is_integer() and not isinstance(kind, pl.UInt128):
        return pl.Int64()
    return kind if _is_usual_nested(kind) else None


def _is_usual_nested(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List):
        return _is_usual_nested(whole_type(kind.inner))
    if isinstance(kind, pl.Struct):
        return bool(kind.fields) and all(_is_usual_nested(whole_type(field.dtype)) for field in kind.fields)
    return isinstance(kind, pl.Int64 | pl.Float64 | pl.Boolean | pl.String)


def _convert(text: bytes, column: pl.Series, kind: pl.DataType) -> pl.Series | None:
    if isinstance(kind, pl.List | pl.Struct):
        return None if _is_doubtful(text, column, kind) else column
    if isinstance(kind, pl.Boolean):
        return column
    if kind.is_float():
        return None if _may_be_minus_zero(text, column) else narrow_floats(column, kind)
    if kind.is_integer():
        narrow = column.cast(kind, strict=False)
        return narrow if narrow.null_count() == column.null_count() else None
    is_much = len(text) >= _MUCH_BYTES
    if isinstance(kind, WORDS):
        is_safe = (is_much and not column.str.contains(_MAY_BE_NO_STRING).any()) or _has_only(
            text, column.name, rb"true|false|" + _SHORT_INTEGER
        )
    elif isinstance(kind, pl.Decimal):
        is_safe = _has_only(text, column.name, _SHORT_NUMBER)
    else:
        assert isinstance(kind, TIMES)
        is_safe = (is_much and not column.str.contains(EPOCH).any()) or _has_only(text, column.name, _SHORT_INTEGER)
    return convert_text(column, kind) if is_safe else None


def _is_doubtful(text: bytes, column: pl.Series, kind: pl.DataType) -> bool:
    """Say whether something in a column of lists or structs may have been written in another way."""
    if isinstance(kind, pl.List):
        return _is_doubtful(text, column.explode(), whole_type(kind.inner))
    if isinstance(kind, pl.Struct):
        return any(
            _is_doubtful(text, column.struct.field(field.name), whole_type(field.dtype)) for field in kind.fields
        )
    if isinstance(kind, pl.String):
        return bool(column.str.contains(_MAY_BE_NO_STRING).any())
    return isinstance(kind, pl.Float64) and _may_be_minus_zero(text, column)


def _has_odd_escapes(text: bytes, kinds: Mapping[str, pl.DataType]) -> bool:
    """Say whether a declared name may be written with escapes, or half of a surrogate pair stands alone."""
    if not all(map(_PLAIN_NAME.fullmatch, _names_of(kinds))):
        return True
    return b"\\u" in text and bool(_ESCAPED_LETTER.search(text) or _HALF_PAIR.search(text))


def _may_be_minus_zero(text: bytes, column: pl.Series) -> bool:
    if len(text) < _MUCH_BYTES:
        return _MINUS_ZERO.search(text) is not None
    return bool((column == 0).any()) and _MINUS_ZERO.search(text) is not None


def _has_only(text: bytes, column: str, safe: bytes) -> bool:
    """Say whether all values of a field are strings, nulls or what is safe, wherever a field has that name."""
    name = re.escape(column.encode())
    return re.search(rb'"' + name + rb'"[ \t\r]*+:[ \t\r]*+(?!"|null|' + safe + rb")", text) is None


def _has_deep_lines(text: bytes) -> bool:
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    if np.diff(ends, prepend=-1, append=len(text)).max() <= 2 * DEEPEST_NESTING:
        return False
    return any(line.count(b"{") + line.count(b"[") > DEEPEST_NESTING for line in text.split(b"\n"))


def _names_of(kinds: Mapping[str, pl.DataType]) -> list[str]:
    names = list(kinds)
    for kind in kinds.values():
        inner = kind
        while isinstance(inner, pl.List | pl.Array):
            inner = whole_type(inner.inner)
        if isinstance(inner, pl.Struct):
            names += _names_of({field.name: whole_type(field.dtype) for field in inner.fields})
    return names
