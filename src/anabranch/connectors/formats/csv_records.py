"""CSV text cut into records and fields, to the letter: what every faster reader of it answers, too.

A field that begins with a quote ends with one, and has two for each that it holds. A field that begins with anything
else ends at the next separator or line end, and quotes in it are text like any other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from anabranch.connectors.formats.text_values import WORDS, Misfit, make_column, reader_of
from anabranch.errors import FlowError

_LINE_END, _RETURN = b"\n\r"
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How the CSV files are written."""

    separator: str = ","
    quote: str | None = '"'
    header: bool = True
    null_values: tuple[str, ...] = ()
    """What stands for null besides an empty field."""
    quoted_newlines: bool = False
    """Whether a quoted field may hold a line end; such files are read whole, not in ranges."""

    def __post_init__(self) -> None:
        for name, value in (("separator", self.separator), ("quote", self.quote)):
            if value is not None and (len(value) != 1 or not value.isascii() or value in "\r\n"):
                msg = f"the CSV {name} must be one ASCII character and no line end, found {value!r}"
                raise FlowError(msg)
        if self.separator == self.quote:
            msg = f"the CSV separator and quote are both {self.quote!r}; they must differ"
            raise FlowError(msg)


def is_regularly_quoted(text: bytes, dialect: CsvDialect) -> bool:
    """Say whether quotes stand around whole fields only; the last field may lack its end.

    Then a line end with an even number of quotes before it ends a record, and no two readers cut the text differently.
    """
    if dialect.quote is None or dialect.quote.encode() not in text:
        return True
    quote, separator = ord(dialect.quote), ord(dialect.separator)
    letters = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(letters == quote)
    opening, closing = quotes[0::2], quotes[1::2]
    if not len(closing) or closing[-1] + 1 == len(letters):
        closing = closing[:-1]  # Nothing is behind it.
    before = letters[opening[1:] - 1 if opening[0] == 0 else opening - 1]
    behind = letters[closing + 1]
    is_opening = (before == separator) | (before == _LINE_END) | (before == quote)
    # A return ends a field only before a line end; whether all do is the caller's question.
    is_closing = (behind == separator) | (behind == _LINE_END) | (behind == quote) | (behind == _RETURN)
    return bool(is_opening.all() and is_closing.all())


def split_records(text: bytes, dialect: CsvDialect) -> list[bytes]:
    """Cut text into records, blank lines left out: lines, or several of them where quotes span line ends.

    A quote that is never closed spoils its own line only.
    """
    if dialect.quote is None or not dialect.quoted_newlines or dialect.quote.encode() not in text:
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_END) + 1
    else:
        ends = np.array(_find_record_ends(text, dialect))
    places = [0, *ends.tolist()]
    if places[-1] < len(text):
        places.append(len(text))
    records = [text[first:last] for first, last in itertools.pairwise(places)]
    return [record for record in records if record.strip(b"\r\n")]


def find_last_record_end(text: bytes, dialect: CsvDialect) -> int:
    """Return the place behind the last record that surely ends in a text which goes on; 0 if none does."""
    if dialect.quote is None or not dialect.quoted_newlines or dialect.quote.encode() not in text:
        return text.rfind(b"\n") + 1
    ends = _find_record_ends(text, dialect, is_all=False)
    return ends[-1] if len(ends) else 0


def _find_record_ends(text: bytes, dialect: CsvDialect, *, is_all: bool = True) -> Sequence[int]:
    """Return the places behind the records that end with a line end."""
    assert dialect.quote is not None
    letters = np.frombuffer(text, np.uint8)
    if is_regularly_quoted(text, dialect):
        quotes = np.flatnonzero(letters == ord(dialect.quote))
        line_ends = np.flatnonzero(letters == _LINE_END)
        if len(quotes) % 2 == 0 or not is_all:
            ends: list[int] = (line_ends[np.searchsorted(quotes, line_ends) % 2 == 0] + 1).tolist()
            return ends
    return _walk_record_ends(text, dialect, is_all)


