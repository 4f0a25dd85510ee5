"""Which files are still needed, and getting rid of the rest."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.errors import CheckpointError
from anabranch.state.checkpoint import Checkpoint, commit_file
from anabranch.state.manifest import Manifest

logger = logging.getLogger("anabranch")

DEFAULT_FOLDERS = ("state", "results")
HALF_WRITTEN_FOR_SECONDS = 3600.0
"""A temporary file that was not touched for so long belongs to a writer that died."""

_WRITTEN_FILE = re.compile(r".*/e(\d+)-b(-?\d+)-a\d+-[^/]*")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed."""

    files: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()


def named_files(manifest: Manifest) -> frozenset[str]:
    """Return the files that a manifest keeps alive: its runs, what could rebuild them, and its staged results."""
    runs = {ref.file for ref in manifest.files()}
    return frozenset(runs | {staged.file for files in manifest.sinks.values() for staged in files})


class Retention:
    """Keeps the files of the last few batches of a checkpoint.

    Manifests go before the files they name, so that at no moment a manifest names a file that retention removed.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._named: dict[int, frozenset[str] | None] = {}

    def advance(self, committed: Manifest) -> Swept:
        """Remove what only batches beyond the retention named; lists no folder, so it is cheap after every batch."""
        self._named[committed.batch] = named_files(committed)
        expired, kept = self._divide()
        needed = self._needed_by(kept)
        if needed is None:
            return self._remove((), expired)
        names = frozenset[str]().union(*(self._names_of(batch) or () for batch in expired))
        return self._remove(sorted(names - needed), expired)

    def sweep(self, epoch: int, now_seconds: float, folders: Sequence[str] = DEFAULT_FOLDERS) -> Swept:
        """List the folders and remove every file that no kept batch names and no running task may still write.

        Files of batches that are not committed yet stay, also those of older epochs: a driver that was paused may
        commit them in the last moment.
        """
        expired, kept = self._divide()
        needed = self._needed_by(kept)
        if needed is None:
            return self._remove((), expired)
        last_committed = kept[-1] if kept else None
        store = self._checkpoint.store
        doomed = [
            entry.name
            for folder in folders
            for entry in store.list(folder)
            if entry.name not in needed and _is_over(entry.name, epoch, last_committed)
        ]
        doomed += [
            entry.name
            for folder in (*folders, "commits", "epochs")
            for entry in store.abandoned(folder)
            if now_seconds - entry.modified_seconds > HALF_WRITTEN_FOR_SECONDS
        ]
        return self._remove(doomed, expired)

    def _divide(self) -> tuple[list[int], list[int]]:
        batches = self._checkpoint.batches()
        cut = max(len(batches) - self._checkpoint.kept_batches, 0)
        return batches[:cut], batches[cut:]

    def _needed_by(self, kept: Sequence[int]) -> frozenset[str] | None:
        """Return the files that batches name; None if the manifest of one of them cannot be read.

        Then no file is removed until that batch has expired: the next sweep finds what is left.
        """
        named = [self._names_of(batch) for batch in kept]
        return None if None in named else frozenset[str]().union(*(names or () for names in named))

    def _names_of(self, batch: int) -> frozenset[str] | None:
        if batch not in self._named:
            try:
                self._named[batch] = named_files(self._checkpoint.load(batch))
            except CheckpointError as error:
                logger.warning("batch %d cannot be gone back to, and no old file is removed: %s", batch, error)
                self._named[batch] = None
        return self._named[batch]

    def _remove(self, files: Sequence[str], expired: Sequence[int]) -> Swept:
        self._checkpoint.store.delete([commit_file(batch) for batch in expired])
        self._checkpoint.forget(expired)
        for batch in expired:
            self._named.pop(batch, None)
        self._checkpoint.store.delete(files)
        return Swept(tuple(files), tuple(expired))


def _is_over(file: str, epoch: int, last_committed: int | None) -> bool:
    match = _WRITTEN_FILE.fullmatch(file)
    if match is None or last_committed is None:
        return False
    return int(match[1]) <= epoch and int(match[2]) <= last_committed
