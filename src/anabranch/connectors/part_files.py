"""Part files: committed results, moved into a directory under names that tell batch and slot."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.errors import SinkError
from anabranch.model import StagedFile

MARKER = "_anabranch"
_PART_NAME = re.compile(r"part-(\d{12})-(\d{5})(?:-(\d+))?\.\w+$")


def name_parts(batch: int, staged: Sequence[tuple[StagedFile, str]], suffix: str) -> list[str]:
    """Return ``part-<batch>-<slot>[-n]`` names, one a staged file, the same for the same files."""
    names: list[str] = []
    taken: dict[int, int] = {}
    for file, _ in staged:
        ordinal = taken.get(file.slot, 0)
        taken[file.slot] = ordinal + 1
        more = f"-{ordinal}" if ordinal else ""
        names.append(f"part-{batch:012d}-{file.slot:05d}{more}{suffix}")
    return names


def list_parts(directory: str) -> Iterator[tuple[int, str]]:
    """Yield (batch, path) of every part file, in order of batch and slot."""
    if not os.path.isdir(directory):
        return
    for name in sorted(os.listdir(directory)):
        match = _PART_NAME.match(name)
        if match:
            yield int(match[1]), os.path.join(directory, name)


def claim_directory(directory: str, flow: str, last_batch: int | None) -> None:
    """Take a directory for a flow; raise ``SinkError`` if it holds another flow's results or later batches.

    ``last_batch`` is the last batch that the flow's checkpoint has committed, None for a new checkpoint.
    """
    marker = _read_marker(directory)
    batches = [batch for batch, _ in list_parts(directory)]
    if batches and marker is None:
        msg = f"{directory} holds {len(batches)} part files but no {MARKER}; write into an empty directory"
        raise SinkError(msg)
    if marker is not None and marker["flow"] != flow and (batches or marker["published"] >= 0):
        msg = (
            f"{directory} holds results of the flow {marker['flow']!r}, this one is {flow!r}; "
            f"write into another directory, or delete that one if its results are not wanted"
        )
        raise SinkError(msg)
    latest = max(batches, default=-1)
    if latest > (-1 if last_batch is None else last_batch):
        known = "is new" if last_batch is None else f"ends with batch {last_batch}"
        msg = (
            f"{directory} holds results up to batch {latest}, but the checkpoint {known}; "
            f"use the checkpoint they were made with, or write into an empty directory"
        )
        raise SinkError(msg)
    if marker is None or marker["flow"] != flow:
        os.makedirs(directory, exist_ok=True)
        _write_marker(directory, {"flow": flow, "published": -1})


def publish_parts(directory: str, batch: int, staged: Sequence[tuple[StagedFile, str]], suffix: str, flow: str) -> None:
    """Move staged files to their part names, once however often it is called; readers see whole files or none."""
    os.makedirs(directory, exist_ok=True)
    marker = _read_marker(directory) or {"flow": flow, "published": -1}
    if marker["flow"] != flow:
        msg = f"{directory} belongs to the flow {marker['flow']!r}, this one is {flow!r}; write into another directory"
        raise SinkError(msg)
    if not staged:
        return
    for name, (file, source) in zip(name_parts(batch, staged, suffix), staged, strict=True):
        target = os.path.join(directory, name)
        if os.path.exists(target) or file.rows == 0:
            _remove(source)
        elif os.path.exists(source):
            _move(source, target)
        elif marker["published"] < batch:
            msg = (
                f"batch {batch} cannot be published: neither the staged file {source} nor {target} exists; "
                f"return to an earlier batch with `anabranch state rollback --to {batch - 1}`"
            )
            raise SinkError(msg)
    _sync_directory(directory)
    if marker["published"] < batch:
        _write_marker(directory, {"flow": flow, "published": batch})


def retract_parts(directory: str, after_batch: int) -> None:
    """Delete the part files of later batches."""
    for batch, path in list_parts(directory):
        if batch > after_batch:
            _remove(path)
    marker = _read_marker(directory)
    if marker is not None and marker["published"] > after_batch:
        _write_marker(directory, marker | {"published": after_batch})


def _move(source: str, target: str) -> None:
    with open(source, "rb") as file:
        os.fsync(file.fileno())
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise _cannot_write(target, error) from error
        hidden = os.path.join(os.path.dirname(target), "." + os.path.basename(target) + ".tmp")
        try:
            with open(source, "rb") as reader, open(hidden, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
            os.replace(hidden, target)
        except OSError as failure:
            _remove(hidden)
            raise _cannot_write(target, failure) from failure
        _sync_directory(os.path.dirname(target))
        _remove(source)


def _cannot_write(target: str, error: OSError) -> SinkError:
    return SinkError(
        f"cannot write {target}: {error.strerror}; the batch is committed and will be published at the next start"
    )


def _read_marker(directory: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(directory, MARKER), encoding="utf-8") as file:
            marker: dict[str, Any] = json.load(file)
            return marker
    except FileNotFoundError:
        return None
    except ValueError as error:
        msg = f"{os.path.join(directory, MARKER)} is damaged: {error}; write into another directory"
        raise SinkError(msg) from error


def _write_marker(directory: str, marker: dict[str, Any]) -> None:
    path = os.path.join(directory, MARKER)
    try:
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(marker, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    _sync_directory(directory)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
