"""Checksums of what a checkpoint holds, and small documents that know whether they are whole: JSON with its own."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pyarrow as pa

from anabranch.errors import StateDamaged


def checksum_of(*pieces: bytes | memoryview | pa.Buffer) -> str:
    """Return the checksum that manifests carry: CRC-32, at 4 GB/s the only one that reading does not feel."""
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return f"crc32:{checksum:08x}"


def checksum_of_json(body: Any) -> str:
    """Return the checksum of plain JSON data, whatever the order of its fields."""
    return checksum_of(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def seal_document(body: Any) -> bytes:
    """Return the text of a file with this content."""
    return json.dumps({"checksum": checksum_of_json(body), "content": body}, separators=(",", ":")).encode()


def check_document(text: bytes, file: str) -> Any:
    """Return the content of a file that ``seal_document`` wrote; raise ``StateDamaged`` if it is not whole."""
    try:
        document = json.loads(text)
        body, said = document["content"], document["checksum"]
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{file} cannot be read ({error}): it is damaged; restore it from a copy of the checkpoint"
        raise StateDamaged(msg) from error
    if checksum_of_json(body) != said:
        msg = f"{file} has checksum {checksum_of_json(body)}, but says {said}: restore it from a copy of the checkpoint"
        raise StateDamaged(msg)
    return body
