"""JSON lines read one by one, to the letter: what every faster reader of them answers, too.

Other parsers take numbers for floats before they ask what a column holds. Here a number stays its digits until it is
known what to make of it, and whatever stands in a column of texts keeps its text as it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

import polars as pl

from anabranch.connectors.formats.rejects import shorten_raw
from anabranch.connectors.formats.schemas import whole_type
from anabranch.connectors.formats.text_values import (
    WORDS,
    Misfit,
    make_column,
    reader_of,
)

DEEPEST_NESTING = 500
"""Objects and arrays within each other, the line's own included. Python's and Polars' parsers go somewhat deeper."""

_Reader = Callable[[str, int], tuple[Any, int]]
_SHOWN_CHARACTERS = 200
_BLANKS = re.compile(r"[ \t\r\n]*")
_PLAIN_NAME = re.compile(r'"([^"\\\x00-\x1f]*+)"[ \t\r\n]*+:[ \t\r\n]*+')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"?')


class _Number(str):
    """A number, as its digits."""

    __slots__ = ()


class _NoConstant(Exception):
    """``NaN`` or ``Infinity``, which Python's parser would take."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoConstant(name)


_scan = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]


def read_exactly(
    lines: Sequence[bytes], schema: Mapping[str, pl.DataType]
) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Return the rows of the lines that hold a JSON object each, and the places and reasons of all others.

    Missing fields become null, fields that are not declared are ignored, of a field that comes twice the first counts.
    """
    readers = {column: _reader_of_column(column, whole_type(kind)) for column, kind in schema.items()}
    rows: list[dict[str, Any]] = []
    faults: list[tuple[int, str]] = []
    for place, line in enumerate(lines):
        try:
            rows.append(_read_line(line, readers))
        except Misfit as misfit:
            faults.append((place, str(misfit)))
    columns = [make_column(column, [row.get(column) for row in rows], kind) for column, kind in schema.items()]
    return pl.DataFrame(columns), faults


def _read_line(line: bytes, readers: Mapping[str, _Reader]) -> dict[str, Any]:
    try:
        # What a line ends with has no say in what is wrong with it.
        text = line.rstrip(b" \t\r\n").decode()
        _check_depth(text)
        at = _skip_blanks(text, 0)
        row, at = _read_object(text, at, readers) if text.startswith("{", at) else _scan(text, at)
        end = _skip_blanks(text, at)
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Misfit(f"not JSON: {error.msg} at character {error.pos}") from None
    except StopIteration as stop:
        raise Misfit(f"not JSON: Expecting value at character {stop.value}") from None
    except _NoConstant as constant:
        raise Misfit(f"not JSON: {constant} is no value of JSON") from None
    if not isinstance(row, dict):
        raise Misfit(f"not a JSON object: found the {_name_kind(row)} {_show(text.strip())}")
    return row


def _reader_of_column(column: str, kind: pl.DataType) -> _Reader:
    read_value = _reader_of(kind)

    def read(text: str, at: int) -> tuple[Any, int]:
        try:
            return read_value(text, at)
        except Misfit as misfit:
            found, end = _scan(text, at)
            reason = f", {misfit}" if str(misfit) else ""
            msg = (
                f"column {column!r} is declared as {kind}, found the {_name_kind(found)} {_show(text[at:end])}{reason}"
            )
            raise Misfit(msg) from None

    return read


def _reader_of(kind: pl.DataType) -> _Reader:
    """Return what reads a value of a type that begins at a place in a text, and where the value ends."""
    if isinstance(kind, pl.Struct):
        fields = {field.name: _reader_of(whole_type(field.dtype)) for field in kind.fields}

        def read_struct(text: str, at: int) -> tuple[Any, int]:
            if not text.startswith("{", at):
                return _read_null(text, at)
            members, end = _read_object(text, at, fields)
            return {name: members.get(name) for name in fields}, end

        return read_struct
    if isinstance(kind, pl.List | pl.Array):
        read_item, size = _reader_of(whole_type(kind.inner)), kind.size if isinstance(kind, pl.Array) else None

        def read_list(text: str, at: int) -> tuple[Any, int]:
            if not text.startswith("[", at):
                return _read_null(text, at)
            items, end = _read_array(text, at, read_item)
            if size is not None and len(items) != size:
                raise Misfit(f"which has {len(items)} items")
            return items, end

        return read_list
    fit = _fitter_of(kind)

    def read_single(text: str, at: int) -> tuple[Any, int]:
        value, end = _scan(text, at)
        return None if value is None else fit(value, text[at:end]), end

    return read_single


