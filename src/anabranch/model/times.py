"""The time that a batch runs under."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from anabranch.model.parted_clocks import PartedClocks

BEGINNING_OF_TIME = -(2**62)
"""A watermark that closes nothing, in microseconds."""

END_OF_TIME = 2**62
"""A watermark that closes everything, in microseconds: what a drain uses."""


ClockLevel = Literal["flow", "partition", "slot", "group", "key"]
CLOCK_LEVELS: tuple[ClockLevel, ...] = get_args(ClockLevel)

DEFAULT_GROUPS = 1024
_LOOKS_PER_IDLE_TIME = 4


@dataclass(frozen=True, slots=True)
class Clock:
    """Whose event time a watermark follows, how far it stays behind the latest event, and what silence does to it."""

    per: ClockLevel = "flow"
    delay_us: int = 0
    groups: int = DEFAULT_GROUPS
    """How many watermarks all keys share, if they are kept per group."""
    idle_us: int | None = None
    """Nothing came for so long by the wall clock: what is open closes, and nobody waits for it."""
    behind_us: int | None = None
    """It is so far behind the flow's median event time: what is open closes, and its time is forgotten."""

    @property
    def is_kept_in_slots(self) -> bool:
        """Whether slots must find late rows themselves: readers cannot know the watermark of a row."""
        return self.per in ("slot", "group", "key")


FLOW_CLOCK = Clock()


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Which event times cannot be right: rows outside go to the dead-letter sink. None is no limit."""

    earliest_us: int | None = 0
    """Times before it are wrong; a clock that was never set often says 1970 or earlier."""
    ahead_us: int | None = 86_400_000_000
    """Times further ahead of the wall clock are wrong: they would close everybody's windows."""


USUAL_LIMITS = TimeLimits()
NO_LIMITS = TimeLimits(None, None)


@dataclass(frozen=True, slots=True, eq=False)
class SharedClocks:
    """Watermarks that the driver keeps, one a group of keys or one a slot, as of the start of a batch."""

    fired_us: NDArray[np.int64]
    """Under these the previous batch ended."""
    closed_us: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """What one stateful operator must know about time in one batch; all in microseconds.

    A row whose window ended at or before ``closed_us`` is late. After the batch's rows are in,
    windows that end at or before ``fire_us`` are emitted and dropped: that is the watermark which the batch leaves,
    where slots can know it, else the one that it began with. Windows that end at or before ``fired_us``, the
    ``fire_us`` of the previous batch, were emitted already: panes of sliding windows and fragments of sessions outlive
    the first window they were part of. Those between ``fired_us`` and ``closed_us`` are emitted before the batch's rows
    are in; a hop that other windows feed in this same batch has both equal, or it would find them too late.
    """

    batch: int
    closed_us: int = BEGINNING_OF_TIME
    fire_us: int = BEGINNING_OF_TIME
    now_us: int = 0
    fired_us: int = BEGINNING_OF_TIME
    floor_us: int = BEGINNING_OF_TIME
    """No key's own watermark is below it: a key that is further behind counts as silent."""
    shared: SharedClocks | None = None
    """Where watermarks are kept per group or per slot."""
    parted: PartedClocks | None = None
    """Where watermarks are kept per key: those of keys that several slots share, or shared in the last batch."""
    slot_closed_us: int | NDArray[np.int64] = BEGINNING_OF_TIME
    """The watermark that a slot would have if it followed its own rows only; by slot, before ``on_slot``. Late rows
    are counted under it, too."""
    last_now_us: int = 0
    """The ``now_us`` of the previous batch."""

    since_us: int = 0
    """Since when the flow listens, by the wall clock: nobody was silent before."""

    def looks_for_idle(self, clock: Clock) -> bool:
        """Say whether it is time to look for keys that were silent for too long: a few times in that time."""
        if clock.idle_us is None or self.since_us + clock.idle_us > self.now_us:
            return False
        step_us = idle_step_us(clock.idle_us)
        return self.now_us // step_us > self.last_now_us // step_us

    def next_idle_look_us(self, idle_us: int) -> int:
        """Return when, by the wall clock, it is time to look again."""
        step_us = idle_step_us(idle_us)
        return max((self.now_us // step_us + 1) * step_us, self.since_us + idle_us)

    @property
    def drains(self) -> bool:
        """Whether everything that is open must be fired."""
        return self.fire_us == END_OF_TIME

    def on_slot(self, slot: int, clock: Clock) -> OperatorTime:
        """Return the time as one slot sees it."""
        slot_closed_us = _of_slot(self.slot_closed_us, slot)
        if clock.per != "slot" or self.shared is None:
            return replace(self, slot_closed_us=slot_closed_us)
        closed_us = _of_slot(self.shared.closed_us, slot)
        return replace(
            self,
            fired_us=_of_slot(self.shared.fired_us, slot),
            closed_us=closed_us,
            fire_us=self.fire_us if self.drains else closed_us,
            slot_closed_us=slot_closed_us,
        )


def idle_step_us(idle_us: int) -> int:
    """Return how often it is looked for keys that were silent for so long."""
    return max(1, idle_us // _LOOKS_PER_IDLE_TIME)


def _of_slot(watermarks: int | NDArray[np.int64], slot: int) -> int:
    if isinstance(watermarks, int):
        return watermarks
    return int(watermarks[slot]) if slot < len(watermarks) else BEGINNING_OF_TIME
