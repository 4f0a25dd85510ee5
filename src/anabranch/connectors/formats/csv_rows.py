"""CSV lines to frames of a declared schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import polars.selectors as cs
from polars.exceptions import PanicException, PolarsError

from anabranch.connectors.filesystem.bad_files import BadFile
from anabranch.connectors.formats.csv_records import (
    CsvDialect,
    ExactCsv,
    is_regularly_quoted,
    split_fields,
    split_records,
)
from anabranch.connectors.formats.number_lines import WORTH_COMPILED_CODE_BYTES, NumberField, parse_number_lines
from anabranch.connectors.formats.rejects import sieve_lines
from anabranch.connectors.formats.text_columns import convert_text, narrow_floats
from anabranch.connectors.formats.text_values import WORDS, is_leaf_type, is_utf8
from anabranch.errors import FlowError
from anabranch.model import ReadOutcome

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PARTS_OF_NUMBERS = "0123456789.-"
_BLANK_LINE = re.compile(rb"^\r?\n", re.MULTILINE)


def check_csv_schema(schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` for types that CSV text has no form for."""
    for column, kind in schema.items():
        if not is_leaf_type(kind):
            msg = (
                f"column {column!r} is declared as {kind}, which CSV cannot hold; "
                f"declare pl.String or pl.Int64 and convert it with with_columns"
            )
            raise FlowError(msg)


def read_header(line: bytes, dialect: CsvDialect) -> list[str]:
    """Return the column names in a header line; raise ``Misfit`` if its quotes are amiss."""
    text = line.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "replace").rstrip("\r\n")
    return [name for name, _ in split_fields(text, dialect)]


def check_header(path: str, found: Sequence[str]) -> None:
    """Raise ``BadFile`` if a file's header has a name twice."""
    twice = sorted({column for column in found if list(found).count(column) > 1})
    if twice:
        raise BadFile(path, f"has the columns {twice} more than once in its header", "rename one of each")


def parse_csv_lines(
    text: bytes, schema: Mapping[str, pl.DataType], file_columns: Sequence[str], dialect: CsvDialect
) -> ReadOutcome:
    """Parse CSV lines (no header line) that have these columns in this order; keep the declared ones.

    A row with another number of fields, or with a value that its column's type cannot hold, is rejected. Blank lines
    are skipped. An empty field is null, a quoted empty one is an empty string.
    """
    rows = _UsualCsv(schema, file_columns, dialect)
    if text and not text.endswith(b"\n"):
        text += b"\n"  # The parser judges a stray quote in the last line by whether the line has an end.
    frame = rows.parse(text)
    if frame is not None:
        return ReadOutcome(frame)
    exact = ExactCsv(schema, file_columns, dialect)
    return sieve_lines(split_records(text, dialect), lambda records: rows.parse(b"".join(records)), exact.read)


