"""What tasks of a batch took, as it was measured where they ran. None of it goes through an exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.model.cluster import SlotId


@dataclass(frozen=True, slots=True)
class TaskMeasure:
    """One task of a batch: a reader (level 0) or a slot of a level."""

    level: int
    slot: int
    executor: str
    host: str
    cpu_seconds: float
    """Processor time of the task's thread and of the threads that it had work for it; waiting is not in it."""
    wall_seconds: float
    memory_bytes: int
    """The most that the task's process held so far."""
    rows: int = 0
    """That it was given, copies included."""
    received_bytes: int = 0
    """By sender's level, all senders together."""
    sent_bytes: Mapping[SlotId, int] = field(default_factory=dict)
    """By the slot that they are for."""
    sent_rows: Mapping[SlotId, int] = field(default_factory=dict)
    operator_cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """By operator, of a level that has several."""
    measuring_seconds: float = 0.0
    """Processor time of what measured all this."""
