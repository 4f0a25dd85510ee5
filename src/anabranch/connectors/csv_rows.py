"""CSV lines to frames of a declared schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from anabranch.connectors.bad_files import BadFile
from anabranch.connectors.number_lines import WORTH_COMPILED_CODE_BYTES, NumberField, parse_number_lines
from anabranch.connectors.rejects import sieve_lines
from anabranch.connectors.text_values import TEXT_TYPES, convert_text, explain_time, may_be_time
from anabranch.errors import FlowError
from anabranch.model import ReadOutcome

# Characters that no number has, whatever else the parser lets pass (signs, blanks, exponents, inf and nan).
_NO_INTEGER = re.compile(r"[^0-9+\-\s]")
_NO_NUMBER = re.compile(r"[^0-9+\-.,eEinfatyINFATY\s]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REFUSED_TYPES = (pl.Duration, pl.Binary, pl.List, pl.Array, pl.Struct, pl.Null, pl.Object, pl.Unknown)


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
            if value is not None and (len(value) != 1 or not value.isascii()):
                msg = f"the CSV {name} must be one ASCII character, found {value!r}"
                raise FlowError(msg)


def check_csv_schema(schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``FlowError`` for types that CSV text has no form for."""
    for column, kind in schema.items():
        if isinstance(kind, _REFUSED_TYPES):
            msg = (
                f"column {column!r} is declared as {kind}, which CSV cannot hold; "
                f"declare pl.String or pl.Int64 and convert it with with_columns"
            )
            raise FlowError(msg)


def read_header(line: bytes, dialect: CsvDialect) -> list[str]:
    """Return the column names in a header line."""
    text = line.removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "replace").rstrip("\r\n")
    return _split_fields(text, dialect)


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
    rows = _Rows(schema, file_columns, dialect)
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if text and not text.endswith(b"\n"):
        text += b"\n"  # The parser judges a stray quote in the last line by whether the line has an end.
    frame = rows.parse(text)
    if frame is not None:
        return ReadOutcome(frame)
    return sieve_lines(rows.split(text), rows.parse, rows.find_fault, rows.explain)


