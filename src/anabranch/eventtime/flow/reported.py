"""What the driver must be told of time when a batch is over; the engine's reports say it among other things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anabranch.eventtime.medians import TimeTally
from anabranch.model import SplitKeyClocks


class OperatorTimeReport(Protocol):
    """What the slots of one stateful operator saw and did, together."""

    @property
    def slot_latest_us(self) -> tuple[int | None, ...]:
        """By slot, the latest event time of its rows."""
        ...

    @property
    def group_latest_us(self) -> Mapping[int, int]:
        """The same by group of keys."""
        ...

    @property
    def forgotten_us(self) -> Mapping[int, int]:
        """By group of keys, the highest watermark of those that are forgotten now."""
        ...

    @property
    def wake_us(self) -> int | None:
        """When, by the wall clock, a slot wants to run even if no data comes."""
        ...

    @property
    def fire_us(self) -> frozenset[int]:
        """Up to when slots fired; empty if they did not say."""
        ...

    @property
    def split_keys(self) -> tuple[SplitKeyClocks, ...]:
        """The watermarks of keys that slots share, or will share."""
        ...


class WaitsReport(Protocol):
    """What tasks before an operator hold back."""

    @property
    def wake_us(self) -> int | None:
        """When, by the wall clock, some of it must go."""
        ...


class TimeReport(Protocol):
    """What all tasks of a batch saw of time."""

    @property
    def latest_us(self) -> Mapping[int, int]:
        """Watermark node → largest event time that was seen."""
        ...

    @property
    def partitions_us(self) -> Mapping[int, Mapping[str, int]]:
        """The same by partition of its sources, where watermarks are kept per partition."""
        ...

    @property
    def tallies(self) -> Mapping[int, TimeTally]:
        """Watermark node → how event times were spread, where the median counts."""
        ...

    @property
    def operators(self) -> Mapping[int, OperatorTimeReport]:
        """By stateful node with slots."""
        ...

    @property
    def buffers(self) -> Mapping[int, WaitsReport]:
        """By stateful node of which rows are held back."""
        ...

    @property
    def heads(self) -> tuple[int, ...]:
        """The operators that have slots, and those that only readers work for."""
        ...

    def next_due_us(self, head: int) -> int | None:
        """Return the end of the first window of an operator that waits for anything."""
        ...

    def last_end_us(self, head: int) -> int | None:
        """Return the end of the last window of an operator that fired."""
        ...
