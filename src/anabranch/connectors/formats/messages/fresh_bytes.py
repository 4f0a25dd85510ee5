"""Bytes that are filled where they lie: made empty, filled by compiled code, never copied."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

_NEW_BYTES = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_ADDRESS_OF_BYTES = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))


def make_bytes(size: int) -> bytes:
    """Return bytes whose content is still open: filling them at once saves copying them afterwards."""
    made: bytes = _NEW_BYTES(None, size)
    return made


def open_bytes(fresh: bytes) -> NDArray[np.uint8]:
    """Return bytes that nobody else has seen yet as an array to be filled; it does not keep them from being freed."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * len(fresh)).from_address(_ADDRESS_OF_BYTES(fresh)))
