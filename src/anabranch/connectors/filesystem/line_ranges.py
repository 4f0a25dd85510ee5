"""Whole lines out of byte ranges and compressed files."""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from anabranch.connectors.filesystem.bad_files import BadFile
from anabranch.connectors.filesystem.content_marks import mark_content
from anabranch.connectors.filesystem.locations import open_file, size_of
from anabranch.errors import SourceError
from anabranch.state.objects import is_url

PIECE_BYTES = 16 * 1024 * 1024
_EDGE_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def compression_of(path: str) -> str | None:
    """Return ``gzip`` or ``zstd`` by the file's ending, None for plain files."""
    return _COMPRESSIONS.get(os.path.splitext(path)[1].lower())


def open_planned(path: str, size_bytes: int, mark: str | None = None) -> BinaryIO:
    """Open a file that was planned with a size and a mark; raise ``BadFile`` if it is gone, shorter or another now.

    One that only grew is what it was, as far as it was planned.
    """
    try:
        file = open_file(path)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        if not is_url(path) and not os.path.isdir(folder):
            # A disk that is not there makes no file a bad one.
            msg = f"{path} was planned, and its directory {folder} is gone; bring it back and start the flow again"
            raise SourceError(msg) from None
        raise BadFile(path, "was planned but is gone", "put it back and start the flow again") from None
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}; make it readable and start the flow again"
        raise SourceError(msg) from error
    now_bytes = size_of(file)
    if now_bytes < size_bytes:
        file.close()
        raise changed_file(path, f"had {size_bytes} bytes when it was planned and has {now_bytes} now")
    if mark is not None and mark_content(file, size_bytes) != mark:
        file.close()
        raise changed_file(path, "was replaced after it was planned: its bytes are others now")
    return file


def changed_file(path: str, found: str) -> BadFile:
    """Return the error for a planned file that is not what it was."""
    return BadFile(
        path,
        found,
        "put the original back, or leave this one out and write the rows it should have had into a new file",
    )


def read_lines_starting_in(file: BinaryIO, first: int, last: int, size_bytes: int) -> bytes:
    """Return the lines that start at a byte in [first, last), whole, of the file's first ``size_bytes`` bytes.

    So any cut of a file into ranges gives every line exactly once.
    """
    last = min(last, size_bytes)
    if first >= last:
        return b""
    # The byte before the range says whether a line starts right at its first byte. Both ends are looked for first:
    # cutting off what is not wanted, or putting a line's end behind what was read, would copy all of it.
    start = 0 if first == 0 else _find_behind_line_end(file, first - 1, last)
    if start >= last:
        return b""  # No line starts in here: it is all the inside of one.
    end = _find_behind_line_end(file, last - 1, size_bytes)
    file.seek(start)
    return file.read(end - start)


def _find_behind_line_end(file: BinaryIO, position: int, limit: int) -> int:
    """Return the place behind the first line end from a place on, the limit if there is none before it."""
    file.seek(position)
    while position < limit:
        chunk = file.read(min(_EDGE_BYTES, limit - position))
        if not chunk:
            break
        end = chunk.find(b"\n")
        if end >= 0:
            return position + end + 1
        position += len(chunk)
    return limit


class CompressedDamage(Exception):
    """A compressed file ends early or is damaged; what came before it was good."""


def find_last_line_end(text: bytes) -> int:
    """Return the place behind the last line end, 0 if there is none."""
    return text.rfind(b"\n") + 1


def decompress_pieces(
    file: BinaryIO, compression: str, size_bytes: int, find_end: Callable[[bytes], int] = find_last_line_end
) -> Iterator[bytes]:
    """Yield a compressed file's text in pieces of about 16 MiB, each as far as ``find_end`` says that it is whole.

    Raises ``CompressedDamage`` after what could be recovered.
    """
    chunks: list[bytes] = []
    held_bytes, wanted_bytes = 0, PIECE_BYTES
    damage: CompressedDamage | None = None
    try:
        for chunk in decompress(file, compression, size_bytes):
            chunks.append(chunk)
            held_bytes += len(chunk)
            if held_bytes >= wanted_bytes:
                held = b"".join(chunks)
                end = find_end(held)
                if end:
                    yield held[:end]
                chunks = [held[end:]]
                held_bytes = len(held) - end
                # Where no row ends for so long, looking for its end at every chunk would take for ever.
                wanted_bytes = PIECE_BYTES if end else 2 * held_bytes
    except CompressedDamage as error:
        damage = error
    held = b"".join(chunks)
    if damage is None:
        if held:
            yield held
        return
    end = find_end(held)
    if end:
        yield held[:end]
    raise damage