class _UsualCsv:
    """Parses CSV text of one file's columns by compiled code and by Polars' parser, or not at all."""

    def __init__(self, schema: Mapping[str, pl.DataType], file_columns: Sequence[str], dialect: CsvDialect) -> None:
        self._schema = schema
        self._dialect = dialect
        self._width = len(file_columns)
        self._file_columns = file_columns
        # Only a null in the last column can be a short row.
        self._last = file_columns[-1]
        self._numbers: dict[str, pl.DataType] = {
            column: kind for column, kind in schema.items() if kind.is_integer()
        } | {column: pl.Float64() for column, kind in schema.items() if kind.is_float()}

    def parse(self, text: bytes) -> pl.DataFrame | None:
        """Return the declared columns; None if a record is malformed, or a matter for ``ExactCsv``."""
        if not text:
            return pl.DataFrame(schema=dict(self._schema))
        if len(text) >= WORTH_COMPILED_CODE_BYTES:
            numbers = self._read_numbers(text)
            if numbers is not None:
                return numbers
        if self._is_odd(text):
            return None
        # The parser reads numbers as they are meant here, but for blanks before them.
        if self._numbers and not (b" " in text or b"\t" in text):
            frame = self._scan(text, self._numbers)
            # Too large a number has become infinite, as has one that was written so.
            if frame is not None and all(column.is_finite().all() for column in frame.select(cs.float())):
                return self._convert(frame)
        frame = self._scan(text, {})
        return None if frame is None else self._convert(frame)

    def _is_odd(self, text: bytes) -> bool:
        """Say whether the parser may cut the text in another way than it should.

        It takes a return off any field's end, a byte order mark off the beginning, and quotes that stand oddly as it
        pleases; and it does not look at columns that are not asked for.
        """
        return (
            text.startswith(_BYTE_ORDER_MARK)
            # Mostly there is none, and to look for one takes a twentieth of the time that counting takes.
            or (b"\r" in text and text.count(b"\r") != text.count(b"\r\n"))
            or not is_regularly_quoted(text, self._dialect)
            or not is_utf8(text)
        )

    def _scan(self, text: bytes, numbers: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
        """Return the declared columns, and the last, as text but for these; None if a record has no such fields."""
        try:
            frame = (
                pl.scan_csv(
                    text,
                    has_header=False,
                    schema={column: numbers.get(column, pl.String()) for column in self._file_columns},
                    separator=self._dialect.separator,
                    quote_char=self._dialect.quote,
                    null_values=list(self._dialect.null_values) or None,
                )
                .select(list(dict.fromkeys([*self._schema, self._last])))
                .collect()
            )
        except (PolarsError, PanicException):
            return None
        if not self._dialect.quoted_newlines and _count_line_ends(text) != frame.height:
            return None  # A quoted line end, or blank lines.
        # The parser fills short rows with nulls, and passes over what is too long where not all columns are wanted.
        is_doubtful = frame.width < self._width or frame.get_column(self._last).null_count()
        return None if is_doubtful and self._has_odd_rows(text, frame.height) else frame

    def _convert(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        columns: list[pl.Series] = []
        for name, kind in self._schema.items():
            column = frame.get_column(name)
            if column.dtype == pl.String and not isinstance(kind, WORDS):
                is_empty = column == ""
                column = column.set(is_empty, None) if is_empty.any() else column
            converted = narrow_floats(column, kind) if column.dtype == pl.Float64 else column
            if column.dtype == pl.String:
                converted = convert_text(column, kind)
            if converted is None:
                return None
            columns.append(converted.alias(name))
        return pl.DataFrame(columns)

    def _read_numbers(self, text: bytes) -> pl.DataFrame | None:
        """Return the frame if every column is declared as Int64 or Float64 and no number is unusual."""
        kinds = [self._schema.get(column) for column in self._file_columns]
        if self._dialect.null_values or not all(kind in (pl.Int64, pl.Float64) for kind in kinds):
            return None
        if self._dialect.separator in _PARTS_OF_NUMBERS or (self._dialect.quote or "x") in _PARTS_OF_NUMBERS:
            return None
        separator = self._dialect.separator.encode()
        fields = [NumberField(separator if ordinal else b"", kind == pl.Float64) for ordinal, kind in enumerate(kinds)]
        columns = parse_number_lines(text, fields)
        if columns is None:
            return None
        named = dict(zip(self._file_columns, columns, strict=True))
        return pl.DataFrame([named[column].alias(column) for column in self._schema])

    def _has_odd_rows(self, text: bytes, rows: int) -> bool:
        """Say whether a row has too few or too many fields, or a line is blank."""
        if self._width == 1 and _BLANK_LINE.search(text):
            return True
        letters = np.frombuffer(text, np.uint8)
        separators, ends = (np.flatnonzero(letters == ord(mark)) for mark in (self._dialect.separator, "\n"))
        if self._dialect.quote is not None and self._dialect.quote.encode() in text:
            quotes = np.flatnonzero(letters == ord(self._dialect.quote))
            separators, ends = (marks[np.searchsorted(quotes, marks) % 2 == 0] for marks in (separators, ends))
        in_row = np.diff(np.searchsorted(separators, ends), prepend=0)
        return len(ends) != rows or bool((in_row != self._width - 1).any())


def _count_line_ends(text: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
