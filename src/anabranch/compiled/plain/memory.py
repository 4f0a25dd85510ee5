"""Bytes at addresses, as plain Python reads them: twins of loops that are given nothing but an address."""

from __future__ import annotations

import ctypes
import re

LINE_END = b"\n"
_CHUNK_BYTES = 32


def bytes_at(address: int, size: int) -> bytes:
    """Return so many bytes from an address on."""
    return ctypes.string_at(address, size)


def line_at(address: int) -> bytes:
    """Return the bytes from an address to before the next line end; 32 bytes behind it may be looked at."""
    found = b""
    while LINE_END not in found:
        found += ctypes.string_at(address + len(found), _CHUNK_BYTES)
    return found[: found.index(LINE_END)]


def length_of(pattern: bytes, address: int) -> int:
    """Return how many bytes of a line match a pattern."""
    found = re.match(pattern, line_at(address))
    return 0 if found is None else found.end()


def write_bytes(address: int, content: bytes) -> None:
    """Write bytes to an address."""
    ctypes.memmove(address, content, len(content))
