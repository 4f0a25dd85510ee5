"""What the slots of a flow take and send each other in a monitor window: all that energy is planned by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch.model.cluster import SlotId
from anabranch.model.loads import LoadError
from anabranch.model.measures import OTHER_SLOTS, TaskMeasure

BLOCK_COPIES = 2
"""A slot's task holds what it receives about twice while it works on it."""
Pair = tuple[SlotId, SlotId]
"""(sender, receiver)."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that can be released, and what it has."""

    id: str
    cores: int
    memory_bytes: int = 0
    """0 if unknown: then there is enough."""
    bandwidth: float = 0.0
    """Bytes a second that it can send, and as many that it can receive; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class SlotUse:
    """What a slot took in a window."""

    cpu_seconds: float
    memory_bytes: int = 0
    """The most that its host held for it: its state, and what it receives, about twice."""
    state_bytes: int = 0
    """What must be loaded where it goes."""


@dataclass(frozen=True, slots=True)
class FlowLoad:
    """What a flow did in a window."""

    seconds: float
    batches: int
    rows: float
    slots: Mapping[SlotId, SlotUse]
    sent_bytes: Mapping[Pair, float] = field(default_factory=dict)
    level_seconds: float = 0.0
    """What each level of a batch takes however few its rows are."""
    trigger_seconds: float | None = None
    """From the beginning of a batch to that of the next one, where a trigger says it; 0: a batch begins when the one
    before is over. None: the window's seconds over its batches."""

    def __post_init__(self) -> None:
        if not self.seconds > 0 or self.batches < 1:
            msg = f"a window of {self.seconds:g} s with {self.batches} batches; a load is seen over at least one batch"
            raise LoadError(msg)
        for sender, receiver in self.sent_bytes:
            if sender not in self.slots or receiver not in self.slots:
                msg = f"bytes go from {sender} to {receiver}, and not both are slots of the load"
                raise LoadError(msg)
            if sender[0] >= receiver[0]:
                msg = f"bytes go from {sender} to {receiver}; they go from a level to a later one"
                raise LoadError(msg)

    @property
    def interval_seconds(self) -> float:
        """From the beginning of a batch to that of the next one."""
        return self.trigger_seconds or self.seconds / self.batches

    @property
    def levels(self) -> int:
        """How many levels follow one another in a batch."""
        return len({level for level, _ in self.slots})

    def scale(self, factor: float) -> FlowLoad:
        """Return the load of so many times the rows; what is held as state stays as it is."""
        return replace(
            self,
            rows=self.rows * factor,
            slots={slot: replace(use, cpu_seconds=use.cpu_seconds * factor) for slot, use in self.slots.items()},
            sent_bytes={pair: sent * factor for pair, sent in self.sent_bytes.items()},
        )


class WindowLoad:
    """Adds up what the tasks of a window's batches were measured to take.

    Tasks that read are slots of level 0 here. Pairs of slots that measures name only together are left out.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.batch_seconds = 0.0
        self.rows = 0
        self._cpu_seconds: defaultdict[SlotId, float] = defaultdict(float)
        self._memory: defaultdict[SlotId, int] = defaultdict(int)
        self._state: dict[SlotId, int] = {}
        self._sent: defaultdict[Pair, float] = defaultdict(float)

    def add(self, measures: Iterable[TaskMeasure], *, rows: int, batch_seconds: float) -> None:
        """Take in a batch."""
        self.batches += 1
        self.batch_seconds += batch_seconds
        self.rows += rows
        for task in sorted(measures, key=lambda one: (one.id, one.cpu_seconds)):
            self._cpu_seconds[task.id] += task.cpu_seconds + task.starting_seconds
            held = task.state_bytes + BLOCK_COPIES * task.received_bytes
            self._memory[task.id] = max(self._memory[task.id], held)
            self._state[task.id] = task.state_bytes
            for target, sent_bytes in task.sent_bytes.items():
                if target != OTHER_SLOTS:
                    self._sent[task.id, target] += sent_bytes

    def finish(self, seconds: float, trigger_seconds: float | None = None) -> FlowLoad:
        """Return the load of a window that took so long."""
        return FlowLoad(
            seconds=seconds,
            batches=max(1, self.batches),
            rows=self.rows,
            slots={
                slot: SlotUse(cpu_seconds, self._memory[slot], self._state[slot])
                for slot, cpu_seconds in sorted(self._cpu_seconds.items())
            },
            # A batch may have had other slots than the last one; and parts of keys meet on the level that they are of.
            sent_bytes={
                (sender, receiver): sent
                for (sender, receiver), sent in sorted(self._sent.items())
                if receiver in self._cpu_seconds and sender[0] < receiver[0]
            },
            trigger_seconds=trigger_seconds,
        )