class _Rows:
    """Parses CSV text of one file's columns."""

    def __init__(self, schema: Mapping[str, pl.DataType], file_columns: Sequence[str], dialect: CsvDialect) -> None:
        self._schema = schema
        self._dialect = dialect
        self._width = len(file_columns)
        self._file_columns = file_columns
        self._file_schema = {
            column: pl.String() if isinstance(schema.get(column), TEXT_TYPES) else schema.get(column, pl.String())
            for column in file_columns
        }
        # Short rows are filled with nulls without a word; only a null in the last column can be such a row.
        self._last = file_columns[-1]
        self._parsed_columns = list(dict.fromkeys([*schema, self._last]))

    def parse(self, text: bytes) -> pl.DataFrame | None:
        """Return the declared columns, or None if any row is malformed."""
        if not text:
            return pl.DataFrame(schema=dict(self._schema))
        if len(text) >= WORTH_COMPILED_CODE_BYTES:
            numbers = self._read_numbers(text)
            if numbers is not None:
                return numbers
        try:
            frame = (
                pl.scan_csv(
                    text,
                    has_header=False,
                    schema=self._file_schema,
                    separator=self._dialect.separator,
                    quote_char=self._dialect.quote,
                    null_values=list(self._dialect.null_values) or None,
                )
                .select(self._parsed_columns)
                .collect()
            )
        except PolarsError:
            return None
        if not self._dialect.quoted_newlines and frame.height != _count_lines(text):
            return None  # A quote without its pair swallowed a line end.
        if frame[self._last].null_count() and self._has_short_rows(text, frame.height):
            return None
        for column, kind in self._schema.items():
            if isinstance(kind, TEXT_TYPES):
                converted = convert_text(frame[column], kind)
                if converted is None:
                    return None
                frame = frame.with_columns(converted.alias(column))
        return frame.select(list(self._schema))

    def _read_numbers(self, text: bytes) -> pl.DataFrame | None:
        """Return the frame if every column is declared as Int64 or Float64 and no number is unusual."""
        kinds = [self._schema.get(column) for column in self._file_columns]
        if self._dialect.null_values or not all(kind in (pl.Int64, pl.Float64) for kind in kinds):
            return None
        separator = self._dialect.separator.encode()
        fields = [NumberField(separator if ordinal else b"", kind == pl.Float64) for ordinal, kind in enumerate(kinds)]
        columns = parse_number_lines(text, fields)
        if columns is None:
            return None
        named = dict(zip(self._file_columns, columns, strict=True))
        return pl.DataFrame([named[column].alias(column) for column in self._schema])

    def _has_short_rows(self, text: bytes, rows: int) -> bool:
        separator, quote = self._dialect.separator.encode(), (self._dialect.quote or "").encode()
        if self._width > 1 and (not quote or quote not in text):
            return text.count(separator) != rows * (self._width - 1)
        return any(_is_blank(line) for line in text.split(b"\n")[:-1]) or any(
            len(self._fields(record)) != self._width for record in self.split(text)
        )

    def split(self, text: bytes) -> list[bytes]:
        """Cut text into records, without blank lines: lines, or several of them where quotes span line ends."""
        lines = text.split(b"\n")
        records = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        if not (self._dialect.quoted_newlines and self._dialect.quote):
            return [record for record in records if not _is_blank(record)]
        quote = self._dialect.quote.encode()
        joined: list[bytes] = []
        is_open = False
        for record in records:
            if is_open:
                joined[-1] += record
            elif not _is_blank(record):
                joined.append(record)
            is_open ^= bool(record.count(quote) % 2)
        return joined

    def find_fault(self, record: bytes) -> str | None:
        """Return why the parser would surely reject a record, None if it may accept it."""
        if not self._is_well_quoted(record):
            return None
        fields = self._fields(record)
        if len(fields) != self._width:
            return self._blame_width(fields)
        for column, field in zip(self._file_columns, fields, strict=True):
            kind = self._schema.get(column)
            if kind is not None and field and field not in self._dialect.null_values and not _may_hold(kind, field):
                return self._blame(column, field)
        return None

    def explain(self, record: bytes) -> str:
        """Say why a record was rejected."""
        fields = self._fields(record)
        if len(fields) != self._width:
            return self._blame_width(fields)
        for column, field in zip(self._file_columns, fields, strict=True):
            if column not in self._schema or not field or field in self._dialect.null_values:
                continue
            alone = _Rows({column: self._schema[column]}, [column], CsvDialect(header=False, quoted_newlines=True))
            quoted = '"' + field.replace('"', '""') + '"\n'
            if alone.parse(quoted.encode("utf-8", "surrogatepass")) is None:
                return self._blame(column, field)
        try:
            record.decode("utf-8")
        except UnicodeDecodeError as error:
            return f"not UTF-8: {error.reason} at byte {error.start}"
        return "not CSV that the parser accepts: check its quotes"

    def _is_well_quoted(self, record: bytes) -> bool:
        """Say whether quotes stand around whole fields only, so that no two readers cut the record differently."""
        if self._dialect.quote is None or self._dialect.quote.encode() not in record:
            return True
        separator, quote = re.escape(self._dialect.separator.encode()), re.escape(self._dialect.quote.encode())
        field = b"(?:[^%b%b]*|%b(?:[^%b]|%b%b)*%b)" % (separator, quote, quote, quote, quote, quote, quote)
        return re.fullmatch(b"%b(?:%b%b)*\r?\n?" % (field, separator, field), record) is not None

    def _fields(self, record: bytes) -> list[str]:
        return _split_fields(record.decode("utf-8", "replace").rstrip("\r\n"), self._dialect)

    def _blame_width(self, fields: Sequence[str]) -> str:
        return f"{len(fields)} fields where there should be {self._width}"

    def _blame(self, column: str, field: str) -> str:
        reason = explain_time(field, self._schema[column])
        found = f"column {column!r} is declared as {self._schema[column]}, found {field[:200]!r}"
        return f"{found}, {reason}" if reason else found


def _may_hold(kind: pl.DataType, field: str) -> bool:
    if kind.is_numeric():
        return not (_NO_INTEGER if kind.is_integer() else _NO_NUMBER).search(field)
    return may_be_time(field, kind)


def _count_lines(text: bytes) -> int:
    line_ends = int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
    return line_ends + (not text.endswith(b"\n"))


def _is_blank(record: bytes) -> bool:
    return not record.strip(b"\r\n")


def _split_fields(text: str, dialect: CsvDialect) -> list[str]:
    if dialect.quote is None or dialect.quote not in text:
        return text.split(dialect.separator)
    fields = [""]
    for ordinal, piece in enumerate(text.split(dialect.quote)):
        if ordinal:
            fields[-1] += dialect.quote
        # Every second piece stands within quotes, where separators do not count.
        first, *others = [piece] if ordinal % 2 else piece.split(dialect.separator)
        fields[-1] += first
        fields += others
    return [_unquote(field, dialect.quote) for field in fields]


def _unquote(field: str, quote: str) -> str:
    is_quoted = len(field) >= 2 and field.startswith(quote) and field.endswith(quote)
    return field[1:-1].replace(quote * 2, quote) if is_quoted else field
