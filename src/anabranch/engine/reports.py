"""Put the reports of a batch's tasks together into what the manifest says."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.engine.reader_buffers import HeldLanes, LaneReport, merge_lane_reports
from anabranch.eventtime.medians import TimeTally
from anabranch.eventtime.observations import merge_sightings
from anabranch.model import BEGINNING_OF_TIME, PartedClocks, RunRef, StagedFile
from anabranch.model.exchanges import ExchangeFigures, ExchangeTally

NOTHING_HELD: HeldLanes = {}


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
    slot_latest_us: tuple[int | None, ...] = ()
    """By slot, the latest event time of its rows, where slots look at it."""
    group_latest_us: Mapping[int, int] = field(default_factory=dict)
    """The same by group of keys."""
    forgotten_us: Mapping[int, int] = field(default_factory=dict)
    """By group of keys, the highest watermark of those that are forgotten now."""
    wake_us: int | None = None
    """When, by the wall clock, a slot wants to run even if no data comes."""
    fire_us: frozenset[int] = frozenset()
    """Up to when slots fired; one time, or something is wrong. Empty if they did not say."""
    parted: tuple[PartedClocks, ...] = ()
    """The watermarks after the batch of keys that slots share, or will share, where keys have their own."""
    sizes: tuple[Mapping[str, Any], ...] = ()
    """How much state the slots have that measured it."""

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
    partitions_us: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Watermark node → partition of its sources → largest event time, where watermarks are kept per partition."""
    tallies: Mapping[int, TimeTally] = field(default_factory=dict)
    """Watermark node → how event times were spread, where the median counts."""
    lanes: Mapping[int, LaneReport] = field(default_factory=dict)
    """Stateful node → what readers hold back of it."""
    exchanges: Mapping[int, ExchangeTally] = field(default_factory=dict)
    """Stateful node → what its exchange did."""
    figures: Mapping[int, ExchangeFigures] = field(default_factory=dict)
    """Stateful node → the same as people are shown it, with what was chosen for the next batch."""
    sighted: Mapping[int, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)
    """Stateful node → slot → what the task of that partition saw of its keys, where partitions are slots."""
    bad_files: Mapping[str, str] = field(default_factory=dict)
    """Path → reason of files that cannot be used and are to be set aside; then nothing else here counts."""

    def next_due_us(self, head: int) -> int | None:
        """Return the end of the first window of an operator that waits for anything, in a slot or at a reader."""
        operator, lane = self.operators.get(head), self.lanes.get(head)
        found = (operator.next_due_us if operator else None, lane.next_due_us if lane else None)
        return min((due_us for due_us in found if due_us is not None), default=None)

    def last_end_us(self, head: int) -> int | None:
        """Return the end of the last window of an operator that fired, in a slot or into a store."""
        operator, lane = self.operators.get(head), self.lanes.get(head)
        found = (operator.last_end_us if operator else None, lane.last_end_us if lane else None)
        return max((end_us for end_us in found if end_us is not None), default=None)

    @property
    def heads(self) -> tuple[int, ...]:
        """The operators that have slots, and those that only readers work for."""
        return tuple(sorted({*self.operators, *self.lanes}))


