"""What a file source remembers of the files it has planned."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

import numpy as np

from anabranch.connectors.filesystem.listing import FileEntry

_RECORD = np.dtype([("name", "<u8"), ("mark", "<u4"), ("gone_since", "<u4")])

FORGET_AFTER_SECONDS = 24 * 3600
"""How long a deleted file is remembered; if the same name comes back sooner, it counts as a rewritten file."""


class SeenFiles:
    """The set of planned files: 16 bytes a file that still exists, whatever its age.

    There is no time horizon, so a file with an old modification time that appears late is still new.
    Names are kept as 64-bit hashes: among a million files, two share one with a probability of about 3e-8.
    """

    def __init__(self) -> None:
        self._records: dict[int, tuple[int, int]] = {}
        """Hash of the name → hash of size and time, and the second since which the file is gone (0: it is there)."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, entry: FileEntry) -> bool:
        return self.has_name(entry.name)

    def has_name(self, name: str) -> bool:
        """Say whether a file of this name, relative to the source's directory, is remembered."""
        return _hash_name(name) in self._records

    def add(self, entry: FileEntry) -> None:
        """Remember a file as it is now."""
        self._records[_hash_name(entry.name)] = (_hash_extent(entry), 0)

    def has_changed(self, entry: FileEntry) -> bool:
        """Say whether a remembered file has another size or time than when it was remembered."""
        record = self._records.get(_hash_name(entry.name))
        return record is not None and record[0] != _hash_extent(entry)

    def forget_deleted(self, listed: Iterable[FileEntry], now_seconds: float) -> None:
        """Drop files that have been missing from listings for long enough.

        A day's grace keeps a directory that is unmounted for a while from being read all over again.
        """
        present = {_hash_name(entry.name) for entry in listed}
        for name, (mark, gone_since_seconds) in list(self._records.items()):
            if name in present:
                if gone_since_seconds:
                    self._records[name] = (mark, 0)
            elif not gone_since_seconds:
                self._records[name] = (mark, max(1, int(now_seconds)))
            elif now_seconds - gone_since_seconds > FORGET_AFTER_SECONDS:
                del self._records[name]

    def copy(self) -> SeenFiles:
        """Return an equal set that can be changed apart from this one."""
        twin = SeenFiles()
        twin._records = self._records.copy()
        return twin

    def to_text(self) -> str:
        """Return the set as base64 text, equal for equal sets."""
        rows = [(name, mark, gone_since) for name, (mark, gone_since) in sorted(self._records.items())]
        return base64.b64encode(np.array(rows, dtype=_RECORD).tobytes()).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> SeenFiles:
        """Read what ``to_text`` wrote."""
        seen = cls()
        for name, mark, gone_since in np.frombuffer(base64.b64decode(text), dtype=_RECORD).tolist():
            seen._records[name] = (mark, gone_since)
        return seen


def _hash_name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def _hash_extent(entry: FileEntry) -> int:
    extent = f"{entry.size_bytes} {entry.mtime_ns}".encode()
    return int.from_bytes(hashlib.blake2b(extent, digest_size=4).digest(), "little")
