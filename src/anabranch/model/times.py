"""The time that a batch runs under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model.columns import HASH
from anabranch.model.frame_texts import frame_from_text, frame_to_text

Times = NDArray[np.int64]

NO_PANE = -(2**63)
"""Stands for the pane of a row that has none."""
BEGINNING_OF_TIME = -(2**62)
"""A watermark that closes nothing, in microseconds."""

END_OF_TIME = 2**62
"""A watermark that closes everything, in microseconds: what a drain uses."""


ClockLevel = Literal["flow", "partition", "slot", "group", "key"]
CLOCK_LEVELS: tuple[ClockLevel, ...] = get_args(ClockLevel)

DEFAULT_GROUPS = 1024
_LOOKS_PER_IDLE_TIME = 4
_ROW = "__row"
_SPLIT_KEY_TIMES = ("__before", "__clock", "__spoke")

INPUT_CLOCKS = ("__left_clock", "__right_clock")
"""Int64 microseconds: how far each input of a join is with a key."""
INPUT_SPOKES = ("__left_spoke", "__right_spoke")
"""Int64 microseconds of the wall clock: when each input last had a row of a key, or the key was first seen."""


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
    forget_us: int | None = None
    """A silent key's own time is dropped after so long; as long as ``idle_us`` unless said."""

    @property
    def remembers_us(self) -> int | None:
        """How long a silent key's own time is remembered; None for ever."""
        return self.idle_us if self.forget_us is None else self.forget_us

    @property
    def forgets(self) -> bool:
        """Whether the clocks of silent keys are dropped."""
        return self.per == "key" and self.idle_us is not None

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
    future_us: int | None = 86_400_000_000
    """Times further ahead of the wall clock are wrong: they would close everybody's windows."""


USUAL_LIMITS = TimeLimits()
NO_LIMITS = TimeLimits(None, None)


@dataclass(frozen=True, slots=True, eq=False)
class SharedClocks:
    """Watermarks that the driver keeps, one a group of keys or one a slot, as of the start of a batch."""

    fired_us: NDArray[np.int64]
    """Under these the previous batch ended."""
    closed_us: NDArray[np.int64]


FORGOTTEN_GROUPS = 1024
"""One time is left of the clocks of silent keys for each of so many groups of keys."""


