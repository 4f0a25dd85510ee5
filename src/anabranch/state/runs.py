"""Runs as Arrow files: written once, checked when first read, mapped where they lie on a local disk."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from anabranch.errors import StateDamaged
from anabranch.model import HASH, WINDOW, RunRef
from anabranch.model.column_kinds import holds
from anabranch.state.checksums import checksum_of
from anabranch.state.copies.hot import HotCopies
from anabranch.state.copies.replicas import ReplicaCopies
from anabranch.state.store import Store

RunSource = Literal["hot", "replica", "store"]
"""Where the bytes of a run were: in memory of this host that its own slots filled, in memory that slots elsewhere
filled, or in the checkpoint."""
VERIFIED_FILES_REMEMBERED = 100_000

_verified: dict[tuple[str, str], str] = {}
"""(store or folder, file) → checksum, for files this process has checked: they never change, so once is enough."""


class RunDamaged(StateDamaged):
    """The file of a run is missing, or its bytes are not those that were written."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message, file)
        self.file = file

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class WriteName:
    """Who writes: what makes a file's name unlike that of every other attempt at the same batch."""

    epoch: int
    batch: int
    attempt: int
    unique: str
    """A random id: task ids start again at 0 in every application."""

    def file(self, folder: str, serial: int, suffix: str) -> str:
        """Return a file name such as ``state/0/3/e000002-b000000000017-a0-9f3c…-0.arrow``."""
        stem = f"e{self.epoch:06d}-b{self.batch:012d}-a{self.attempt}-{self.unique}-{serial}"
        return f"{folder.strip('/')}/{stem}{suffix}"


def encode_run(frame: pl.DataFrame, compressed: bool) -> list[memoryview]:
    """Return the frame as the pieces of an Arrow IPC file of one record batch; columns are where they were."""
    if any(holds(dtype, pl.Int128, pl.UInt128) for dtype in frame.dtypes):
        return [_encode_wide_integers(frame, compressed)]
    # The oldest layout has strings in one piece: a slice of views would drag all the text of its parent along.
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    out = _Pieces()
    with pa.ipc.new_file(
        pa.PythonFile(out, mode="w"),
        table.schema,
        options=pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None),
    ) as file:
        file.write_table(table)
    return out.written


class _Pieces:
    """What a writer takes for a file: keeps what is written, as it is."""

    closed = False

    def __init__(self) -> None:
        self.written: list[memoryview] = []
        self._bytes = 0

    def write(self, piece: bytes | pa.Buffer) -> int:
        self.written.append(_octets(piece))
        self._bytes += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._bytes

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


def decode_run(content: pa.Buffer) -> pl.DataFrame:
    """Return the rows of an Arrow IPC file, in place as far as they are not compressed."""
    try:
        table = pa.ipc.open_file(content).read_all()
    except pa.ArrowNotImplementedError:
        return pl.read_ipc(content.to_pybytes())
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def to_table(frame: pl.DataFrame) -> pa.Table:
    """Return a frame as Arrow has it, to be measured: what Arrow does not know stands there as something as wide."""
    wide = pl.col(pl.Int128, pl.UInt128).cast(pl.Decimal(38, 0), strict=False)
    return frame.with_columns(wide).to_arrow(compat_level=pl.CompatLevel.oldest())


def _octets(content: bytes | pa.Buffer) -> memoryview:
    # Arrow's buffers show themselves as signed bytes, which not every library takes.
    return memoryview(content).cast("B")


def _encode_wide_integers(frame: pl.DataFrame, compressed: bool) -> memoryview:
    # Arrow has no 128-bit integers, Polars' own writer does.
    out = io.BytesIO()
    frame.write_ipc(out, compression="lz4" if compressed else "uncompressed")
    return out.getbuffer()