def _fitter_of(kind: pl.DataType) -> Callable[[Any, str], Any]:
    """Return what makes a value of a type of what was parsed, and of its text."""
    if isinstance(kind, pl.Null):
        return lambda *_: _refuse()
    read = reader_of(kind)
    if isinstance(kind, WORDS):
        return lambda value, raw: read(value if type(value) is str else raw)
    if isinstance(kind, pl.Boolean):
        return lambda value, _: value if type(value) is bool else _refuse()
    if kind.is_integer() or kind.is_float():
        return lambda value, _: read(value) if type(value) is _Number else _refuse()
    if isinstance(kind, pl.Date | pl.Time):
        return lambda value, _: read(value) if type(value) is str else _refuse()
    return lambda value, _: read(value) if isinstance(value, str) else _refuse()


def _refuse() -> NoReturn:
    raise Misfit


def _read_null(text: str, at: int) -> tuple[None, int]:
    value, end = _scan(text, at)
    return (None, end) if value is None else _refuse()


def _read_object(text: str, at: int, readers: Mapping[str, _Reader]) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    at = _skip_blanks(text, at + 1)
    if text.startswith("}", at):
        return members, at + 1
    while True:
        match = _PLAIN_NAME.match(text, at)
        name, at = (match[1], match.end()) if match else _read_name(text, at)
        if name in readers and name not in members:
            members[name], at = readers[name](text, at)
        else:
            _, at = _scan(text, at)
        at = _skip_blanks(text, at)
        if text.startswith("}", at):
            return members, at + 1
        at = _pass_comma(text, at)


def _read_name(text: str, at: int) -> tuple[str, int]:
    """Return a member's name, and where its value begins."""
    if not text.startswith('"', at):
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, at = scanstring(text, at + 1, True)
    at = _skip_blanks(text, at)
    if not text.startswith(":", at):
        raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, _skip_blanks(text, at + 1)


def _read_array(text: str, at: int, read_item: _Reader) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _skip_blanks(text, at + 1)
    if text.startswith("]", at):
        return items, at + 1
    while True:
        item, at = read_item(text, at)
        items.append(item)
        at = _skip_blanks(text, at)
        if text.startswith("]", at):
            return items, at + 1
        at = _pass_comma(text, at)


def _pass_comma(text: str, at: int) -> int:
    if not text.startswith(",", at):
        raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return _skip_blanks(text, at + 1)


def _skip_blanks(text: str, at: int) -> int:
    if text[at : at + 1] > " ":
        return at
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


def _check_depth(text: str) -> None:
    # Two parsers with two limits would disagree; one of them would even depend on how deep the caller's stack is.
    if text.count("{") + text.count("[") <= DEEPEST_NESTING:
        return
    depth = 0
    for mark in re.findall(r"[\[{\]}]", _STRING.sub("", text)):
        depth += 1 if mark in "[{" else -1
        if depth > DEEPEST_NESTING:
            raise Misfit(f"not JSON that is read here: nested deeper than {DEEPEST_NESTING} levels")


def _show(text: str) -> str:
    return shorten_raw(text.encode("utf-8", "backslashreplace"))[:_SHOWN_CHARACTERS]


def _name_kind(value: Any) -> str:
    if type(value) is _Number:
        return "number" if set(value) & set(".eE") else "integer"
    return {dict: "object", list: "array", str: "string", bool: "boolean"}.get(type(value), "null")
