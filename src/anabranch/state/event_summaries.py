"""What is left of old events: batches become sums, everything else stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from anabranch.model.events import BatchEvent, HistoryRecord, SpanEvent
from anabranch.model.measures import BatchMeasures
from anabranch.model.progress import RunTotals
from anabranch.state.event_files import Line, write_line

MOST_HOSTS = 32
"""Of which a span tells."""


def sum_up(lines: Sequence[Line]) -> bytes:
    """Return the lines with one span in the place of the last batch of each epoch, and no other batches."""
    kept: list[tuple[int, bytes]] = []
    spans: dict[int, HistoryRecord] = {}
    for line in lines:
        record = line.record
        if record is None or not isinstance(record.event, BatchEvent):
            # Whatever a later version has to say of it, it stays.
            kept.append((line.number or 0, line.text + b"\n"))
            continue
        earlier = spans.get(record.epoch)
        event = earlier.event if earlier is not None else None
        spans[record.epoch] = replace(record, event=_add(event if isinstance(event, SpanEvent) else None, record))
    kept += [(record.number, write_line(record)) for record in spans.values()]
    return b"".join(text for _, text in sorted(kept, key=lambda line: line[0]))


def _add(span: SpanEvent | None, record: HistoryRecord) -> SpanEvent:
    assert isinstance(record.event, BatchEvent)
    progress = record.event.progress
    if span is None:
        span = SpanEvent(progress.batch, progress.batch, record.at, RunTotals(), 0.0, 0.0)
    uneven = [ratio for ratio in (span.largest_max_over_mean, progress.max_over_mean) if ratio is not None]
    return replace(
        span,
        last_batch=progress.batch,
        totals=span.totals.plus(progress),
        batch_seconds=span.batch_seconds + progress.batch_seconds,
        longest_seconds=max(span.longest_seconds, progress.batch_seconds),
        largest_max_over_mean=max(uneven, default=None),
        host_cpu_seconds=_add_hosts(span.host_cpu_seconds, progress.measures),
        largest_memory_bytes=max(span.largest_memory_bytes, _largest_memory(progress.measures)),
    )


def _add_hosts(seconds: Mapping[str, float], measures: BatchMeasures | None) -> dict[str, float]:
    added = Counter(seconds)
    for host in measures.hosts if measures is not None else ():
        added[host.host] += host.busy_seconds  # type: ignore[assignment]
    return {host: round(value, 3) for host, value in added.most_common(MOST_HOSTS)}


def _largest_memory(measures: BatchMeasures | None) -> int:
    return max((load.memory_bytes for load in measures.executors), default=0) if measures is not None else 0
