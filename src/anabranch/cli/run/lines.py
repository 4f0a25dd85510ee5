"""Progress as plain lines, one a batch: for logs, pipes and ``grep``."""

from __future__ import annotations

import json

from anabranch.cli.formats import format_bytes, format_count, format_moment, format_seconds
from anabranch.metrics.history import RunHistory, skew
from anabranch.model import BatchProgress


def describe_batch(progress: BatchProgress, now_seconds: float) -> str:
    """Return a batch as ``name=value`` pairs in a fixed order; what does not apply is left out."""
    pairs: dict[str, object] = {
        "batch": progress.batch,
        "rows": progress.rows_in,
        "seconds": f"{progress.batch_seconds:.3f}",
        "rows_per_second": f"{progress.rows_per_second:.0f}",
        "out": progress.rows_out,
        "late": progress.late_rows,
        "slot_late": progress.slot_late_rows,
        "updated": progress.updated_rows,
        "dead": progress.dead_rows,
    }
    if progress.watermark_us is not None:
        pairs["watermark"] = format_moment(progress.watermark_us).replace(" ", "T", 1)
        pairs["lag_seconds"] = f"{now_seconds - progress.watermark_us / 1e6:.1f}"
    pairs["state_rows"] = progress.state_rows
    pairs["state_bytes"] = progress.state_bytes
    unevenness = skew(progress.slot_rows)
    if unevenness is not None:
        pairs["slots"] = len(progress.slot_rows)
        pairs["max_over_mean"] = f"{unevenness:.2f}"
    if progress.exchanges:
        pairs["exchanged_bytes"] = progress.exchanged_bytes
        pairs["exchange"] = ",".join(f"{shown.operator}:{shown.way}" for shown in progress.exchanges)
    if progress.admitted is not None:
        pairs["admitted"] = progress.admitted.rows
        pairs["target_seconds"] = f"{progress.admitted.target_seconds:g}"
        if progress.admitted.expected_seconds is not None:
            pairs["expected_seconds"] = f"{progress.admitted.expected_seconds:.3f}"
    if progress.waiting_rows:
        pairs["waiting"] = progress.waiting_rows
    if progress.held_back:
        pairs["held_back"] = ",".join(f"{source}:{seconds:.1f}" for source, seconds in progress.held_back.items())
    if progress.energy is not None:
        pairs["joules"] = f"{progress.energy.joules:.1f}"
        pairs["energy"] = progress.energy.basis
    if progress.moved_bytes:
        pairs["moved_bytes"] = progress.moved_bytes
    if progress.changes:
        pairs["changes"] = json.dumps("; ".join(progress.changes), ensure_ascii=False)
    if progress.replayed:
        pairs["replayed"] = "yes"
    if progress.drained:
        pairs["drained"] = "yes"
    return " ".join(f"{name}={value}" for name, value in pairs.items())


def describe_exchange(way: str, rows: int, sent_rows: int, sent_bytes: int) -> str:
    """Return in words what an exchange did with the rows that came to it."""
    if way == "held":
        return f"held back, {format_count(sent_rows)} sent while {format_count(rows)} came, {format_bytes(sent_bytes)}"
    if way == "plain":
        return f"rows as they are, {format_count(sent_rows)} sent, {format_bytes(sent_bytes)}"
    share = f"{100 * sent_rows / rows:.3g} % of " if rows else ""
    return f"merged first, {share}{format_count(rows)} rows sent, {format_bytes(sent_bytes)}"


def describe_wait(text: str, at_seconds: float) -> str:
    """Return the line for a wait that begins or is over."""
    return f"server: {format_moment(int(at_seconds * 1e6)).replace(' ', 'T', 1)} {text}"


def describe_late(history: RunHistory) -> str:
    """Return the late rows in words, beside those that would be late if each slot followed its own rows only."""
    remarks = []
    if history.totals.updated_rows:
        remarks.append(f"{format_count(history.totals.updated_rows)} of them changed results")
    if history.totals.slot_late_rows != history.totals.late_rows:
        remarks.append(f"{format_count(history.totals.slot_late_rows)} by their slot's own time")
    text = f"{format_count(history.totals.late_rows)} late"
    return f"{text} ({', '.join(remarks)})" if remarks else text


def describe_run(history: RunHistory, ended_seconds: float) -> str:
    """Return the closing words of a run in one line."""
    elapsed = ended_seconds - history.started_seconds
    latest = history.latest
    if latest is None:
        return f"ended after {format_seconds(elapsed)} without a batch: there was nothing new to read"
    batches = "1 batch" if history.totals.batches == 1 else f"{format_count(history.totals.batches)} batches"
    parts = [
        f"{batches} in {format_seconds(elapsed)}",
        f"{format_count(history.totals.rows_in)} rows in",
        f"{format_count(history.totals.rows_out)} out",
    ]
    if history.totals.late_rows or history.totals.slot_late_rows:
        parts.append(describe_late(history))
    if history.totals.dead_rows:
        parts.append(f"{format_count(history.totals.dead_rows)} dead")
    if history.totals.energy is not None:
        each = history.totals.energy_per_million_rows
        parts.append(history.totals.energy.describe() + (f", {each.describe()} per million rows" if each else ""))
    parts.append(f"committed up to batch {latest.batch}")
    return ", ".join(parts)
