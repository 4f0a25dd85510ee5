"""A mark of what a file holds, by which one that was replaced in place is told from one that only grew."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

_BLOCK_BYTES = 4096
_BLOCKS = 16


def mark_content(file: BinaryIO, size_bytes: int) -> str:
    """Return a digest of a file's first bytes: of all, or of sixteen blocks spread evenly over them.

    Reading large files twice, once to plan them, would cost as much as the flow itself; what rewrites a file hardly
    ever leaves all its beginning, its end and fourteen places between as they were.
    """
    digest = hashlib.blake2b(str(size_bytes).encode(), digest_size=12)
    if size_bytes <= _BLOCKS * _BLOCK_BYTES:
        file.seek(0)
        digest.update(file.read(size_bytes))
    else:
        for block in range(_BLOCKS):
            file.seek(block * (size_bytes - _BLOCK_BYTES) // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK_BYTES))
    file.seek(0)
    return digest.hexdigest()
