"""What a run committed, told so that two runs can be compared: by what files hold, not by what they are called."""

from __future__ import annotations

from typing import Any

from anabranch.model import RunRef
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.manifest import Manifest
from anabranch.state.store import open_store


def contents_of(checkpoint: str) -> list[dict[str, Any]]:
    """Return what every kept batch committed, with what files hold in place of their names."""
    commits = Checkpoint(open_store(checkpoint))
    return [_without_names(commits.load(batch)) for batch in commits.batches()]


def _without_names(manifest: Manifest) -> dict[str, Any]:
    found = manifest.to_json()
    # Who asked for the batch, and what exchanges took of the processor's time.
    del found["query_id"], found["engine"]["exchanges"]
    for level, kept in zip(found["levels"], manifest.levels, strict=True):
        for part in ("runs", "handoffs"):
            level[part] = [[_told(ref) for ref in refs] for refs in getattr(kept, part)]
    found["sinks"] = {
        sink: [(file.rows, file.slot, file.bytes) for file in files] for sink, files in manifest.sinks.items()
    }
    found["lanes"] = {
        operator: [(buffer.reader, [_told(ref) for ref in buffer.runs], buffer.rows) for buffer in buffers]
        for operator, buffers in manifest.reader_buffers.items()
    }
    return found


def _told(ref: RunRef) -> tuple[Any, ...]:
    return ref.rows, ref.bytes, ref.checksum, ref.batch, len(ref.made_from)
