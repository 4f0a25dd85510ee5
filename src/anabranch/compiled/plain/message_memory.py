"""Plain twins of ``message_memory``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.plain.memory import bytes_at

_PARTITION_END = -191
_LEFT_OUT = -2
_Pointers = NDArray[np.uint64]


class _Message(ctypes.Structure):
    """An ``rd_kafka_message_t``."""

    _fields_ = (
        ("error", ctypes.c_int32),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_bytes", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("key_bytes", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def copy_memory(target: NDArray[np.uint8], place: int, address: int, size: int) -> None:
    """Copy so many bytes from an address to a place in an array."""
    target[place : place + size] = np.frombuffer(bytes_at(int(address), size), np.uint8)


def measure(
    pointers: _Pointers, count: int, last: int, offsets: Any, sizes: Any, key_sizes: Any, faults: Any
) -> tuple[int, int, int]:
    """Fill offsets and sizes (-1 for nulls) of the messages before an offset; note errors and the next offset."""
    kept: list[int] = []
    value_bytes = key_bytes = 0
    for index, message in enumerate(_messages(pointers, count)):
        sizes[index] = _LEFT_OUT
        if message.error not in (0, _PARTITION_END):
            faults[1] = message.error
            continue
        faults[0] = max(faults[0], message.offset + (message.error == 0))
        if message.error or message.offset >= last:
            continue
        kept.append(message.offset)
        sizes[index] = message.value_bytes if message.value else -1
        key_sizes[index] = message.key_bytes if message.key else -1
        value_bytes += max(0, int(sizes[index]))
        key_bytes += max(0, int(key_sizes[index]))
    offsets[: len(kept)] = kept
    return len(kept), value_bytes, key_bytes


def copy_values(pointers: _Pointers, count: int, sizes: Any, text: Any, ends: Any, is_null: Any) -> int:
    """Copy the values, each followed by a line end; return the number of nulls."""
    written, nulls, kept = b"", 0, 0
    for message, size in zip(_messages(pointers, count), sizes.tolist(), strict=False):
        if size == _LEFT_OUT:
            continue
        written += bytes_at(message.value, size) if size > 0 else b""
        is_null[kept], ends[kept] = size == -1, len(written)
        nulls, kept, written = nulls + (size == -1), kept + 1, written + b"\n"
    text[: len(written)] = list(written)
    return nulls


def copy_keys(pointers: _Pointers, count: int, sizes: Any, key_sizes: Any, text: Any, ends: Any, has_key: Any) -> int:
    """Copy the keys of the messages that are kept, without anything between them."""
    written, kept = b"", 0
    for message, size, key_size in zip(_messages(pointers, count), sizes.tolist(), key_sizes.tolist(), strict=False):
        if size == _LEFT_OUT:
            continue
        written += bytes_at(message.key, key_size) if key_size > 0 else b""
        has_key[kept], ends[kept + 1] = key_size >= 0, len(written)
        kept += 1
    text[: len(written)] = list(written)
    return kept


def free(pointers: _Pointers, count: int, destroy: int) -> None:
    """Give messages back to the library, whose function's address is given."""
    give_back = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroy)
    for pointer in pointers[:count].tolist():
        give_back(pointer)


def _messages(pointers: _Pointers, count: int) -> Iterator[Any]:
    return (_Message.from_address(pointer) for pointer in pointers[:count].tolist())
