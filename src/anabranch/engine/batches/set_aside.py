"""Files that a flow passes over: what its sources are told of them, and what becomes of splits planned before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from anabranch.connectors.filesystem.bad_files import SetAsideFiles, describe_set_aside
from anabranch.engine.batches.jobs import BatchInput, Packs
from anabranch.errors import SourceError
from anabranch.model import Split
from anabranch.query.graph import FlowGraph
from anabranch.query.nodes import Readable
from anabranch.query.required_columns import required_columns
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.store import open_store


@runtime_checkable
class ReadsFiles(Protocol):
    """A source that wants to know what the flow needs of every file, and which files it passes over."""

    def told(self, required: Sequence[str], set_aside: SetAsideFiles, proven: bool) -> Readable: ...


def tell_sources(graph: FlowGraph, checkpoint: str) -> tuple[Readable, ...]:
    """Return the flow's sources as they are with a checkpoint."""
    required = required_columns(graph.nodes)
    store = open_store(checkpoint)
    proven = bool(Checkpoint(store).batches())
    set_aside = SetAsideFiles(store.url)
    return tuple(
        source.told(required.get(index, ()), set_aside, proven) if isinstance(source, ReadsFiles) else source
        for index, source in enumerate(graph.sources)
    )


class PassedOver:
    """The set-aside files of a running flow; nobody but its driver sets others aside meanwhile."""

    def __init__(self, checkpoint: str) -> None:
        self._files = SetAsideFiles(checkpoint)
        self._known = self._files.load()

    def leave_out(self, given: BatchInput) -> BatchInput:
        """Return a batch without the rows of set-aside files; each is told of once."""
        packs, left_out = leave_out(given.packs, self._known)
        told = tuple(describe_set_aside(path, reason) for path, reason in left_out.items())
        return replace(given, packs=packs, problems=given.problems + told) if left_out else given

    def set_aside(self, found: Mapping[str, str], given: BatchInput) -> BatchInput:
        """Set further files aside, durably first: whoever runs the batch again leaves them out, too."""
        if not leave_out(given.packs, found)[1]:
            # Running the batch again would only repeat it, without end.
            msg = (
                f"{', '.join(found)} cannot be used, and no split of batch {given.batch} that is not set aside yet has "
                f"it as its path: sources that report bad files name them so, and pass over splits with 'set_aside'"
            )
            raise SourceError(msg)
        for path, reason in found.items():
            self._files.add(path, reason)
        self._known = {**found, **self._known}
        return self.leave_out(given)


def leave_out(packs: Packs, set_aside: Mapping[str, str]) -> tuple[Packs, dict[str, str]]:
    """Return the packs with splits of set-aside files marked, and these files; one split of each brings its letter."""
    first: dict[str, int] = {}
    for ordinal, _, split in sorted((item for pack in packs for item in pack), key=lambda item: item[0]):
        if split.get("path") in set_aside and "set_aside" not in split:
            first.setdefault(split["path"], ordinal)
    if not first:
        return packs, {}
    marked: Packs = tuple(
        [(ordinal, source, _mark(split, ordinal, first, set_aside)) for ordinal, source, split in pack]
        for pack in packs
    )
    return marked, {path: set_aside[path] for path in first}


def _mark(split: Split, ordinal: int, first: Mapping[str, int], set_aside: Mapping[str, str]) -> Split:
    path = str(split.get("path", ""))
    if path not in first or "set_aside" in split:
        return split
    return {**split, "set_aside": set_aside[path] if first[path] == ordinal else ""}
