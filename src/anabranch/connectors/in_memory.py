"""In-memory sources and sinks for tests and notebooks: small Arrow files in a private directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from anabranch.connectors.filesystem.listing import is_ignored, would_list
from anabranch.connectors.filesystem.output_store import LocalOutputStore
from anabranch.connectors.filesystem.part_files import (
    claim_parts,
    example_part,
    list_parts,
    publish_parts,
    retract_parts,
)
from anabranch.connectors.filesystem.planner import FilePlanner
from anabranch.connectors.filesystem.reading import read_split
from anabranch.connectors.formats.csv_records import CsvDialect
from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.connectors.formats.schemas import normalise_schema
from anabranch.connectors.given_values import as_frame, as_path
from anabranch.connectors.private_folders import PrivateFolder
from anabranch.errors import FlowError
from anabranch.model import Admission, ReadOutcome, Split, StagedFile
from anabranch.model.identities import Identity
from anabranch.model.schema_forms import SchemaLike
from anabranch.state.durable_files import write_whole

if TYPE_CHECKING:
    import pandas as pd

_FRAMES = "*.arrow"
FrameLike = Any
"""A Polars or pandas frame, or columns by name: ``{"sensor": [1, 2]}``."""


@dataclass(frozen=True, slots=True)
class MemorySource:
    """Frames that were added one by one; made by ``memory``."""

    directory: str
    schema: Mapping[str, pl.DataType]
    max_frames: int | None = 1
    folder: PrivateFolder | None = field(default=None, repr=False, compare=False)
    """Keeps the directory there as long as this source, unless it was named by the user."""

    @property
    def label(self) -> str:
        """Say that the rows come from memory, and what they are made of."""
        return f"memory ({', '.join(self.schema)})"

    @property
    def identity(self) -> Identity:
        """Name the directory; one of this process alone is another in the next process."""
        return Identity("memory", (os.path.realpath(self.directory),), lasting=self.folder is None)

    def add(self, frame: FrameLike, partition: str = "") -> MemorySource:
        """Add rows; each frame is a batch of its own unless ``max_frames`` says otherwise.

        ``partition`` names the part of the source that they are of, for watermarks that are kept per partition.
        """
        given = as_frame("memory", frame, self.schema)
        missing = [column for column in self.schema if column not in given.columns]
        if missing:
            msg = f"the frame has no column {', '.join(map(repr, missing))}; it has {given.columns}"
            raise FlowError(msg)
        rows = given.select(pl.col(column).cast(kind) for column, kind in self.schema.items())
        if partition and (is_ignored(partition) or "/" in partition):
            msg = f"a partition's name has no '/' and does not begin with '.' or '_', found {partition!r}"
            raise FlowError(msg)
        folder = os.path.join(self.directory, partition)
        os.makedirs(folder, exist_ok=True)
        ordinal = sum(name.endswith(".arrow") for _, _, names in os.walk(self.directory) for name in names)

        def publish(hidden: Path, path: Path) -> None:
            # Files are read oldest first; a made-up time keeps the order of adding even if the clock is set back.
            os.utime(hidden, ns=(ordinal + 1, ordinal + 1))
            os.replace(hidden, path)

        write_whole(Path(folder, f"{ordinal:09d}.arrow"), encode_arrow(rows), publish=publish, durable=False)
        return self

    def check(self) -> None:
        """Raise nothing: the directory was made with the source."""

    def would_read(self, written: object) -> bool:
        """Say whether a file of this path would be taken for an added frame."""
        return isinstance(written, str) and would_list(self.directory, _FRAMES, True, written)

    def planner(self) -> FilePlanner:
        """Return the driver side, which finds added frames in the order in which they were added."""
        admission = Admission(max_files=self.max_frames)
        return FilePlanner(self.directory, "arrow", admission, pattern=_FRAMES, recursive=True, poll_seconds=0.0)

    def read(self, split: Split, columns: Sequence[str] | None = None) -> Iterator[ReadOutcome]:
        """Read an added frame."""
        return read_split(split, "arrow", self.schema, CsvDialect(), columns)


@dataclass(frozen=True, slots=True)
class MemorySink:
    """Results kept for this process and its notebook; made by ``to_memory``."""

    directory: str
    suffix: str = ".arrow"
    folder: PrivateFolder | None = field(default=None, repr=False, compare=False)
    """Keeps the directory there as long as this sink, unless it was named by the user."""

    @property
    def label(self) -> str:
        """Say that results stay in memory."""
        return "memory"

    @property
    def place(self) -> str:
        """Name the directory."""
        return os.path.realpath(self.directory)

    @property
    def identity(self) -> Identity:
        """Name the directory; one of this process alone is another in the next process."""
        return Identity("memory", (self.place,), lasting=self.folder is None)

    @property
    def _outputs(self) -> LocalOutputStore:
        # What goes with this process, a power failure takes anyway.
        return LocalOutputStore(self.directory, durable=self.folder is None)

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise nothing: every Polars type can be kept."""

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the sink for this flow, or raise ``SinkError`` if it holds another one's results."""
        claim_parts(self._outputs, self.directory, flow, last_batch)

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file."""
        return encode_arrow(frame)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Keep the batch's results; again does nothing."""
        publish_parts(self._outputs, self.directory, batch, staged, self.suffix, context)

    def written(self) -> tuple[str, ...]:
        """Return the path of a part file, as an example."""
        return (example_part(self.directory, self.suffix),)

    def retract(self, after_batch: int) -> None:
        """Drop the results of later batches."""
        retract_parts(self._outputs, self.directory, after_batch)

    def batches(self) -> list[tuple[int, pl.DataFrame]]:
        """Return (batch, rows) of every batch with results, in order."""
        frames: dict[int, list[pl.DataFrame]] = {}
        for batch, path in list_parts(self.directory):
            frames.setdefault(batch, []).append(pl.read_ipc(path))
        return [(batch, pl.concat(parts)) for batch, parts in frames.items()]

    def frame(self) -> pl.DataFrame:
        """Return all results so far, in order of batch and slot; a frame without columns if there are none."""
        frames = [frame for _, frame in self.batches()]
        return pl.concat(frames) if frames else pl.DataFrame()

    def pandas(self) -> pd.DataFrame:
        """Return all results so far as a pandas frame."""
        return self.frame().to_pandas()


