"""Plain twins of ``crc32c``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF


def checksum_by_bytes(data: NDArray[np.uint8]) -> int:
    """Return the CRC-32C of bytes, bit by bit."""
    checksum = _ONES
    for byte in data.tolist():
        checksum ^= byte
        for _ in range(8):
            checksum = (checksum >> 1) ^ (_POLYNOMIAL if checksum & 1 else 0)
    return checksum ^ _ONES


checksum_of = checksum_by_bytes