@dataclass(frozen=True, slots=True, eq=False)
class ForgottenClocks:
    """What is left of the clocks of keys that were silent for too long, as of the start of a batch."""

    until_us: int
    """By the wall clock: a key is forgotten that has not spoken since, and whose own watermark is not after it."""
    clocks_us: NDArray[np.int64]
    """By group of keys: the highest watermark that was dropped. A key of which nothing is known starts there, so that
    nothing which was emitted is emitted again."""

    @staticmethod
    def groups_of(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the group of each key."""
        return (hashes % np.uint64(FORGOTTEN_GROUPS)).astype(np.int64)

    @classmethod
    def none(cls) -> ForgottenClocks:
        """Nobody is forgotten."""
        return cls(BEGINNING_OF_TIME, np.full(FORGOTTEN_GROUPS, BEGINNING_OF_TIME, np.int64))

    def plus(self, until_us: int, dropped_us: Mapping[int, int]) -> ForgottenClocks:
        """Return what is left when some more clocks were dropped; by group, the highest of them."""
        clocks_us = self.clocks_us.copy()
        np.maximum.at(clocks_us, list(dropped_us), list(dropped_us.values()))
        return ForgottenClocks(max(until_us, self.until_us), clocks_us)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        known = np.flatnonzero(self.clocks_us > BEGINNING_OF_TIME)
        return {"until_us": self.until_us, "groups": known.tolist(), "clocks_us": self.clocks_us[known].tolist()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ForgottenClocks:
        """Read what ``to_json`` wrote."""
        return cls.none().plus(data["until_us"], dict(zip(data["groups"], data["clocks_us"], strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class SplitKeyClocks:
    """By key, the time that its parts have together, as of the end of a batch.

    A part sees some of a key's rows only, so its watermark cannot lie with it: the driver keeps it while the key is
    split, and for one batch more, in which the slot that has the key whole again writes it into its state.
    """

    keys: pl.DataFrame
    """One row a key, by hash: HASH and the key columns."""
    before_us: Times
    """The watermark under which the batch took its rows in."""
    clock_us: Times
    """The watermark after it, under which the next one does."""
    spoke_us: Times
    """When the key last had a row, by the wall clock."""
    inputs: pl.DataFrame | None = None
    """Of a join, the same by input: INPUT_CLOCKS and, where silence counts, INPUT_SPOKES."""

    def __len__(self) -> int:
        return self.keys.height

    def hashes(self) -> NDArray[np.uint64]:
        """Return the hashes of the keys, sorted and unique."""
        hashes: NDArray[np.uint64] = np.unique(self.keys.get_column(HASH).to_numpy())
        return hashes

    def find(self, keys: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the given keys (HASH and key columns) are known, and where they are here."""
        numbered = self.keys.with_row_index(_ROW)
        columns = self.keys.columns
        found = keys.select(columns).join(numbered, on=columns, how="left", maintain_order="left", nulls_equal=True)
        rows = found.get_column(_ROW)
        known = rows.is_not_null().to_numpy()
        return np.flatnonzero(known), rows.drop_nulls().cast(pl.Int64).to_numpy()

    def pick(self, chosen: NDArray[np.bool_]) -> SplitKeyClocks | None:
        """Return the clocks of some of the keys; None for none."""
        if not chosen.any():
            return None
        keys = self.keys.filter(pl.Series(chosen))
        inputs = None if self.inputs is None else self.inputs.filter(pl.Series(chosen))
        return SplitKeyClocks(keys, self.before_us[chosen], self.clock_us[chosen], self.spoke_us[chosen], inputs)

    def to_text(self) -> str:
        """Return plain text, for reports and manifests."""
        times = (self.before_us, self.clock_us, self.spoke_us)
        named = [pl.Series(name, values, dtype=pl.Int64) for name, values in zip(_SPLIT_KEY_TIMES, times, strict=True)]
        inputs = [] if self.inputs is None else self.inputs.get_columns()
        return frame_to_text(self.keys.with_columns(named).with_columns(inputs))

    @classmethod
    def from_text(cls, text: str) -> SplitKeyClocks:
        """Read what ``to_text`` wrote."""
        rows = frame_from_text(text)
        of_inputs = [name for name in (*INPUT_CLOCKS, *INPUT_SPOKES) if name in rows.columns]
        before_us, clock_us, spoke_us = (rows.get_column(name).to_numpy() for name in _SPLIT_KEY_TIMES)
        inputs = rows.select(of_inputs) if of_inputs else None
        return cls(rows.drop(*_SPLIT_KEY_TIMES, *of_inputs), before_us, clock_us, spoke_us, inputs)


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
    split_keys: SplitKeyClocks | None = None
    """Where watermarks are kept per key: those of keys that several slots share, or shared in the last batch."""
    slot_closed_us: int | NDArray[np.int64] = BEGINNING_OF_TIME
    """The watermark that a slot would have if it followed its own rows only; by slot, before ``on_slot``. Late rows
    are counted under it, too."""
    last_now_us: int = 0
    """The ``now_us`` of the previous batch."""

    forgotten: ForgottenClocks | None = None
    """Where watermarks are kept per key, and silent keys lose theirs."""
    since_us: int = 0
    """Since when the flow listens, by the wall clock: nobody was silent before."""

    def looks_for_idle(self, clock: Clock) -> bool:
        """Say whether it is time to look for keys that were silent for too long: a few times in that time."""
        if clock.idle_us is None or self.since_us + clock.idle_us > self.now_us:
            return False
        step_us = idle_step_us(clock.idle_us)
        return self.now_us // step_us > self.last_now_us // step_us

    def forget_until_us(self, clock: Clock) -> int:
        """Return the moment of the wall clock that keys are forgotten by when the batch is over."""
        before_us = BEGINNING_OF_TIME if self.forgotten is None else self.forgotten.until_us
        remembers_us = clock.remembers_us
        if not clock.forgets or remembers_us is None or not self.looks_for_idle(clock):
            return before_us
        # Nobody was silent before the flow began to listen.
        return before_us if self.since_us + remembers_us > self.now_us else max(before_us, self.now_us - remembers_us)

    def next_idle_look_us(self, idle_us: int) -> int:
        """Return when, by the wall clock, it is time to look again."""
        step_us = idle_step_us(idle_us)
        return max((self.now_us // step_us + 1) * step_us, self.since_us + idle_us)

    @property
    def drains(self) -> bool:
        """Whether everything that is open must be fired."""
        return self.fire_us == END_OF_TIME

    @property
    def passed_us(self) -> int:
        """The watermark up to which windows have fired by the end of the batch; what a drain forces is not counted."""
        return self.closed_us if self.drains else max(self.closed_us, self.fire_us)

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


@dataclass(frozen=True, slots=True)
class FollowedTimes:
    """What a watermark follows: a column's times of all rows of these sources that get there."""

    column: str
    sources: frozenset[int]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"column": self.column, "sources": sorted(self.sources)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FollowedTimes:
        """Read what ``to_json`` wrote."""
        return cls(data["column"], frozenset(data["sources"]))