def memory(
    *frames: FrameLike,
    schema: SchemaLike | None = None,
    max_frames: int | None = 1,
    directory: str | os.PathLike[str] | None = None,
) -> MemorySource:
    """Make a source of frames, given here or added later with ``add``; each is one batch by default.

    The frames lie as Arrow files in a private temporary directory, which goes with the source (or in ``directory``),
    so all executors must be on this machine.

    Examples:
        >>> source = ab.memory(schema={"sensor": pl.Int64})
        >>> _ = source.add(pl.DataFrame({"sensor": [1, 2]})).add(pl.DataFrame({"sensor": [3]}), "north")
        >>> source.schema
        {'sensor': Int64}
    """
    if schema is None and not frames:
        msg = 'memory() needs frames or a schema, such as memory(schema={"sensor": pl.Int64})'
        raise FlowError(msg)
    kinds = dict(as_frame("memory", frames[0]).schema) if schema is None else normalise_schema(schema)
    path, folder = _make_directory(directory, "memory")
    source = MemorySource(path, kinds, max_frames, folder)
    for frame in frames:
        source.add(frame)
    return source


def to_memory(directory: str | os.PathLike[str] | None = None) -> MemorySink:
    """Make a sink whose results can be read as a Polars or pandas frame: ``sink.frame()``.

    Results lie in a private temporary directory, which goes with the sink; name a ``directory`` if they must outlive
    this process.

    Examples:
        >>> sink = ab.to_memory()
        >>> _ = readings.select("sensor").write(sink)
        >>> _ = flow.backfill("state")
        >>> sink.frame()["sensor"].to_list()
        [1, 2, 1, 1]
        >>> [batch for batch, frame in sink.batches()]
        [0]
    """
    path, folder = _make_directory(directory, "results")
    return MemorySink(path, folder=folder)


def _make_directory(directory: str | os.PathLike[str] | None, purpose: str) -> tuple[str, PrivateFolder | None]:
    if directory is None:
        folder = PrivateFolder(purpose)
        return folder.path, folder
    path = os.path.abspath(as_path(purpose, directory))
    os.makedirs(path, exist_ok=True)
    return path, None
