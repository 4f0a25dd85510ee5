"""Splits of files to frames, in tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa
from polars.exceptions import PanicException, PolarsError

from anabranch.connectors.filesystem.bad_files import BadFile
from anabranch.connectors.filesystem.column_fits import columns_to_read, find_misfit, fit_rows
from anabranch.connectors.filesystem.line_ranges import (
    CompressedDamage,
    changed_file,
    compression_of,
    decompress,
    decompress_pieces,
    find_last_line_end,
    open_planned,
    read_lines_starting_in,
)
from anabranch.connectors.filesystem.listing import check_directory, list_files
from anabranch.connectors.filesystem.locations import is_out_of_reach, open_file, size_of
from anabranch.connectors.filesystem.row_ranges import open_rows
from anabranch.connectors.formats.csv_records import CsvDialect, find_last_record_end
from anabranch.connectors.formats.csv_rows import check_header, parse_csv_lines, read_header
from anabranch.connectors.formats.json_rows import parse_json_lines
from anabranch.connectors.formats.text_values import Misfit
from anabranch.errors import FlowError, SourceError
from anabranch.model import ReadOutcome, Split

_HEADER_LIMIT_BYTES = 1 << 20
_SAMPLED_ROWS = 1000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_split(
    split: Split,
    format: str,
    schema: Mapping[str, pl.DataType],
    dialect: CsvDialect,
    columns: Sequence[str] | None = None,
    required: Sequence[str] = (),
) -> Iterator[ReadOutcome]:
    """Yield the split's rows in file order, in frames of the schema (or of its columns that are asked for).

    Raises ``BadFile`` if the file is not what was planned or does not have the declared columns.
    """
    kept = list(schema) if columns is None else [column for column in schema if column in set(columns)]
    if format in ("parquet", "arrow"):
        yield _read_rows(split, format, schema, kept, required)
        return
    parse = _parser_for(split, format, schema, dialect, required)
    for outcome in _read_text(split, parse, dialect if format == "csv" else None):
        yield outcome if columns is None else replace(outcome, frame=outcome.frame.select(kept))


def _read_rows(
    split: Split, format: str, schema: Mapping[str, pl.DataType], kept: Sequence[str], required: Sequence[str]
) -> ReadOutcome:
    path = split["path"]
    with open_planned(path, split["size"], split.get("mark")) as file:
        now_bytes = size_of(file)
    if now_bytes != split["size"]:
        raise changed_file(path, f"had {split['size']} bytes when it was planned and has {now_bytes} now")
    try:
        with open_rows(path, format) as rows:
            _check_columns(path, rows.schema, schema, required)
            columns = columns_to_read(rows.schema, schema, kept)
            return fit_rows(rows.read(split["from"], split["to"], columns), schema, kept)
    except (PolarsError, PanicException, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and is_out_of_reach(error) and not isinstance(error, FileNotFoundError):
            raise
        said = str(error).splitlines()[0]
        remedy = "put an intact copy in its place and start the flow again"
        raise BadFile(path, f"cannot be read as {format}: {said}", remedy) from error


def _check_columns(
    path: str, found: Mapping[str, pl.DataType], schema: Mapping[str, pl.DataType], required: Sequence[str]
) -> None:
    misfit = find_misfit(found, schema, required)
    if misfit is not None:
        remedy = "correct the schema if it is wrong for all files, or write its rows into a new file that fits"
        raise BadFile(path, misfit, remedy)


def _parser_for(
    split: Split, format: str, schema: Mapping[str, pl.DataType], dialect: CsvDialect, required: Sequence[str]
) -> Callable[[bytes], ReadOutcome]:
    if format == "json":
        return lambda text: parse_json_lines(text, schema)
    if not dialect.header:
        return lambda text: parse_csv_lines(text, schema, list(schema), dialect)
    path = split["path"]
    try:
        header = read_header(_read_first_line(path, split["size"]).rstrip(b"\n"), dialect)
    except Misfit as misfit:
        raise BadFile(path, f"has a header that cannot be read: {misfit}", "correct the header") from misfit
    check_header(path, header)
    _check_columns(path, {column: schema.get(column, pl.String()) for column in header}, schema, required)
    present = {column: kind for column, kind in schema.items() if column in header}
    absent = [pl.lit(None, kind).alias(column) for column, kind in schema.items() if column not in present]
    if not absent:
        return lambda text: parse_csv_lines(text, schema, header, dialect)

    def parse(text: bytes) -> ReadOutcome:
        outcome = parse_csv_lines(text, present, header, dialect)
        return replace(outcome, frame=outcome.frame.with_columns(absent).select(list(schema)))

    return parse


def _read_text(
    split: Split, parse: Callable[[bytes], ReadOutcome], dialect: CsvDialect | None
) -> Iterator[ReadOutcome]:
    path, size_bytes = split["path"], split["size"]
    skips_header = dialect is not None and dialect.header and split["from"] == 0
    compression = compression_of(path)
    find_end = find_last_line_end if dialect is None else partial(find_last_record_end, dialect=dialect)
    with open_planned(path, size_bytes, split.get("mark")) as file:
        if compression is None:
            first, last = (split["from"], split["to"]) if split["unit"] == "bytes" else (0, size_bytes)
            begins_file = first == 0 and not skips_header
            if skips_header:
                first = len(file.readline(size_bytes))
            text = read_lines_starting_in(file, first, last, size_bytes)
            yield parse(text.removeprefix(_BYTE_ORDER_MARK) if begins_file else text)
            return
        rows = 0
        try:
            for ordinal, piece in enumerate(decompress_pieces(file, compression, size_bytes, find_end)):
                text = piece if ordinal else piece.removeprefix(_BYTE_ORDER_MARK)
                outcome = parse(_drop_first_line(text) if skips_header and not ordinal else text)
                rows += outcome.frame.height + len(outcome.rejected)
                yield outcome
        except CompressedDamage as damage:
            reason = f"{path}: {damage}; the {rows} rows before it were read"
            yield ReadOutcome(parse(b"").frame, ((reason, ""),))


def _drop_first_line(text: bytes) -> bytes:
    end = text.find(b"\n")
    return text[end + 1 :] if end >= 0 else b""


def check_against_file(
    path: str, format: str, schema: Mapping[str, pl.DataType], dialect: CsvDialect, required: Sequence[str] = ()
) -> None:
    """Raise ``FlowError`` if a file does not have the declared columns, or has other kinds of things in them.

    JSON and CSV show their types only row by row: they are refused if not one of the first rows fits.
    """
    if format in ("json", "csv"):
        _check_first_rows(path, format, schema, dialect, required)
        return
    try:
        with open_rows(path, format) as rows:
            found = rows.schema
    except (OSError, PolarsError, pa.ArrowException) as error:
        msg = f"{path} cannot be read as {format}: {error}; replace it, or give a pattern that leaves it out"
        raise FlowError(msg) from error
    try:
        _check_columns(path, found, schema, required)
    except BadFile as error:
        raise FlowError(str(error)) from error


def _check_first_rows(
    path: str, format: str, schema: Mapping[str, pl.DataType], dialect: CsvDialect, required: Sequence[str]
) -> None:
    try:
        with open_file(path) as file:
            split: Split = {"path": path, "size": size_of(file), "from": 0}
        parse = _parser_for(split, format, schema, dialect, required)
        head = _read_head(path, split["size"])
    except SourceError as error:
        raise FlowError(str(error)) from error
    rows = _drop_first_line(head) if format == "csv" and dialect.header else head
    outcome = parse(b"".join(rows.splitlines(keepends=True)[:_SAMPLED_ROWS]))
    if outcome.rejected and not outcome.frame.height:
        msg = (
            f"none of the first {len(outcome.rejected)} rows of {path} fits the schema: {outcome.rejected[0][0]}; "
            f"correct the schema or the format"
        )
        raise FlowError(msg)


def _read_first_line(path: str, size_bytes: int) -> bytes:
    if compression_of(path) is not None:
        return _read_head(path, size_bytes).split(b"\n", 1)[0]
    with open_planned(path, size_bytes) as file:
        return file.readline(min(size_bytes, _HEADER_LIMIT_BYTES))


def _read_head(path: str, size_bytes: int) -> bytes:
    """Return whole lines from a file's beginning, about a megabyte of them."""
    compression = compression_of(path)
    with open_planned(path, size_bytes) as file:
        if compression is None:
            return read_lines_starting_in(file, 0, _HEADER_LIMIT_BYTES, size_bytes)
        head = b""
        with contextlib.suppress(CompressedDamage):
            for chunk in decompress(file, compression, size_bytes):
                head += chunk
                if len(head) >= _HEADER_LIMIT_BYTES:
                    return head[: head.rfind(b"\n") + 1]
        return head


