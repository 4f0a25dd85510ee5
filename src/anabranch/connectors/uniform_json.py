"""JSON lines that all look alike, read by cutting them at their commas.

A JSON parser builds a tree for every line. Most files need none: all their lines have the first line's layout, the same
keys in the same order with plain values. Such lines are cut at their commas, every cut is compared with the layout, and
the values are converted a column at a time, half as fast again as by the parser. Whatever does not fit to the last byte
goes to the parser: this module only ever answers what the parser would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from anabranch.connectors.text_values import convert_text

_FIELD = re.compile(rb'^([ \t]*\{?[ \t]*"([^"\\]*)"[ \t]*:[ \t]*)(.*?)([ \t]*\}?[ \t]*)$', re.DOTALL)
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_INTEGER = r"^-?(?:0|[1-9][0-9]*)$"
_SAMPLE_BYTES = 16 * 1024
_COUNTED_BYTES = 256 * 1024
_LITERALS = ("true", "false", "null")


@dataclass(frozen=True, slots=True)
class _Field:
    """One place in the layout: what stands before the value, and what kind of value it is."""

    name: str
    prefix: str
    suffix: str
    kind: pl.DataType
    is_declared: bool


def parse_uniform_lines(text: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Return the frame that the parser would, or None if some line is malformed or not of the first line's layout."""
    fields = _read_layout(text[: text.find(b"\n")].rstrip(b"\r"), schema)
    if fields is None or b"\\" in text:
        return None
    if len(text) > 8 * _SAMPLE_BYTES:
        # Where lines differ they mostly differ soon, and a sample costs nothing.
        sample = text[: text.rfind(b"\n", 0, _SAMPLE_BYTES) + 1]
        if not sample or _parse(sample, fields, schema) is None:
            return None
    return _parse(text, fields, schema)


def _read_layout(line: bytes, schema: Mapping[str, pl.DataType]) -> list[_Field] | None:
    """Take the first line apart; None if it is no flat object or has a column that only the parser can read."""
    pieces = line.split(b",")
    fields: list[_Field] = []
    for ordinal, piece in enumerate(pieces):
        match = _FIELD.match(piece)
        if match is None:
            return None
        prefix, name, value, suffix = (part.decode("utf-8", "replace") for part in match.groups())
        is_first, is_last = ordinal == 0, ordinal == len(pieces) - 1
        if prefix.count("{") - name.count("{") != is_first or suffix.count("}") != is_last:
            return None
        if not is_last and suffix:
            return None  # Blank space before a comma: rare, and the parser knows what to do.
        kind = schema.get(name) if name in schema else _guess_kind(value)
        if kind is None or not _can_convert(kind):
            return None
        fields.append(_Field(name, prefix, suffix, kind, name in schema))
    names = [field.name for field in fields]
    return fields if len(set(names)) == len(names) and "\ufffd" not in "".join(names) else None


def _guess_kind(value: str) -> pl.DataType | None:
    """Return the kind of an undeclared value: it is not kept, but must be valid JSON all the same."""
    if value.startswith('"'):
        return pl.String()
    if value in ("true", "false"):
        return pl.Boolean()
    return pl.Float64() if re.match(_NUMBER, value) else None


def _can_convert(kind: pl.DataType) -> bool:
    return kind.is_integer() or kind.is_float() or isinstance(kind, pl.String | pl.Boolean | pl.Datetime | pl.Date)