def _walk_record_ends(text: bytes, dialect: CsvDialect, is_all: bool) -> list[int]:
    """Find the ends of records field by field."""
    assert dialect.quote is not None
    quote, separator = re.escape(dialect.quote.encode()), re.escape(dialect.separator.encode())
    quoted = re.compile(b"%b(?:[^%b]|%b%b)*+%b" % (quote, quote, quote, quote, quote))
    plain = re.compile(b"[^%b\n]*+" % separator)
    ends: list[int] = []
    at = 0
    while at < len(text):
        start = at
        while True:
            if text.startswith(dialect.quote.encode(), at):
                match = quoted.match(text, at)
                if match is None:
                    if not is_all:
                        return ends  # The quote may be closed in what follows.
                    at = start  # Never closed.
                    match = re.compile(b"[^\n]*+").match(text, at)
                    assert match is not None
                    at = match.end()
                    break
                at = match.end()
            # What follows a closing quote at once spoils the record, which then ends with its line.
            match = plain.match(text, at)
            assert match is not None
            at = match.end()
            if not text.startswith(dialect.separator.encode(), at):
                break
            at += 1
        if at >= len(text):
            break
        at += 1
        ends.append(at)
    return ends


class ExactCsv:
    """Reads records of one file's columns, one by one."""

    def __init__(self, schema: Mapping[str, pl.DataType], file_columns: Sequence[str], dialect: CsvDialect) -> None:
        self._schema = schema
        self._file_columns = file_columns
        self._dialect = dialect

    def read(self, records: Sequence[bytes]) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
        """Return the rows of the records that are well formed, and the places and reasons of all others."""
        rows: list[dict[str, Any]] = []
        faults: list[tuple[int, str]] = []
        for place, record in enumerate(records):
            try:
                rows.append(self._read_record(record))
            except Misfit as misfit:
                faults.append((place, str(misfit)))
        columns = [make_column(column, [row[column] for row in rows], kind) for column, kind in self._schema.items()]
        return pl.DataFrame(columns), faults

    def _read_record(self, record: bytes) -> dict[str, Any]:
        try:
            text = record.decode()
        except UnicodeDecodeError as error:
            raise Misfit(f"not UTF-8: {error.reason} at byte {error.start}") from None
        fields = split_fields(text.removesuffix("\n").removesuffix("\r"), self._dialect)
        if len(fields) != len(self._file_columns):
            raise Misfit(f"{len(fields)} fields where there should be {len(self._file_columns)}")
        return {
            column: self._read_field(column, *field)
            for column, field in zip(self._file_columns, fields, strict=True)
            if column in self._schema
        }

    def _read_field(self, column: str, field: str, is_quoted: bool) -> Any:
        kind = self._schema[column]
        if field in self._dialect.null_values or (not field and not (is_quoted and isinstance(kind, WORDS))):
            return None
        try:
            return reader_of(kind)(field)
        except Misfit as misfit:
            reason = f", {misfit}" if str(misfit) else ""
            msg = f"column {column!r} is declared as {kind}, found {field[:_SHOWN_CHARACTERS]!r}{reason}"
            raise Misfit(msg) from None


def split_fields(text: str, dialect: CsvDialect) -> list[tuple[str, bool]]:
    """Return the fields of a record, and which of them were quoted; raise ``Misfit`` if quotes are amiss."""
    quote = dialect.quote
    if quote is None or quote not in text:
        return [(field, False) for field in text.split(dialect.separator)]
    fields: list[tuple[str, bool]] = []
    at = 0
    while True:
        if text.startswith(quote, at):
            field, end = _read_quoted(text, at, quote, dialect.separator)
        else:
            end = text.find(dialect.separator, at)
            end = len(text) if end < 0 else end
            field = text[at:end]
        fields.append((field, text.startswith(quote, at)))
        if end >= len(text):
            return fields
        at = end + 1


def _read_quoted(text: str, at: int, quote: str, separator: str) -> tuple[str, int]:
    end = at + 1
    while True:
        end = text.find(quote, end)
        if end < 0:
            raise Misfit(f"not CSV: the quote at character {at} is not closed")
        if not text.startswith(quote, end + 1):
            break
        end += 2
    if end + 1 < len(text) and not text.startswith(separator, end + 1):
        raise Misfit(f"not CSV: text behind the closing quote at character {end}")
    return text[at + 1 : end].replace(quote * 2, quote), end + 1
