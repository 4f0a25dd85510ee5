"""Parquet and JSON lines in a directory: every committed batch visible exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.connectors.filesystem.locations import name_place
from anabranch.connectors.filesystem.output_store import open_output_store
from anabranch.connectors.filesystem.part_files import claim_parts, example_part, publish_parts, retract_parts
from anabranch.connectors.filesystem.staged_frames import real_place
from anabranch.connectors.formats.encodings import encode_json_lines, encode_parquet
from anabranch.connectors.given_values import as_path
from anabranch.errors import SinkError
from anabranch.model import StagedFile
from anabranch.model.column_kinds import has_empty_struct, holds
from anabranch.state.objects import is_url


@dataclass(frozen=True, slots=True)
class PartFileSink:
    """Part files in a directory; made by ``parquet`` and ``json_lines``."""

    directory: str
    suffix: str

    @property
    def label(self) -> str:
        """Name the format and the directory."""
        return f"{self.suffix.lstrip('.')} {self.directory}"

    @property
    def place(self) -> str:
        """Name the directory, by its real path where there is one."""
        return real_place(self.directory)

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if the directory cannot be written or a column has no form in the files."""
        for column, kind in schema.items():
            if self.suffix == ".json" and holds(kind, pl.Binary, pl.Object):
                msg = f"column {column!r} is {kind}, which JSON lines cannot hold; cast it, or write Parquet"
                raise SinkError(msg)
            if self.suffix == ".parquet" and (holds(kind, pl.Object) or has_empty_struct(kind)):
                msg = f"column {column!r} is {kind}, which Parquet cannot hold; cast it, or leave it out by select()"
                raise SinkError(msg)
        if is_url(self.directory):
            open_output_store(self.directory)
        else:
            check_writable(self.directory)

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the directory for this flow, or raise ``SinkError`` if it holds another one's results."""
        claim_parts(open_output_store(self.directory), self.directory, flow, last_batch)

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return the bytes of a part file."""
        return encode_json_lines(frame) if self.suffix == ".json" else encode_parquet(frame)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Move the batch's files into the directory; again does nothing."""
        publish_parts(open_output_store(self.directory), self.directory, batch, staged, self.suffix, context)

    def written(self) -> tuple[str, ...]:
        """Return the path or URL of a part file, as an example."""
        return (example_part(self.directory, self.suffix),)

    def retract(self, after_batch: int) -> None:
        """Delete the part files of later batches."""
        retract_parts(open_output_store(self.directory), self.directory, after_batch)


def parquet(path: str | os.PathLike[str]) -> PartFileSink:
    """Write results as Parquet files ``part-<batch>-<slot>.parquet`` into a directory, exactly once.

    The directory may also be a URL of an object store: ``s3://bucket/alerts``. Each sink needs a directory of its own.

    Examples:
        >>> _ = readings.key_by("sensor").agg(lowest=ab.min("volts")).write(ab.parquet("lowest"))
        >>> _ = flow.backfill("state", slots=1)
        >>> [path.name for path in sorted(Path("lowest").glob("part-*"))]
        ['part-000000000000-00000.parquet']
        >>> pl.read_parquet("lowest/*.parquet").sort("sensor").rows()
        [(1, 206.25), (2, 229.5)]
    """
    return PartFileSink(_name_place("parquet", path), ".parquet")


def json_lines(path: str | os.PathLike[str]) -> PartFileSink:
    """Write results as JSON lines ``part-<batch>-<slot>.json`` into a directory, exactly once.

    The directory may also be a URL of an object store: ``s3://bucket/alerts``. Each sink needs a directory of its own.

    Examples:
        >>> _ = readings.key_by("sensor").agg(lowest=ab.min("volts")).write(ab.json_lines("lowest"))
        >>> _ = flow.backfill("state")
        >>> pl.read_ndjson("lowest/*.json").sort("sensor").rows()
        [(1, 206.25), (2, 229.5)]
    """
    return PartFileSink(_name_place("json_lines", path), ".json")


def _name_place(where: str, path: str | os.PathLike[str]) -> str:
    advice = "write it through Spark: ab.foreach(callback) hands every batch to a writer of its own"
    return name_place(as_path(where, path), advice)


def check_writable(directory: str) -> None:
    """Raise ``SinkError`` unless files can be made in the directory, or the directory in its nearest parent."""
    if os.path.exists(directory) and not os.path.isdir(directory):
        msg = f"{directory} is a file; name a directory to write part files into"
        raise SinkError(msg)
    existing = directory
    while not os.path.exists(existing) and existing != os.path.dirname(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        msg = f"{directory} cannot be made: {existing} is a file; name a directory below other directories"
        raise SinkError(msg)
    if not os.access(existing, os.W_OK | os.X_OK):
        msg = f"{directory} cannot be written: no write permission on {existing}; choose another directory or allow it"
        raise SinkError(msg)
