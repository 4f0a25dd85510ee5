"""What happened to a flow, asked of its checkpoint; the flow may run or not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta

import polars as pl

from anabranch.errors import CheckpointError, FlowError, name_alternatives
from anabranch.eventtime import parse_duration
from anabranch.metrics.event_frames import frame_events
from anabranch.model.events import EVENT_KINDS, EventKind, HistoryRecord, with_company
from anabranch.query.event_times import read_moment_us
from anabranch.state.event_files import read_history
from anabranch.state.store import Store, open_store

Since = str | date | datetime | timedelta | int


def history(
    checkpoint: str | os.PathLike[str], kind: EventKind | None = None, since: Since | None = None
) -> pl.DataFrame:
    """Return what happened to a flow, of all its runs, oldest first.

    Without a kind, each event has a sentence; of one kind (*start*, *stop*, *batch*, *decision*, *effect*, *failure*,
    *recovery*, *span*), all that it says has a column. ``since`` is a moment, a time before now such as ``"10m"``, or a
    batch's number.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
        >>> _ = flow.run("state", trigger="available-now")
        >>> ab.history("state").select("kind", "batch").rows()
        [('start', None), ('batch', 0), ('stop', 0)]
        >>> ab.history("state", kind="batch").select("batch", "rows_in", "rows_out").rows()
        [(0, 4, 2)]
    """
    if kind is not None:
        check_kind(kind)
    return frame_events(find_events(open_checkpoint(checkpoint), since), kind)


def check_kind(kind: str) -> None:
    """Raise ``FlowError`` that names the kinds of events if it is none."""
    if kind not in EVENT_KINDS:
        msg = f"history: no kind {kind!r}; {name_alternatives(kind, EVENT_KINDS)}"
        raise FlowError(msg)


def open_checkpoint(checkpoint: str | os.PathLike[str]) -> Store:
    """Open a store to read from; a local folder that is not there is refused, and not made."""
    place = os.fspath(checkpoint)
    if "://" not in place and not os.path.isdir(place):
        msg = f"there is no checkpoint {place}; give the folder or URL that the flow was started with"
        raise CheckpointError(msg)
    return open_store(place)


def find_events(store: Store, since: Since | None = None, after: int | None = None) -> Iterator[HistoryRecord]:
    """Yield events since a moment or batch, or those behind a number; batches with what their company says."""
    is_wanted = read_since(since)
    return (record for record in with_company(read_history(store, after)) if is_wanted(record))


def read_since(since: Since | None) -> Callable[[HistoryRecord], bool]:
    """Return what says whether an event is wanted; raise ``FlowError`` for what is no moment, duration or batch."""
    if since is None:
        return lambda record: True
    text = str(since).strip() if isinstance(since, str | int) else ""
    if text.isdecimal():
        first = int(text)
        return lambda record: record.event.batch is not None and record.event.batch >= first
    if isinstance(since, timedelta) or (text[:1].isdigit() and text[-1:].isalpha() and "T" not in text):
        moment = time.time() - parse_duration(since, "since") / 1e6
    else:
        moment = (
            read_moment_us(
                since if not isinstance(since, int) else text,
                "since",
                ", a length of time such as '10m', or a batch's number",
            )
            / 1e6
        )
    return lambda record: record.at >= moment
