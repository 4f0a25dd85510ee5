"""Places that belong to one sink of one flow, and what a sink does to have such a place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from anabranch.errors import SinkError
from anabranch.model import Sink

_WRONG_CHECKPOINT = "use the checkpoint they were made with, or write somewhere else"


@runtime_checkable
class ExclusiveSink(Sink, Protocol):
    """A sink whose place must not be shared. A sink without these two members may share whatever it writes to.

    Examples:
        >>> from anabranch.connectors import ExclusiveSink
        >>> isinstance(ab.parquet("lowest"), ExclusiveSink), isinstance(ab.console(), ExclusiveSink)
        (True, False)
        >>> ab.parquet("lowest").place == ab.parquet("./lowest/").place
        True
    """

    @property
    def place(self) -> str:
        """Name where it writes, the same for the same place however it was spelled: a real path, a URL, a table."""
        ...

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the place for a flow, or raise ``SinkError`` if it holds another one's results, or later ones.

        Called at every start, on the driver, after it has taken the checkpoint and before its first batch.
        ``last_batch`` is the last one that the checkpoint has committed, None if it is new.
        """
        ...


class ResultsLost(SinkError):
    """A place lost results that were published to it before, and its sink wants them published again.

    Raised by ``publish``; the engine then publishes again what the checkpoint keeps of batches from ``since`` on, with
    ``rebuilding`` in the context.

    Examples:
        >>> from anabranch.connectors import ResultsLost
        >>> ResultsLost("the table is empty", since=3).since
        3
    """

    def __init__(self, message: str, since: int) -> None:
        super().__init__(message)
        self.since = since


class TakenOver(SinkError):
    """Another driver has taken a place over since this one did. Whoever holds the flow's lease may publish again.

    An older driver that paused in its start, and wakes up, takes places over, too.
    """


def refuse_newer(place: str, batch: int, last_batch: int | None) -> None:
    """Raise ``SinkError`` if a place holds a later batch than the last one of the checkpoint, None if it is new."""
    if last_batch is None and batch >= 0:
        msg = f"{place} holds results up to batch {batch}, but the checkpoint is new; {_WRONG_CHECKPOINT}"
        raise SinkError(msg)
    if last_batch is not None and batch > last_batch:
        msg = (
            f"{place} holds results up to batch {batch}, but the checkpoint ends with batch {last_batch}; "
            f"{_WRONG_CHECKPOINT}; if batch {batch} was lost from this one, restore it from a copy, or let `anabranch "
            f"state rollback --to {last_batch} CHECKPOINT --flow FLOW` take the later results back"
        )
        raise SinkError(msg)


def claim_places(sinks: Iterable[Sink], flow: str, last_batch: int | None) -> None:
    """Take the places of those sinks that have one."""
    for sink in sinks:
        if isinstance(sink, ExclusiveSink):
            sink.claim(flow, last_batch)


def close_sinks(sinks: Iterable[Sink]) -> None:
    """Let go of the connections that sinks hold, those that have any; they may be used again."""
    for sink in sinks:
        close = getattr(sink, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):
                close()


def name_sinks(sinks: Iterable[Sink], dead_letter: Sink | None) -> dict[str, Sink]:
    """Return a flow's sinks by what an error calls them."""
    named = {f"sink {index}": sink for index, sink in enumerate(sinks)}
    return named if dead_letter is None else {**named, "the dead-letter sink": dead_letter}


def refuse_shared_places(sinks: Mapping[str, Sink]) -> None:
    """Raise ``SinkError`` if two sinks, which are given by what they are called, would write to the same place."""
    taken: dict[str, str] = {}
    for name, sink in sinks.items():
        if not isinstance(sink, ExclusiveSink):
            continue
        if sink.place in taken:
            msg = (
                f"{taken[sink.place]} and {name} ({sinks[taken[sink.place]].label} and {sink.label}) write to the same "
                f"place, {sink.place}; give each one of its own"
            )
            raise SinkError(msg)
        taken[sink.place] = name
