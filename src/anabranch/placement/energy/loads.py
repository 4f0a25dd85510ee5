"""What the slots of a flow take and send each other in a monitor window: all that energy is planned by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.model.cluster import SlotId
from anabranch.model.loads import LoadError
from anabranch.model.measures import OTHER_SLOTS, TaskMeasure

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
    """The most that its host held for it."""
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
        return self.seconds / self.batches

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


def gather_load(batches: Sequence[Iterable[TaskMeasure]], *, seconds: float, rows: int) -> FlowLoad:
    """Return the load of a window from what the tasks of its batches were measured to take.

    Tasks that read are slots of level 0 here. Pairs of slots that measures name only together are left out.
    """
    cpu_seconds: defaultdict[SlotId, float] = defaultdict(float)
    memory: defaultdict[SlotId, int] = defaultdict(int)
    state: dict[SlotId, int] = {}
    sent: defaultdict[Pair, float] = defaultdict(float)
    for measures in batches:
        for task in sorted(measures, key=lambda one: (one.id, one.cpu_seconds)):
            cpu_seconds[task.id] += task.cpu_seconds + task.starting_seconds
            memory[task.id] = max(memory[task.id], task.memory_bytes)
            state[task.id] = task.state_bytes
            for target, sent_bytes in task.sent_bytes.items():
                if target != OTHER_SLOTS:
                    sent[task.id, target] += sent_bytes
    return FlowLoad(
        seconds=seconds,
        batches=max(1, len(batches)),
        rows=rows,
        slots={slot: SlotUse(seconds_, memory[slot], state[slot]) for slot, seconds_ in sorted(cpu_seconds.items())},
        # A batch may have had other slots than the last one.
        sent_bytes={pair: sent_bytes for pair, sent_bytes in sorted(sent.items()) if pair[1] in cpu_seconds},
    )