def decompress(file: BinaryIO, compression: str, size_bytes: int, *, recovers: bool = True) -> Iterator[bytes]:
    """Yield the decompressed bytes in chunks; raise ``CompressedDamage`` after what could be recovered.

    The last few kilobytes before the damage take a while; who does not need them says so.
    """
    return _gunzip(file, size_bytes, recovers) if compression == "gzip" else _unzstd(file, size_bytes, recovers)


def _gunzip(file: BinaryIO, size_bytes: int, recovers: bool) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=31)
    left_bytes = size_bytes
    waiting = b""
    while True:
        if not waiting:
            waiting = file.read(min(_CHUNK_BYTES, left_bytes))
            left_bytes -= len(waiting)
        if not waiting:
            break
        if inflater.eof:
            # A gzip file may be several members one after another; zero padding between them is allowed.
            waiting = waiting.lstrip(b"\0")
            if not waiting:
                continue
            inflater = zlib.decompressobj(wbits=31)
        before = inflater.copy()
        try:
            out = inflater.decompress(waiting)
        except zlib.error as error:
            if recovers:
                yield _inflate_to_damage(before, waiting)
            raise CompressedDamage(f"gzip data is damaged: {error}{_doubt(error)}") from error
        waiting = inflater.unused_data
        if out:
            yield out
    if not inflater.eof:
        raise CompressedDamage("gzip data ends early")


def _inflate_to_damage(inflater: Any, damaged: bytes) -> bytes:
    """Return what comes before the damage: a call that fails gives nothing, so each gets no more than one byte."""
    recovered = []
    with contextlib.suppress(zlib.error):
        for place in range(len(damaged)):
            recovered.append(inflater.decompress(damaged[place : place + 1]))
    return b"".join(recovered)


def _unzstd(file: BinaryIO, size_bytes: int, recovers: bool) -> Iterator[bytes]:
    # The planned bytes only: what was appended later must not change what is read.
    compressed = file.read(size_bytes)
    source = pa.BufferReader(compressed)
    given_chunks = 0
    with pa.CompressedInputStream(source, "zstd") as stream:
        try:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
                given_chunks += 1
        except OSError as error:
            if recovers:
                yield _unzstd_to_damage(compressed, given_chunks, source.tell())
            raise CompressedDamage(f"zstd data is damaged or ends early: {error}{_doubt(error)}") from error


def _unzstd_to_damage(compressed: bytes, given_chunks: int, read_bytes: int) -> bytes:
    """Return what lies between the chunks that were given and the damage."""
    recovered = []
    source = pa.PythonFile(_Trickle(compressed, read_bytes - 2 * _CHUNK_BYTES), mode="r")
    with pa.CompressedInputStream(source, "zstd") as stream, contextlib.suppress(OSError):
        for _ in range(given_chunks):
            stream.read(_CHUNK_BYTES)
        while byte := stream.read(1):
            recovered.append(byte)
    return b"".join(recovered)


class _Trickle(io.BytesIO):
    """Gives one byte at a time from some place on, so that a decompressor fails no sooner than it must."""

    def __init__(self, held: bytes, first: int) -> None:
        super().__init__(held)
        self._first = first

    def read(self, size: int | None = -1, /) -> bytes:
        left_bytes = self._first - self.tell()
        return super().read(1 if left_bytes <= 0 or not size else min(size, left_bytes))


def _doubt(error: Exception) -> str:
    """Say what a checksum that does not fit means: it stands behind what it is the checksum of."""
    is_checksum = any(word in str(error) for word in ("data check", "length check", "checksum"))
    return " (any of its rows may be wrong)" if is_checksum else ""