def infer_schema(
    directory: str, format: str, pattern: str, recursive: bool, dialect: CsvDialect
) -> tuple[str, dict[str, pl.DataType]]:
    """Return the oldest file's name and the schema it shows."""
    check_directory(directory)
    entries = list_files(directory, pattern, recursive)
    if not entries:
        msg = f"{directory} has no file {pattern!r} to take the schema from; declare it: schema={{'key': pl.Int64, …}}"
        raise FlowError(msg)
    path = entries[0].path
    try:
        if format in ("parquet", "arrow"):
            with open_rows(path, format) as rows:
                return entries[0].name, dict(rows.schema)
        head = _read_head(path, entries[0].size_bytes)
        if format == "json":
            lines = head.split(b"\n")[:_SAMPLED_ROWS]
            return entries[0].name, dict(pl.read_ndjson(b"\n".join(lines), infer_schema_length=None).schema)
        frame = pl.read_csv(
            head,
            has_header=dialect.header,
            separator=dialect.separator,
            quote_char=dialect.quote,
            n_rows=_SAMPLED_ROWS,
            infer_schema_length=_SAMPLED_ROWS,
            try_parse_dates=True,
        )
        return entries[0].name, dict(frame.schema)
    except (OSError, PolarsError, pa.ArrowException) as error:
        msg = f"no schema can be taken from {path} as {format}: {error}; declare it: schema={{'key': pl.Int64, …}}"
        raise FlowError(msg) from error