def merge_reports(
    payloads: Iterable[bytes], slots_of: Mapping[int, int], held: HeldLanes = NOTHING_HELD
) -> BatchReport:
    """Return the report of a batch; ``slots_of`` is stateful node → number of slots, each of which must have reported.

    So must every reader that held something back. Raises ``RuntimeError`` if one is missing: committing without it
    would lose its state.
    """
    counters: dict[str, int] = defaultdict(int)
    staged: dict[int, list[StagedFile]] = defaultdict(list)
    by_operator: dict[int, dict[int, Mapping[str, Any]]] = {node: {} for node in slots_of}
    slot_latest: dict[int, list[list[int]]] = defaultdict(list)
    met: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    told: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    seconds: dict[int, float] = {}
    exchanges: dict[int, ExchangeTally] = defaultdict(ExchangeTally)
    sighted: dict[int, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    exchanged = 0
    contents = [json.loads(payload) for payload in payloads]
    lanes = merge_lane_reports(contents, held)
    seen = merge_sightings(contents)
    for content in contents:
        for name, value in content["counters"].items():
            counters[name] += value
        for node, values in content["slot_latest"].items():
            slot_latest[int(node)].append(values)
        for sink, entry in content["staged"].items():
            staged[int(sink)].append(StagedFile.from_json(entry))
        exchanged += content["exchanged_bytes"]
        for node, counts in content.get("exchanges", {}).items():
            exchanges[int(node)] += ExchangeTally(*counts)
        for node, keys in content.get("sighted", {}).items():
            sighted[int(node)][content["partition"]] = keys
        for node, entry in content.get("operators", {}).items():
            by_operator[int(node)][content["slot"]] = entry
        for node, latest in content.get("group_latest", {}).items():
            told[int(node)].append({"group_latest": latest})
        for node, entry in content.get("met", {}).items():
            met[int(node)].append(entry)
        if "seconds" in content:
            seconds[content["slot"]] = content["seconds"]
    return BatchReport(
        counters=dict(counters),
        latest_us=seen.latest_us,
        staged={
            sink: tuple(sorted(files, key=lambda file: (file.slot, file.file)))
            for sink, files in sorted(staged.items())
        },
        operators={
            node: _operator(node, slots_of[node], slots, slot_latest[node], met[node], told[node])
            for node, slots in by_operator.items()
        },
        exchanged_bytes=exchanged,
        problems=tuple(
            problem
            for slots in by_operator.values()
            for _, entry in sorted(slots.items())
            for problem in entry["problems"]
        )
        + tuple(problem for lane in lanes.values() for problem in lane.problems),
        slot_seconds=tuple(seconds[slot] for slot in sorted(seconds)),
        partitions_us=seen.partitions_us,
        tallies=seen.tallies,
        lanes=lanes,
        exchanges=dict(exchanges),
        sighted=dict(sighted),
        bad_files={path: reason for content in contents for path, reason in content.get("bad_files", {}).items()},
    )


def _operator(
    node: int,
    count: int,
    slots: Mapping[int, Mapping[str, Any]],
    sent: Sequence[Sequence[int]],
    met: Sequence[Mapping[str, Any]],
    told: Sequence[Mapping[str, Any]],
) -> OperatorReport:
    """Return what an operator did; ``told`` is what tasks before it said of rows that may wait with them."""
    missing = [slot for slot in range(count) if slot not in slots]
    if missing:
        msg = f"operator {node}: slots {missing} did not report; the batch is not committed"
        raise RuntimeError(msg)
    ordered = [slots[slot] for slot in range(count)]
    # What is due of keys that slots share, they know where the parts met.
    everywhere = [*ordered, *met]
    parted = [PartedClocks.from_text(entry["parted"]) for entry in everywhere if "parted" in entry]
    return OperatorReport(
        runs=tuple(tuple(RunRef.from_json(ref) for ref in slot["runs"]) for slot in ordered),
        rows=tuple(slot["rows"] for slot in ordered),
        next_due_us=min((entry["next_due"] for entry in everywhere if entry["next_due"] is not None), default=None),
        last_end_us=max((entry["last_end"] for entry in everywhere if entry["last_end"] is not None), default=None),
        slot_latest_us=_latest_by_slot([slot["latest"] for slot in ordered], sent),
        group_latest_us=_latest_by_group(entry["group_latest"] for entry in (*ordered, *told)),
        forgotten_us=_latest_by_group(slot["forgotten"] for slot in ordered),
        wake_us=min((entry["wake"] for entry in everywhere if entry["wake"] is not None), default=None),
        fire_us=frozenset(entry["fire"] for entry in everywhere if "fire" in entry),
        parted=tuple(sorted(parted, key=PartedClocks.to_text)),
        sightings=tuple(slot["seen"] for slot in ordered if "seen" in slot),
        sizes=tuple(slot["state"] for slot in ordered if "state" in slot),
        handoffs=_handoffs([slot["handing"] for slot in ordered]),
    )


def _latest_by_slot(found: Sequence[int | None], sent: Sequence[Sequence[int]]) -> tuple[int | None, ...]:
    """Return by slot the latest event time that it found itself, or that those saw who sent it rows."""
    latest = list(found)
    for values in sent:
        for slot, value in enumerate(values[: len(latest)]):
            known = latest[slot]
            if value > BEGINNING_OF_TIME:
                latest[slot] = value if known is None else max(value, known)
    return tuple(latest)


def _latest_by_group(reported: Iterable[Sequence[tuple[int, int]]]) -> dict[int, int]:
    latest: dict[int, int] = {}
    for found in reported:
        for group, latest_us in found:
            latest[group] = max(latest_us, latest.get(group, latest_us))
    return latest


def _handoffs(handing: Sequence[Mapping[str, Any]]) -> tuple[tuple[RunRef, ...], ...]:
    """Return by target what was written for it, in the order of the slots that wrote it."""
    by_target: dict[int, list[RunRef]] = defaultdict(list)
    for written in handing:
        for target, ref in written.items():
            by_target[int(target)].append(RunRef.from_json(ref))
    return tuple(tuple(by_target[slot]) for slot in range(max(by_target, default=-1) + 1))