def _parse(text: bytes, fields: list[_Field], schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    try:
        cuts = pl.read_csv(
            text,
            has_header=False,
            quote_char=None,
            schema={str(ordinal): pl.String() for ordinal in range(len(fields))},
        )
    except PolarsError:
        return None
    columns: dict[str, pl.Series] = {}
    quoted_values = 0
    for ordinal, field in enumerate(fields):
        bodies = _take_bodies(cuts.to_series(ordinal), field)
        if bodies is None:
            return None
        quoted, values = bodies.str.starts_with('"'), None
        quoted_count = int(quoted.sum())
        if isinstance(field.kind, pl.String | pl.Datetime | pl.Date) and quoted_count:
            values = _convert_quoted(bodies, quoted, quoted_count, field.kind)
        elif quoted_count == 0:
            values = _convert_bare(bodies, field.kind)
        if values is None:
            return None
        quoted_values += quoted_count
        if field.is_declared:
            columns[field.name] = values.alias(field.name)
    if quoted_values and not _is_plainly_quoted(text, cuts.height, 2 * (cuts.height * len(fields) + quoted_values)):
        return None
    height = cuts.height
    return pl.DataFrame(
        [
            columns.get(name, pl.repeat(None, height, dtype=kind, eager=True).alias(name))
            for name, kind in schema.items()
        ]
    )


def _take_bodies(cut: pl.Series, field: _Field) -> pl.Series | None:
    """Return the values' text; None unless every line has exactly the layout's text around it."""
    if cut.null_count() or not cut.str.starts_with(field.prefix).all():
        return None
    if field.suffix:
        if not cut.str.ends_with(field.suffix).all():
            return None
        cut = cut.str.head(-len(field.suffix))
    return cut.str.slice(len(field.prefix))


def _convert_quoted(bodies: pl.Series, quoted: pl.Series, quoted_count: int, kind: pl.DataType) -> pl.Series | None:
    """Return what stands in quotes; only nulls may stand beside."""
    if quoted_count < len(bodies):
        if not (quoted | (bodies == "null")).all():
            return None
        bodies = bodies.set(~quoted, None)
    if not bodies.str.ends_with('"').all() or (bodies.str.len_bytes() < 2).any():
        return None
    inside = bodies.str.head(-1).str.slice(1)
    return inside if isinstance(kind, pl.String) else convert_text(inside, kind)


def _convert_bare(bodies: pl.Series, kind: pl.DataType) -> pl.Series | None:
    """Return numbers and truth values; a string column has the parser's own form for them."""
    if isinstance(kind, pl.String | pl.Date):
        return None
    if isinstance(kind, pl.Boolean):
        if not bodies.is_in(_LITERALS).all():
            return None
        return (bodies == "true").set(bodies == "null", None)
    nulls = bodies == "null"
    if nulls.any():
        bodies = bodies.set(nulls, None)
    if kind.is_float():
        values = bodies.cast(pl.Float64, strict=False)
        fits = bodies.str.contains(_NUMBER).all() and values.is_finite().all()
        values = values.cast(kind)
    else:
        fits = _are_integers(bodies)
        values = bodies.cast(pl.Int64 if isinstance(kind, pl.Datetime) else kind, strict=False)
    if not fits or values.null_count() != bodies.null_count():
        return None
    return convert_text(bodies, kind) if isinstance(kind, pl.Datetime) else values


def _are_integers(bodies: pl.Series) -> bool:
    # A value that sorts at or after "1" begins with neither a sign nor a zero, and the cast refuses all else.
    lowest = bodies.min()
    if lowest is None or str(lowest) >= "1":
        return True
    doubtful = bodies.filter(bodies.str.starts_with("0") | bodies.str.starts_with("-") | bodies.str.starts_with("+"))
    return bool(doubtful.str.contains(_INTEGER).all())


def _is_plainly_quoted(text: bytes, rows: int, quotes: int) -> bool:
    """Say whether there are no quotes but the layout's and the values' own, and no control characters within lines."""
    found_quotes = control_characters = 0
    held = np.frombuffer(text, np.uint8)
    for start in range(0, len(held), _COUNTED_BYTES):
        piece = held[start : start + _COUNTED_BYTES]
        found_quotes += int(np.count_nonzero(piece == ord('"')))
        control_characters += int(np.count_nonzero(piece < ord(" ")))
    line_ends = rows if text.endswith(b"\n") else rows - 1
    return found_quotes == quotes and control_characters == line_ends
