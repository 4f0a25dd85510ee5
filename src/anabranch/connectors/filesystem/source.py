"""Directories of JSON lines, CSV, Parquet and Arrow files as a source."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import polars as pl

from anabranch.connectors.filesystem.bad_files import BadFile, BadFilePolicy, OnBadFile, SetAsideFiles
from anabranch.connectors.filesystem.listing import FileEntry, check_directory, list_files, would_list
from anabranch.connectors.filesystem.locations import name_place
from anabranch.connectors.filesystem.planner import FilePlanner
from anabranch.connectors.filesystem.reading import check_against_file, infer_schema, read_split
from anabranch.connectors.filesystem.staged_frames import real_place
from anabranch.connectors.formats.csv_records import CsvDialect
from anabranch.connectors.formats.csv_rows import check_csv_schema
from anabranch.connectors.formats.json_rows import check_json_schema
from anabranch.connectors.formats.schemas import normalise_schema
from anabranch.errors import FlowError
from anabranch.model import Admission, ReadOutcome, Split
from anabranch.model.identities import Identity
from anabranch.model.schema_forms import SchemaLike

if TYPE_CHECKING:
    from anabranch.connectors.partitioner import Partitioner

FileFormat = Literal["json", "csv", "parquet", "arrow"]

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
_FILES_TRIED = 20


@dataclass(frozen=True, slots=True)
class FileSource:
    """The files of a directory; made by ``files``."""

    directory: str
    format: str
    schema: Mapping[str, pl.DataType]
    admission: Admission
    pattern: str = "*"
    recursive: bool = False
    poll_seconds: float = 0.2
    csv: CsvDialect = field(default_factory=CsvDialect)
    schema_taken_from: str | None = None
    partitioned_by: Partitioner | None = None
    """What the numbered folders were written by, if that is known."""
    bad_files: BadFilePolicy = field(default_factory=BadFilePolicy)
    required: tuple[str, ...] = ()
    """Columns that every file must have: those that the flow takes keys and event times from."""
    proven: bool = False
    """Whether batches were committed with it: then it is known to fit, and its oldest file may be an old one."""

    @property
    def label(self) -> str:
        """Name the directory and its format, and the file that an undeclared schema was taken from."""
        taken = f", schema taken from {self.schema_taken_from}" if self.schema_taken_from else ""
        return f"files {self.directory} ({self.format}{taken})"

    @property
    def identity(self) -> Identity:
        """Name the directory, by its real path, and which of its files are read."""
        return Identity("files", (real_place(self.directory),), {"format": self.format, "pattern": self.pattern})

    @property
    def names_partitions(self) -> bool:
        """Whether rows are in partitions: those of a folder are."""
        return self.recursive

    def check(self) -> None:
        """Raise ``SourceError`` for an unreadable directory, ``FlowError`` if the oldest file does not fit."""
        check_directory(self.directory)
        if self.format == "json":
            check_json_schema(self.schema)
        if self.format == "csv":
            check_csv_schema(self.schema)
        if not self.proven:
            self._check_oldest_file()

    def _check_oldest_file(self) -> None:
        passed_over = self.bad_files.passed_over()
        entries = list_files(self.directory, self.pattern, self.recursive)
        for entry in [entry for entry in entries if entry.path not in passed_over][:1]:
            try:
                check_against_file(entry.path, self.format, self.schema, self.csv, self.required)
            except FlowError:
                # One odd file is set aside; a schema that fits none of them would set aside everything.
                if self.bad_files.choice == "stop" or not self._fits_any(entries):
                    raise

    def _fits_any(self, entries: Sequence[FileEntry]) -> bool:
        for entry in entries[:_FILES_TRIED]:
            with contextlib.suppress(FlowError):
                check_against_file(entry.path, self.format, self.schema, self.csv, self.required)
                return True
        return False

    def told(self, required: Sequence[str], set_aside: SetAsideFiles, proven: bool) -> FileSource:
        """Return the source as it is in a flow: with what the flow needs of every file, and what it passes over."""
        bad_files = replace(self.bad_files, set_aside=set_aside)
        return replace(self, required=tuple(required), bad_files=bad_files, proven=proven)

    def would_read(self, written: object) -> bool:
        """Say whether a file of this path would be read, were it there."""
        return isinstance(written, str) and would_list(self.directory, self.pattern, self.recursive, written)

    def planner(self) -> FilePlanner:
        """Return the driver side, which lists the directory and cuts its files into splits."""
        return FilePlanner(
            self.directory,
            self.format,
            self.admission,
            pattern=self.pattern,
            recursive=self.recursive,
            poll_seconds=self.poll_seconds,
            cut_text=not (self.format == "csv" and self.csv.quoted_newlines),
            bad_files=self.bad_files,
        )

    def read(self, split: Split, columns: Sequence[str] | None = None) -> Iterator[ReadOutcome]:
        """Read a split; with ``columns``, only these come back, in the order of the schema.

        JSON and CSV rows are checked against the whole declared schema all the same, so what counts as malformed
        does not depend on what a query happens to use.
        """
        if "set_aside" in split:
            if split["set_aside"]:
                yield ReadOutcome(self._no_rows(columns), ((f"file set aside: {split['set_aside']}", split["path"]),))
            return
        try:
            yield from read_split(split, self.format, self.schema, self.csv, columns, self.required)
        except BadFile as bad:
            judged = self.bad_files.judge(bad)
            if judged is not bad:
                raise judged from bad
            yield ReadOutcome(self._no_rows(columns), bad_file=(bad.path, bad.reason))

    def _no_rows(self, columns: Sequence[str] | None) -> pl.DataFrame:
        kept = self.schema if columns is None else set(columns)
        return pl.DataFrame(schema={column: kind for column, kind in self.schema.items() if column in kept})


def files(  # noqa: PLR0913 - a source has this many knobs, all by keyword, all with defaults
    path: str | os.PathLike[str],
    *,
    format: FileFormat = "json",
    schema: SchemaLike | None = None,
    max_rows: int | None = None,
    max_bytes: int | None = DEFAULT_MAX_BYTES,
    max_files: int | None = None,
    pattern: str = "*",
    recursive: bool = False,
    poll_seconds: float = 0.2,
    separator: str = ",",
    quote: str | None = '"',
    header: bool = True,
    null_values: Sequence[str] = (),
    quoted_newlines: bool = False,
    partitioned_by: Partitioner | None = None,
    on_bad_file: OnBadFile = "stop",
) -> FileSource:
    """Read the files of a directory, oldest first, and new ones as they appear.

    ``max_rows``, ``max_bytes`` and ``max_files`` limit a batch. ``max_rows`` is exact for Parquet and Arrow; for
    JSON and CSV it is kept to by an estimate from each file's first 64 kB. Names that start with ``.`` or ``_`` or end
    in ``.tmp`` are ignored: write files under such a name and rename them when they are complete. Endings ``.gz`` and
    ``.zst`` are decompressed; such files are read whole, by one task each.

    Without a ``schema``, it is taken from the oldest file that is there now (for JSON and CSV, from its first 1,000
    lines), and it may differ when the flow starts again: declare it for anything that lasts.

    A file that cannot be used (gone, replaced or damaged since it was planned, or without the declared columns) stops
    the flow; with ``on_bad_file="quarantine"`` it is set aside, told of, and the flow goes on.

    With ``recursive``, each folder is a partition. ``partitioned_by`` says which partitioner wrote the rows into
    numbered folders, for ``key_by(…, exchange="ahead")`` to check.

    Examples:
        >>> ab.files("readings", format="csv", schema={"sensor": pl.Int64, "volts": pl.Float64}, max_files=10).schema
        {'sensor': Int64, 'volts': Float64}
    """
    if format not in get_args(FileFormat):
        msg = f"files cannot have the format {format!r}; use one of {', '.join(get_args(FileFormat))}"
        raise FlowError(msg)
    if on_bad_file not in get_args(OnBadFile):
        msg = f"on_bad_file is {on_bad_file!r}; use one of {', '.join(get_args(OnBadFile))}"
        raise FlowError(msg)
    for name, limit in (("max_rows", max_rows), ("max_bytes", max_bytes), ("max_files", max_files)):
        if limit is not None and limit < 1:
            msg = f"{name} is {limit}, so no batch could read anything; use a positive number, or None for no limit"
            raise FlowError(msg)
    directory = name_place(path, "read it through Spark: ab.from_spark(spark.readStream.format(…).load(…))")
    dialect = CsvDialect(separator, quote, header, tuple(null_values), quoted_newlines)
    taken_from = None
    if schema is None:
        taken_from, found = infer_schema(directory, format, pattern, recursive, dialect)
    else:
        found = normalise_schema(schema)
    return FileSource(
        directory=directory,
        format=format,
        schema=found,
        admission=Admission(max_rows, max_bytes, max_files),
        pattern=pattern,
        recursive=recursive,
        poll_seconds=poll_seconds,
        csv=dialect,
        schema_taken_from=taken_from,
        partitioned_by=partitioned_by,
        bad_files=BadFilePolicy(on_bad_file),
    )