@dataclass(slots=True)
class RunFiles:
    """Reads and writes the runs of one slot of one operator: a ``RunReader`` and a ``RunWriter``.

    A mapped frame stays readable after its file is deleted, but not if another program truncates the file in place.
    """

    store: Store
    folder: str
    """Where new runs go, such as ``state/0/3``; runs are read wherever their name says."""
    name: WriteName
    hot: HotCopies | None = None
    """Copies on this host, for stores that are far away, a directory on another host's disk included; without them,
    files that lie where this host can map them are read as they lie."""
    replicas: ReplicaCopies | None = None
    """Copies on this host that other hosts sent: they are there before a slot is."""
    reads: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """Source → how many runs came from there, and their bytes; empty where there is nothing but a store."""
    _serial: int = field(default=0, init=False)

    def read(self, ref: RunRef) -> pl.DataFrame:
        """Return the live rows of a run; raise ``RunDamaged`` if the bytes are not those that were written."""
        content = self.fetch(ref)
        try:
            rows = decode_run(content)
        except (pa.ArrowException, OSError):
            # It was whole when it was first read: say what is wrong with it now.
            check_content(ref, content)
            raise
        return without_gone(rows.slice(ref.first_live), ref.gone)

    def fetch(self, ref: RunRef) -> pa.Buffer:
        """Return the bytes of a run, checked, from the nearest place that has them."""
        content = self._copied_content(ref, "hot", self.hot)
        if content is None:
            content = self._copied_content(ref, "replica", self.replicas)
        if content is not None:
            return content
        # What other hosts serve is never mapped: a file that one of them deletes would be gone under the map.
        content = open_content(self.store, ref, is_mapped=self.hot is None)
        _check_once(self.store.url, ref, content)
        if self.hot is not None:
            self.hot.put(ref.file, _octets(content))
        self._count("store", ref)
        return content

    def open_table(self, ref: RunRef) -> pa.Table:
        """Return all rows of a run's file as Arrow has them, unchecked: to measure it, not to go by what it holds."""
        copies = (tier.find(ref.file) for tier in (self.hot, self.replicas) if tier is not None)
        path = next((path for path in copies if path is not None), None)
        content = open_content(self.store, ref, is_mapped=self.hot is None) if path is None else _map_file(path)
        try:
            return pa.ipc.open_file(content).read_all()
        except pa.ArrowNotImplementedError:
            return to_table(decode_run(content))

    def write(self, frame: pl.DataFrame, made_from: Sequence[RunRef] = ()) -> RunRef:
        """Write a sorted frame as a new run; an unsorted one is a kernel's mistake and raises ``ValueError``."""
        check_sorted(frame)
        # A run that can be mapped is read in place, so it is kept as it lies in memory; one that travels is packed.
        mappable = self.hot is None and self.store.local_path(self.folder) is not None
        pieces = encode_run(frame, compressed=not mappable)
        checksum = checksum_of(*pieces)
        # Two attempts at one task share the name of the writer. With the checksum in it, the file that an attempt
        # reports is never overwritten by one with other bytes.
        file = self.name.file(self.folder, self._serial, f"-{checksum.removeprefix('crc32:')}.arrow")
        self._serial += 1
        self.store.write(file, *pieces)
        if self.hot is not None:
            self.hot.put(file, b"".join(pieces))
        windows: dict[str, Any] = {}
        if WINDOW in frame.columns and frame.height > 0:
            windows = {"min_window": frame[WINDOW][0], "max_window": frame[WINDOW][-1]}
        return RunRef(
            file=file,
            rows=frame.height,
            bytes=sum(map(len, pieces)),
            checksum=checksum,
            batch=self.name.batch,
            # One generation is enough to rebuild a run, and keeps manifests from growing with history.
            made_from=tuple(replace(source, made_from=()) for source in made_from),
            **windows,
        )

    def _copied_content(
        self, ref: RunRef, source: RunSource, copies: HotCopies | ReplicaCopies | None
    ) -> pa.Buffer | None:
        path = copies.find(ref.file) if copies is not None else None
        if path is None:
            return None
        try:
            content = _map_file(path)
            _check_once(str(path.parent), ref, content)
        except (FileNotFoundError, RunDamaged):
            # A copy only saves time: whatever is wrong with it, the store decides.
            return None
        self._count(source, ref)
        return content

    def _count(self, source: RunSource, ref: RunRef) -> None:
        if self.hot is not None or self.replicas is not None:
            runs, size = self.reads.get(source, (0, 0))
            self.reads[source] = runs + 1, size + ref.bytes


def open_content(store: Store, ref: RunRef, is_mapped: bool = True) -> pa.Buffer:
    """Return a run's bytes, unchecked, mapped if they may be and lie on this host; raise ``RunDamaged`` if they do not.

    ``RunDamaged`` says that the file is missing.
    """
    path = store.local_path(ref.file) if is_mapped else None
    try:
        return pa.py_buffer(store.read(ref.file)) if path is None else _map_file(path)
    except FileNotFoundError as error:
        msg = f"state file {ref.file} is missing in {store.url}"
        raise RunDamaged(msg, ref.file) from error


def _map_file(path: Path) -> pa.Buffer:
    if path.stat().st_size == 0:
        # Nothing can be mapped of an empty file; its size gives it away.
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as mapped:
        return mapped.read_buffer()


def _check_once(place: str, ref: RunRef, content: pa.Buffer) -> None:
    key = (place, ref.file)
    if _verified.get(key) == ref.checksum and len(content) == ref.bytes:
        return
    check_content(ref, content)
    if len(_verified) >= VERIFIED_FILES_REMEMBERED:
        _verified.clear()
    _verified[key] = ref.checksum


def check_content(ref: RunRef, content: pa.Buffer | bytes) -> None:
    """Raise ``RunDamaged`` unless size and checksum are those of the manifest."""
    if len(content) != ref.bytes:
        msg = f"state file {ref.file} has {len(content):,} bytes, its manifest says {ref.bytes:,}"
        raise RunDamaged(msg, ref.file)
    found = checksum_of(content)
    if found != ref.checksum:
        msg = f"state file {ref.file} has checksum {found}, its manifest says {ref.checksum}"
        raise RunDamaged(msg, ref.file)


def without_gone(rows: pl.DataFrame, gone: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Return the rows whose hash is in none of the ranges, which are sorted and do not overlap."""
    if not gone:
        return rows
    hashes = rows[HASH].to_numpy()
    firsts = np.array([first for first, _ in gone], np.uint64)
    lasts = np.array([last for _, last in gone], np.uint64)
    place = np.searchsorted(firsts, hashes, side="right") - 1
    return rows.filter(pl.Series((place < 0) | (hashes > lasts[place])))


def check_sorted(frame: pl.DataFrame) -> None:
    """Raise ``ValueError`` unless the frame is sorted by (window, hash): search in an unsorted run loses keys."""
    if HASH not in frame.columns:
        msg = f"a run needs the column {HASH}; this frame has {frame.columns}"
        raise ValueError(msg)
    hashes = frame[HASH].to_numpy()
    rising = hashes[1:] >= hashes[:-1]
    if WINDOW in frame.columns:
        windows = frame[WINDOW].to_numpy()
        rising = (windows[1:] > windows[:-1]) | ((windows[1:] == windows[:-1]) & rising)
    if not rising.all():
        order = f"({WINDOW}, {HASH})" if WINDOW in frame.columns else HASH
        msg = f"a run must be sorted by {order}; row {int(np.argmin(rising)) + 1} is smaller than the one before it"
        raise ValueError(msg)
