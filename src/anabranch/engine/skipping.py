"""Leave one file out of a flow that is down, whatever was planned of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from anabranch.connectors.filesystem.bad_files import SetAsideFiles
from anabranch.connectors.filesystem.seen_files import SeenFiles
from anabranch.errors import CheckpointError
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.epochs import Owner, take_epoch
from anabranch.state.split_log import BEFORE_FIRST, LogEntry, SplitLog

BY_COMMAND = "left out by anabranch state skip"
_FILES_NAMED = 10


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that the next start passes over, and how far it was read."""

    path: str
    standing: str


def skip_file(checkpoint: Checkpoint, wanted: str, owner: Owner, now: Callable[[], float]) -> SkippedFile:
    """Set a file aside; refused while a driver is alive, and for a file whose rows are committed."""
    lease = take_epoch(checkpoint.store, owner, now, over_stopped=False)
    try:
        found = _find_file(checkpoint, wanted)
        SetAsideFiles(checkpoint.store.url).add(found.path, BY_COMMAND)
    finally:
        lease.release()
    return found


def _find_file(checkpoint: Checkpoint, wanted: str) -> SkippedFile:
    log = SplitLog(checkpoint.store)
    latest = checkpoint.latest()
    offset = latest.end_offset if latest is not None else None
    last = int(offset["entry"]) if offset is not None else BEFORE_FIRST
    committed = log.load(last) if last > BEFORE_FIRST else None
    pending = list(_entries_after(log, last))
    begun = {path: "it was read in part; the rest is left out" for path in _open_files(committed)}
    planned = {
        split["path"]: "it is in a batch that was planned and is not committed"
        for entry in pending
        for _, split in entry.splits
        if "path" in split
    }
    known = planned | begun
    full = wanted if "://" in wanted else os.path.abspath(wanted)
    matching = [full] if full in known else [path for path in known if path.endswith(f"/{wanted}")]
    if len(matching) == 1:
        return SkippedFile(matching[0], known[matching[0]])
    if matching:
        msg = f"{wanted} may be any of {', '.join(sorted(matching))}; give the whole path"
        raise CheckpointError(msg)
    if committed is not None and _is_seen(committed, full):
        msg = (
            f"the rows of {full} are committed: leaving it out would change nothing; to take them back, go back to a "
            f"batch before it with `anabranch state rollback` and skip the file then"
        )
        raise CheckpointError(msg)
    if "://" in full or os.path.exists(full):
        return SkippedFile(full, "it is not planned yet")
    named = ", ".join(sorted(known)[:_FILES_NAMED]) or "none"
    msg = f"there is no file {full}, and none such is planned; planned and not committed are: {named}"
    raise CheckpointError(msg)


def _entries_after(log: SplitLog, number: int) -> Iterator[LogEntry]:
    while (entry := log.find(number + 1)) is not None:
        yield entry
        number += 1


def _open_files(entry: LogEntry | None) -> list[str]:
    positions = entry.positions.values() if entry is not None else ()
    return [position["open"]["path"] for position in positions if position.get("open")]


def _is_seen(entry: LogEntry, path: str) -> bool:
    parts = PurePosixPath(path).parts
    # Files are remembered by their names below the source's directory, which may be any of these.
    names = ["/".join(parts[start:]) for start in range(1, len(parts))]
    seen = [SeenFiles.from_text(position["seen"]) for position in entry.positions.values() if "seen" in position]
    return any(files.has_name(name) for files in seen for name in names)
