"""Part files: committed results, moved to where they are kept, under names that tell batch and slot."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.connectors.commit_markers import Publication
from anabranch.connectors.filesystem.output_store import OutputStore, open_output_store
from anabranch.connectors.filesystem.staged_frames import drop_staged, fetch_staged
from anabranch.connectors.sink_ownership import refuse_newer
from anabranch.errors import SinkError
from anabranch.model import StagedFile
from anabranch.state.objects import is_url

MARKER = "_anabranch"
"""The file that says whose results these are and up to which batch; without an ending, so that no reader takes it."""

_MARKER_NAME = re.compile(rf"{MARKER}(-\d+)?")
"""Each driver has a marker of its own epoch for its progress, so that an older one cannot set a newer one's back."""
_LEFT_BEHIND = re.compile(rf"\.(part-|{MARKER}).*\.tmp")
"""What a driver that was killed while it wrote a file leaves."""
_PART_NAME = re.compile(r"part-(\d{12})-(\d{5})(?:-(\d+))?\.\w+$")


def name_parts(batch: int, staged: Sequence[tuple[StagedFile, str]], suffix: str) -> list[str]:
    """Return ``part-<batch>-<slot>[-n]`` names, one a staged file, the same for the same files."""
    names: list[str] = []
    taken: dict[int, int] = {}
    for file, _ in staged:
        ordinal = taken.get(file.slot, 0)
        taken[file.slot] = ordinal + 1
        more = f"-{ordinal:05d}" if ordinal else ""
        names.append(f"part-{batch:012d}-{file.slot:05d}{more}{suffix}")
    return names


def example_part(place: str, suffix: str) -> str:
    """Return the path or URL that a part file at a place may have."""
    return f"{place}/part-{0:012d}-{0:05d}{suffix}"


def list_parts(place: str) -> list[tuple[int, str]]:
    """Return (batch, path or URL) of every part file at a place, in order of batch, slot and place in the slot."""
    return [(batch, f"{place}/{name}") for batch, name in _parts_among(open_output_store(place).names())]


def _parts_among(names: Iterable[str]) -> list[tuple[int, str]]:
    parts: list[tuple[int, int, int, str]] = []
    for name in names:
        match = _PART_NAME.match(name)
        if match:
            parts.append((int(match[1]), int(match[2]), int(match[3] or 0), name))
    return [(batch, name) for batch, _, _, name in sorted(parts)]


def claim_parts(outputs: OutputStore, place: str, flow: str, last_batch: int | None) -> None:
    """Take a place for a flow; raise ``SinkError`` if it holds another flow's results or later batches.

    ``last_batch`` is the last batch that the flow's checkpoint has committed, None for a new checkpoint.
    """
    names = outputs.names()
    marker = _read_marker(outputs, place, names)
    batches = [batch for batch, _ in _parts_among(names)]
    if batches and marker is None:
        msg = f"{place} holds {len(batches)} part files of unknown origin (no file {MARKER}); write somewhere else"
        raise SinkError(msg)
    if marker is not None and marker["flow"] != flow and (batches or marker["published"] >= 0):
        msg = (
            f"{place} holds results of the flow {marker['flow']!r}, this one is {flow!r}; "
            f"write somewhere else, or delete them if they are not wanted"
        )
        raise SinkError(msg)
    refuse_newer(place, max(batches, default=-1), last_batch)
    if marker is None or marker["flow"] != flow:
        _write_marker(outputs, flow, -1)
    for name in names:
        if _LEFT_BEHIND.fullmatch(name):
            outputs.remove(name)


def publish_parts(
    outputs: OutputStore,
    place: str,
    batch: int,
    staged: Sequence[tuple[StagedFile, str]],
    suffix: str,
    context: Mapping[str, Any],
) -> None:
    """Move staged files to their part names, once however often it is called; readers see whole files or none.

    Files without rows are dropped. A part file that a consumer has deleted already is not missed.
    """
    flow, epoch = str(context["flow"]), Publication.of(batch, context).epoch
    present = outputs.names()
    marker = _read_marker(outputs, place, present) or {"flow": flow, "published": -1}
    if marker["flow"] != flow:
        msg = f"{place} belongs to the flow {marker['flow']!r}, this one is {flow!r}; write somewhere else"
        raise SinkError(msg)
    if not staged:
        return
    for name, (file, path) in zip(name_parts(batch, staged, suffix), staged, strict=True):
        if file.rows == 0:
            drop_staged(path)
        elif name in present:
            _finish(outputs, place, name, path)
        elif _is_there(path):
            outputs.take(path, name)
        elif marker["published"] < batch:
            msg = (
                f"batch {batch} cannot be published: neither the staged file {path} nor {place}/{name} exists; "
                f"return to an earlier batch with `anabranch state rollback --to {batch - 1}`"
            )
            raise SinkError(msg)
    outputs.settle()
    if marker["published"] < batch:
        _write_marker(outputs, flow, batch, f"{MARKER}-{epoch:08d}")
        for name in present:
            if _MARKER_NAME.fullmatch(name) and MARKER < name < f"{MARKER}-{epoch:08d}":
                outputs.remove(name)


def retract_parts(outputs: OutputStore, place: str, after_batch: int) -> None:
    """Delete the part files of later batches."""
    names = outputs.names()
    for batch, name in _parts_among(names):
        if batch > after_batch:
            outputs.remove(name)
    outputs.settle()
    for name in names:
        if _MARKER_NAME.fullmatch(name):
            marker = _read_one(outputs, place, name)
            if marker is not None and marker["published"] > after_batch:
                _write_marker(outputs, marker["flow"], after_batch, name)


def _finish(outputs: OutputStore, place: str, name: str, path: str) -> None:
    """End a publication that was cut off between copying and deleting; refuse to lose other rows."""
    staged = fetch_staged(path)
    if staged is None:
        return
    if outputs.read(name) != staged:
        msg = (
            f"{place}/{name} exists already with other rows than the committed {path}; "
            f"two sinks or two flows may write to the same place: give each its own"
        )
        raise SinkError(msg)
    drop_staged(path)


def _is_there(path: str) -> bool:
    return fetch_staged(path) is not None if is_url(path) else os.path.exists(path)


def _read_marker(outputs: OutputStore, place: str, names: Iterable[str]) -> dict[str, Any] | None:
    """Return whose results these are, and the last batch that any driver has published."""
    markers = [_read_one(outputs, place, name) for name in names if _MARKER_NAME.fullmatch(name)]
    found = [marker for marker in markers if marker is not None]
    return max(found, key=lambda marker: int(marker["published"])) if found else None


def _read_one(outputs: OutputStore, place: str, name: str) -> dict[str, Any] | None:
    held = outputs.read(name)
    if held is None:
        return None
    try:
        marker: dict[str, Any] = json.loads(held)
        return {"flow": str(marker["flow"]), "published": int(marker["published"])}
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{place}/{name} is damaged ({error}); restore it from a copy, or write somewhere else"
        raise SinkError(msg) from error


def _write_marker(outputs: OutputStore, flow: str, published: int, name: str = MARKER) -> None:
    outputs.write(name, json.dumps({"flow": flow, "published": published}).encode())
