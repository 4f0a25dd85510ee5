"""Whether what a flow writes would come back to it as input: then it would feed on its own results without end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from anabranch.connectors.sink_ownership import ExclusiveSink
from anabranch.errors import SinkError, SourceError
from anabranch.model import Sink
from anabranch.state.objects import is_url

_OF_CHECKPOINTS = (
    "commits/000000000000.json",
    "epochs/00000001.heartbeat",
    "spark/metadata",
    "spark/offsets/0",
    "state/0/0/e000001.arrow",
    "dead-letter/part-000000000000-00000.json",
)
"""What lies in a checkpoint, one of each kind of name, as far as sources look at names."""


@runtime_checkable
class FindsWritten(Protocol):
    """A source that can say what it would read."""

    label: str

    def would_read(self, written: object) -> bool:
        """Say whether this would be read, were it there: a file by its path or URL, or a ``Topic``."""
        ...


@runtime_checkable
class SaysWhatItWrites(Protocol):
    """A sink whose results a source could find."""

    def written(self) -> tuple[object, ...]:
        """Return examples of what it writes: files by their paths or URLs, ``Topic``s."""
        ...


def refuse_loops(sources: Iterable[object], sinks: Mapping[str, Sink]) -> None:
    """Raise ``SinkError`` if a source would read what a sink writes; sinks are given by what they are called."""
    for source in sources:
        if not isinstance(source, FindsWritten):
            continue
        for name, sink in sinks.items():
            if not isinstance(sink, SaysWhatItWrites):
                continue
            for written in sink.written():
                if source.would_read(written):
                    msg = (
                        f"{name} ({sink.label}) would write {written}, which the source {source.label} would read: the "
                        f"flow would feed on its own results, without end; let it write somewhere else"
                    )
                    raise SinkError(msg)


def refuse_checkpoint_places(checkpoint: str, sources: Iterable[object], sinks: Mapping[str, Sink]) -> None:
    """Raise ``SourceError`` or ``SinkError`` if a flow would read its checkpoint, or write results among its files."""
    root = checkpoint if is_url(checkpoint) else os.path.realpath(checkpoint)
    for source in sources:
        directory = getattr(source, "directory", None)
        inside = directory is not None and _is_within(directory, root)
        if inside or (
            isinstance(source, FindsWritten) and any(source.would_read(f"{root}/{name}") for name in _OF_CHECKPOINTS)
        ):
            label = getattr(source, "label", source)
            msg = (
                f"the source {label} would read files of the flow's own checkpoint {checkpoint}; keep the checkpoint "
                "outside of what is read, or under a name that begins with '_'"
            )
            raise SourceError(msg)
    for name, sink in sinks.items():
        if not isinstance(sink, ExclusiveSink) or not isinstance(sink, SaysWhatItWrites):
            continue
        writes_files = any(isinstance(written, str) for written in sink.written())
        if writes_files and _is_within(sink.place, root) and not _is_within(sink.place, f"{root}/dead-letter"):
            msg = (
                f"{name} ({sink.label}) would write among the files of the flow's own checkpoint {checkpoint}; "
                "let it write somewhere else"
            )
            raise SinkError(msg)


def _is_within(place: str, root: str) -> bool:
    real = place if is_url(place) else os.path.realpath(place)
    return real == root or real.startswith(f"{root.rstrip('/')}/")
