"""Slots whose homes were lost, from when that is found until a batch has run without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.engine.batches.replicas.heirs import Heirs
from anabranch.model import BatchProgress
from anabranch.model.cluster import Home, Homes, SlotId
from anabranch.model.events import RecoveryEvent, SlotRecovery
from anabranch.model.measures import RunReads, TaskMeasure, add_reads

MOST_SLOTS_TOLD = 1_000
_NEW_WEIGHT = 0.3
_LEAST_SECONDS = 1e-3


@dataclass(slots=True)
class LossBook:
    """Remembers losses of the batch that runs, which may be found in several tries."""

    _usual_seconds: float | None = None
    """From the results of a batch to those of the next, while nothing is lost."""
    _found_at: float | None = None
    _slots: dict[SlotId, Home] = field(default_factory=dict)
    _whole: dict[SlotId, str] = field(default_factory=dict)
    _partial: dict[SlotId, str] = field(default_factory=dict)

    def note(self, lost: Mapping[SlotId, Home], heirs: Heirs, now_seconds: float) -> None:
        """Remember slots with the homes that they had, and on which hosts some of them go on from replicas."""
        if not lost:
            return
        if self._found_at is None:
            self._found_at = now_seconds
        self._slots.update(lost)
        self._whole = _replace(self._whole, lost, heirs.whole)
        self._partial = _replace(self._partial, lost, heirs.partial)

    def settle(self, progress: BatchProgress, now_seconds: float, before_seconds: float | None) -> RecoveryEvent | None:
        """Return what became of the slots now that a batch is over, and forget them; None if there are none.

        ``before_seconds`` is when the batch before was over.
        """
        silent_seconds = None if before_seconds is None else now_seconds - before_seconds
        found_at, slots, whole, partial = self._found_at, self._slots, self._whole, self._partial
        if found_at is None:
            self._follow(silent_seconds)
            return None
        self._found_at, self._slots, self._whole, self._partial = None, {}, {}, {}
        tasks = () if progress.measures is None else progress.measures.tasks
        reads = add_reads(task.run_reads for task in tasks if task.id in slots)
        gone = sorted({f"executor {home.executor} on {home.host}" for home in slots.values()})
        went = []
        if whole:
            went.append(f"{len(whole)} went on from replicas on {_list_hosts(whole)}")
        if partial:
            went.append(f"{len(partial)} from replicas on {_list_hosts(partial)} that may lack something")
        if none := len(slots) - len(whole) - len(partial):
            went.append(f"{none} had none and went on from the store")
        seconds = now_seconds - found_at
        reason = (
            f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone: of {len(slots)} slots {', '.join(went)}; "
        )
        reason += (
            f"they read {describe_reads(reads)}; results of batch {progress.batch} came {seconds:.2f} s after that "
        )
        reason += "was found"
        batches = None
        if silent_seconds is not None:
            reason += f", {silent_seconds:.2f} s after those of the batch before"
        if silent_seconds is not None and self._usual_seconds is not None:
            batches = round(max(0.0, silent_seconds / self._usual_seconds - 1), 1)
            reason += f": at the pace of before, {batches:g} batches more would have had results in that time"
        return RecoveryEvent(
            "replica", reason, progress.batch, seconds, silent_seconds, batches, _list_slots(slots, tasks)
        )

    def _follow(self, seconds: float | None) -> None:
        if seconds is not None:
            usual, seen = self._usual_seconds, max(seconds, _LEAST_SECONDS)
            self._usual_seconds = seen if usual is None else usual + _NEW_WEIGHT * (seen - usual)


def _list_slots(lost: Mapping[SlotId, Home], tasks: Iterable[TaskMeasure]) -> tuple[SlotRecovery, ...]:
    measured = {task.id: task for task in tasks if not task.meets}
    told = []
    for slot, home in sorted(lost.items())[:MOST_SLOTS_TOLD]:
        task = measured.get(slot)
        reads = {} if task is None else task.run_reads
        figures = [figure for source in ("hot", "replica", "store") for figure in reads.get(source, (0, 0))]
        told.append(SlotRecovery(*slot, home.host, "" if task is None else task.host, *figures))
    return tuple(told)


def _replace(known: Homes, lost: Mapping[SlotId, Home], found: Homes) -> dict[SlotId, str]:
    kept = {slot: host for slot, host in known.items() if slot not in lost}
    return kept | {slot: host for slot, host in found.items() if slot in lost}


def _list_hosts(homes: Homes) -> str:
    return ", ".join(sorted(set(homes.values())))


def describe_reads(reads: RunReads) -> str:
    """Return in words where runs came from."""
    told = [
        f"{runs} run{'s' if runs != 1 else ''} ({size / 2**20:,.1f} MB) from {source}"
        for source, (runs, size) in reads.items()
    ]
    return ", ".join(told) or "no state"
