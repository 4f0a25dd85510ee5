"""The checksums of record batches, CRC-32C, by the instruction that processors have for it where that is known.

Importing this takes as long as importing Numba.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_WORD_BYTES = 8
_INSTRUCTION = "llvm.x86.sse42.crc32.64.64"


def _make_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE = _make_table()


@intrinsic  # type: ignore[untyped-decorator]
def _add_word(context: Any, checksum: Any, word: Any) -> Any:
    """Return the checksum with eight bytes more."""

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(64)])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, _INSTRUCTION), arguments)

    return types.uint64(types.uint64, types.uint64), generate


def _by_bytes(data: NDArray[np.uint8]) -> Any:
    checksum = np.uint32(_ONES)
    for byte in data:
        checksum = _TABLE[(checksum ^ byte) & 0xFF] ^ (checksum >> np.uint32(8))
    return np.uint32(checksum ^ np.uint32(_ONES))


def _by_words(data: NDArray[np.uint8]) -> Any:
    words = data[: len(data) // _WORD_BYTES * _WORD_BYTES].view(np.uint64)
    long = np.uint64(_ONES)
    for word in words:
        long = _add_word(long, word)
    checksum = np.uint32(long)
    for place in range(len(words) * _WORD_BYTES, len(data)):
        checksum = _TABLE[(checksum ^ data[place]) & 0xFF] ^ (checksum >> np.uint32(8))
    return np.uint32(checksum ^ np.uint32(_ONES))


def _has_instruction() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and binding.get_host_cpu_features().get("sse4.2", False)


checksum_by_bytes: Callable[[NDArray[np.uint8]], int] = compile_loop(_by_bytes)
checksum_of: Callable[[NDArray[np.uint8]], int] = compile_loop(_by_words) if _has_instruction() else checksum_by_bytes
