"""JSON lines to frames of a declared schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from anabranch.connectors.alike_lines import parse_alike_lines
from anabranch.connectors.number_lines import WORTH_COMPILED_CODE_BYTES
from anabranch.connectors.rejects import set_faulty_lines_apart, shorten_raw, sieve_lines
from anabranch.connectors.text_values import TEXT_TYPES, convert_text, explain_time, may_be_time
from anabranch.connectors.uniform_json import parse_uniform_lines
from anabranch.errors import FlowError
from anabranch.model import ReadOutcome

# Types that the NDJSON parser does not know, and what they are read as before a strict cast.
_WIRE_TYPES: dict[type[pl.DataType], pl.DataType] = {
    pl.Int8: pl.Int64(),
    pl.Int16: pl.Int64(),
    pl.UInt8: pl.Int64(),
    pl.UInt16: pl.Int64(),
} | dict.fromkeys(TEXT_TYPES, pl.String())
_REFUSED_TYPES = (pl.Duration, pl.Binary, pl.Object, pl.Unknown)
_UNIFORM_FROM_BYTES = 64 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def check_json_schema(schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` for types that JSON text has no form for."""
    for column, kind in schema.items():
        if isinstance(kind, _REFUSED_TYPES):
            msg = (
                f"column {column!r} is declared as {kind}, which JSON lines cannot hold; "
                f"declare pl.String or pl.Int64 and convert it with with_columns"
            )
            raise FlowError(msg)


def parse_json_lines(text: bytes, schema: Mapping[str, pl.DataType]) -> ReadOutcome:
    """Parse JSON lines; rows that are no JSON object or hold a value of another type are rejected.

    Missing fields become null, fields that are not declared are ignored, blank lines are skipped. An integer is
    accepted for a float column and any value for a string column (as its JSON text); ``1.0`` is no integer. Times are
    ISO 8601 text or whole numbers since 1970 in the column's own unit.
    """
    if text.startswith(_BYTE_ORDER_MARK):
        text = text[3:]
    frame = parse_intact_lines(text, schema)
    if frame is not None:
        return ReadOutcome(frame)
    return sieve_lines(
        text.splitlines(keepends=True) if b"\r" not in text else _split_at_newlines(text),
        partial(_parse_strictly, schema=schema),
        partial(_find_fault, schema=schema),
        partial(_explain, schema=schema),
    )


def parse_intact_lines(text: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Return the frame of lines as ``parse_json_lines`` reads them, or None if any of them is malformed."""
    frame = parse_alike_lines(text, schema) if len(text) >= WORTH_COMPILED_CODE_BYTES else None
    if frame is None and len(text) >= _UNIFORM_FROM_BYTES:
        frame = parse_uniform_lines(text, schema)
    return _parse_strictly(text, schema) if frame is None else frame


def parse_each_line(
    lines: Sequence[bytes], schema: Mapping[str, pl.DataType]
) -> tuple[list[pl.DataFrame], list[tuple[int, str]]]:
    """Return the frames of the lines that hold one JSON object each, and place and reason of every other line.

    Each line ends with a line end and has no other; one that is blank or holds several objects is malformed here.
    """

    def parse(text: bytes) -> pl.DataFrame | None:
        frame = _parse_strictly(text, schema)
        return frame if frame is not None and frame.height == text.count(b"\n") else None

    return set_faulty_lines_apart(lines, parse, partial(_find_fault, schema=schema), partial(_explain, schema=schema))


def _split_at_newlines(text: bytes) -> list[bytes]:
    # bytes.splitlines also cuts at a lone carriage return, which is blank space inside a JSON line.
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return [line for line in lines if line]


def _parse_strictly(text: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Return the frame, or None if any line is malformed."""
    if not text or text.isspace():
        return pl.DataFrame(schema=dict(schema))
    wire = {column: _WIRE_TYPES.get(type(kind), kind) for column, kind in schema.items()}
    try:
        frame = pl.read_ndjson(text, schema=wire)
        for column, kind in schema.items():
            if isinstance(kind, TEXT_TYPES):
                converted = convert_text(frame[column], kind)
                if converted is None:
                    return None
                frame = frame.with_columns(converted.alias(column))
            elif wire[column] != kind:
                frame = frame.with_columns(pl.col(column).cast(kind, strict=True))
        return frame
    except PolarsError:
        return None


def _find_fault(line: bytes, schema: Mapping[str, pl.DataType]) -> str | None:
    """Return why the parser would surely reject a line, None if it may accept it."""
    try:
        # Of a key that comes twice the parser takes the first value.
        value: Any = json.loads(line.rstrip(b"\r\n"), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos}" if line.strip() else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return f"not a JSON object: found the {_name_kind(value)} {shorten_raw(line)[:200]}"
    for column, kind in schema.items():
        found = value.get(column)
        if found is not None and not _may_hold(kind, found):
            return _blame(column, kind, found)
    return None


def _may_hold(kind: pl.DataType, value: Any) -> bool:
    if kind.is_integer():
        return type(value) is int and -(2**127) <= value < 2**128
    if kind.is_float():
        return type(value) in (int, float)
    if isinstance(kind, pl.Boolean):
        return type(value) is bool
    if isinstance(kind, pl.Datetime | pl.Date):
        # The parser writes 5.0 as the text 5, which then is a whole number.
        return type(value) is float or (type(value) in (int, str) and may_be_time(str(value), kind))
    return True


def _explain(line: bytes, schema: Mapping[str, pl.DataType]) -> str:
    """Say why a line was rejected, in words that name the column where one is to blame."""
    fault = _find_fault(line, schema)
    if fault is not None:
        return fault
    try:
        value: dict[str, Any] = json.loads(line.rstrip(b"\r\n"))
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    for column, kind in schema.items():
        if value.get(column) is None:
            continue
        alone = json.dumps({column: value[column]}).encode()
        if _parse_strictly(alone, {column: kind}) is None:
            return _blame(column, kind, value[column])
    return "not JSON that the parser accepts"


def _blame(column: str, kind: pl.DataType, value: Any) -> str:
    found = shorten_raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))[:200]
    reason = explain_time(value, kind) if isinstance(value, str) else None
    return f"column {column!r} is declared as {kind}, found the {_name_kind(value)} {found}" + (
        f", {reason}" if reason else ""
    )


def _name_kind(value: Any) -> str:
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return kinds.get(type(value), "null")
