"""Files that cannot be used: what is said of them, and where a flow remembers that it passes over them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from anabranch.errors import SourceError
from anabranch.state.checksums import check_document, seal_document
from anabranch.state.store import AlreadyExists, open_store

OnBadFile = Literal["stop", "quarantine"]

SET_ASIDE = "set-aside"
"""The folder of a checkpoint that names the files its flow passes over."""


class BadFile(SourceError):
    """One file of a source cannot be used as it is; the others may well be."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        self.path = path
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{path} {reason}; {remedy}")

    def with_ways_out(self, checkpoint: str | None) -> SourceError:
        """Return the error that stops a flow: what is wrong, what mends it, and how to go on without the file."""
        return SourceError(
            f"{self}. The batch is not committed, nothing is lost. To go on without this file: "
            f"anabranch state skip {self.path} {checkpoint or 'CHECKPOINT'}; to set such files aside whenever they "
            f'come: on_bad_file="quarantine"'
        )


@dataclass(frozen=True, slots=True)
class SetAsideFiles:
    """The files that a flow passes over, each a small file of its checkpoint: they count for replays, too."""

    checkpoint: str

    def load(self) -> dict[str, str]:
        """Return path → reason of every file that is set aside; raise ``StateDamaged`` if that cannot be told."""
        store = open_store(self.checkpoint)
        found = [check_document(store.read(entry.name), f"{store.url}/{entry.name}") for entry in store.list(SET_ASIDE)]
        return {entry["path"]: entry["reason"] for entry in found}

    def add(self, path: str, reason: str) -> None:
        """Set a file aside for good; if it is already, the first reason counts."""
        name = hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        content = seal_document({"path": path, "reason": reason})
        try:
            open_store(self.checkpoint).create(f"{SET_ASIDE}/{name}.json", content)
        except AlreadyExists:
            return


@dataclass(frozen=True, slots=True)
class BadFilePolicy:
    """What a source does about files that cannot be used."""

    choice: OnBadFile = "stop"
    set_aside: SetAsideFiles | None = None
    """Where the flow remembers what it passes over; None outside of a flow."""

    def passed_over(self) -> dict[str, str]:
        """Return path → reason of the files that are set aside."""
        return {} if self.set_aside is None else self.set_aside.load()

    def judge(self, bad: BadFile) -> SourceError:
        """Return the error as it is if the file is to be set aside, else the one that stops the flow."""
        if self.choice == "quarantine":
            return bad
        return bad.with_ways_out(None if self.set_aside is None else self.set_aside.checkpoint)


def describe_set_aside(path: str, reason: str) -> str:
    """Return what the batch says of a file that it passed over."""
    return f"{path} is set aside, its rows are not read: {reason}"
