"""Put the ledgers of a batch's tasks together into what the manifest says."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.model import RunRef, StagedFile


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What one stateful operator did in a batch, by slot."""

    runs: tuple[tuple[RunRef, ...], ...]
    rows: tuple[int, ...]
    next_due_us: int | None
    last_end_us: int | None
    sightings: tuple[Mapping[str, Any], ...] = ()
    """By slot, what it saw of its rows, if it was told to look."""
    handoffs: tuple[tuple[RunRef, ...], ...] = ()
    """By target slot, what others wrote for it; empty when nothing was handed on."""

    @property
    def handed_bytes(self) -> int:
        return sum(ref.bytes for slot in self.handoffs for ref in slot)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What all tasks of a batch did."""

    counters: Mapping[str, int]
    latest_us: Mapping[int, int]
    """Watermark node → largest event time that was seen."""
    staged: Mapping[int, tuple[StagedFile, ...]]
    operators: Mapping[int, OperatorReport]
    exchanged_bytes: int
    problems: tuple[str, ...]
    slot_seconds: tuple[float, ...]
    slots_started: float | None
    """When the first slot of the last level had its rows, in seconds since 1970."""


def merge_ledgers(payloads: Iterable[bytes], slots_of: Mapping[int, int]) -> BatchReport:
    """Return the report of a batch; ``slots_of`` is stateful node → number of slots, each of which must have reported.

    Raises ``RuntimeError`` if a slot is missing: committing without it would lose its state.
    """
    counters: dict[str, int] = defaultdict(int)
    latest: dict[int, int] = {}
    staged: dict[int, list[StagedFile]] = defaultdict(list)
    by_operator: dict[int, dict[int, Mapping[str, Any]]] = {node: {} for node in slots_of}
    seconds: dict[int, float] = {}
    started: list[float] = []
    exchanged = 0
    for payload in payloads:
        content = json.loads(payload)
        for name, value in content["counters"].items():
            counters[name] += value
        for node, value in content["watermarks"].items():
            latest[int(node)] = max(value, latest.get(int(node), value))
        for sink, entry in content["staged"].items():
            staged[int(sink)].append(StagedFile.from_json(entry))
        exchanged += content["exchanged_bytes"]
        for node, entry in content.get("operators", {}).items():
            by_operator[int(node)][content["slot"]] = entry
        if "seconds" in content:
            begin, end, _ = content["seconds"]
            seconds[content["slot"]] = end - begin
            started.append(begin)
    return BatchReport(
        counters=dict(counters),
        latest_us=latest,
        staged={
            sink: tuple(sorted(files, key=lambda file: (file.slot, file.file)))
            for sink, files in sorted(staged.items())
        },
        operators={node: _operator(node, slots_of[node], slots) for node, slots in by_operator.items()},
        exchanged_bytes=exchanged,
        problems=tuple(
            problem
            for slots in by_operator.values()
            for _, entry in sorted(slots.items())
            for problem in entry["problems"]
        ),
        slot_seconds=tuple(seconds[slot] for slot in sorted(seconds)),
        slots_started=min(started, default=None),
    )


def _operator(node: int, count: int, slots: Mapping[int, Mapping[str, Any]]) -> OperatorReport:
    missing = [slot for slot in range(count) if slot not in slots]
    if missing:
        msg = f"operator {node}: slots {missing} did not report; the batch is not committed"
        raise RuntimeError(msg)
    ordered = [slots[slot] for slot in range(count)]
    return OperatorReport(
        runs=tuple(tuple(RunRef.from_json(ref) for ref in slot["runs"]) for slot in ordered),
        rows=tuple(slot["rows"] for slot in ordered),
        next_due_us=min((slot["next_due"] for slot in ordered if slot["next_due"] is not None), default=None),
        last_end_us=max((slot["last_end"] for slot in ordered if slot["last_end"] is not None), default=None),
        sightings=tuple(slot["seen"] for slot in ordered if "seen" in slot),
        handoffs=_handoffs([slot["handing"] for slot in ordered]),
    )


def _handoffs(handing: Sequence[Mapping[str, Any]]) -> tuple[tuple[RunRef, ...], ...]:
    """Return by target what was written for it, in the order of the slots that wrote it."""
    by_target: dict[int, list[RunRef]] = defaultdict(list)
    for written in handing:
        for target, ref in written.items():
            by_target[int(target)].append(RunRef.from_json(ref))
    return tuple(tuple(by_target[slot]) for slot in range(max(by_target, default=-1) + 1))
