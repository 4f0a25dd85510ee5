"""Small documents of a checkpoint that know whether they are whole: JSON with the checksum of itself."""

from __future__ import annotations

import json
import zlib
from typing import Any

from anabranch.errors import StateDamaged


def checksum_of(body: Any) -> str:
    """Return the checksum of plain JSON data, whatever the order of its fields."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return f"crc32:{zlib.crc32(text):08x}"


def seal_document(body: Any) -> bytes:
    """Return the text of a file with this content."""
    return json.dumps({"checksum": checksum_of(body), "content": body}, separators=(",", ":")).encode()


def check_document(text: bytes, file: str) -> Any:
    """Return the content of a file that ``seal_document`` wrote; raise ``StateDamaged`` if it is not whole."""
    try:
        document = json.loads(text)
        body, said = document["content"], document["checksum"]
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{file} cannot be read ({error}): it is damaged; restore it from a copy of the checkpoint"
        raise StateDamaged(msg) from error
    if checksum_of(body) != said:
        msg = f"{file} has checksum {checksum_of(body)}, but says {said}: restore it from a copy of the checkpoint"
        raise StateDamaged(msg)
    return body
