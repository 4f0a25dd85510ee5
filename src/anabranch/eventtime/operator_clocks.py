"""Watermarks per group of keys and per slot: kept by the driver from batch to batch, never going back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.forgetting import is_forgotten
from anabranch.eventtime.windows import LastEnd, Times
from anabranch.model import BEGINNING_OF_TIME, HASH, Clock, ForgottenClocks, SharedClocks, SplitKeyClocks

_ROW = "__row"
_OF_KEYS = ("forgotten", "split_keys")
"""What is known of single keys, not of groups or slots."""
_STORED_SPLIT_KEYS = "parted"
"""What manifests call the clocks of split keys."""


def _nothing() -> Times:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorClocks:
    """What is known of the event time of one operator after a batch, beyond what the whole flow shares."""

    latest_us: Times = field(default_factory=_nothing)
    """By group, the largest event time seen; empty unless watermarks are kept per group."""
    slot_latest_us: Times = field(default_factory=_nothing)
    """By slot, the same."""
    closed_us: Times = field(default_factory=_nothing)
    """By group or by slot, the watermark under which the next batch runs."""
    fired_us: Times = field(default_factory=_nothing)
    """The watermark under which the last batch ran."""
    spoke_us: Times = field(default_factory=_nothing)
    """By group or by slot, when it last had a row, by the wall clock."""
    forgotten: ForgottenClocks | None = None
    """What is left of the clocks of silent keys, where watermarks are kept per key."""
    split_keys: SplitKeyClocks | None = None
    """By key that several slots share, or did until now, where watermarks are kept per key."""

    def shared(self, clock: Clock, slots: int) -> SharedClocks | None:
        """Return the watermarks that slots must be told; None where they need none."""
        count = _count(clock, slots)
        if count is None:
            return None
        return SharedClocks(_fit(self.fired_us, count), _fit(self.closed_us, count))

    def slot_closed_us(self, clock: Clock, slots: int) -> Times:
        """Return by slot the watermark of its own rows."""
        latest_us = _fit(self.slot_latest_us, slots)
        return np.where(latest_us == BEGINNING_OF_TIME, latest_us, latest_us - clock.delay_us)

    def rose(self) -> bool:
        """Say whether some watermark is higher now than during the last batch."""
        return bool((_fit(self.fired_us, len(self.closed_us)) < self.closed_us).any())

    def advanced(
        self,
        clock: Clock,
        slot_latest_us: Sequence[int | None],
        group_latest_us: Mapping[int, int],
        last_end_us: LastEnd,
        *,
        now_us: int,
        floor_us: int = BEGINNING_OF_TIME,
        drained: bool = False,
        routes_changed: bool = False,
    ) -> OperatorClocks:
        """Return the clocks after a batch in which slots and groups saw these latest event times.

        What a drain closed, and what is silent for too long, goes on at the end of its last window. Where a slot's time
        counts and keys change slots, all slots take the highest watermark: a window that one slot has closed must not
        be opened by another.
        """
        slots = len(slot_latest_us)
        came = np.array([BEGINNING_OF_TIME if us is None else us for us in slot_latest_us], np.int64)
        by_slot = np.maximum(_fit(self.slot_latest_us, slots), came)
        count = _count(clock, slots)
        if count is None:
            return replace(self, slot_latest_us=by_slot)
        latest_us = by_slot
        if clock.per == "group":
            came = np.full(count, BEGINNING_OF_TIME, np.int64)
            came[list(group_latest_us)] = list(group_latest_us.values())
            latest_us = np.maximum(_fit(self.latest_us, count), came)
        fired_us = _fit(self.closed_us, count)
        closed_us = np.maximum(np.maximum(fired_us, floor_us), latest_us - clock.delay_us)
        spoke_us = np.where(came > BEGINNING_OF_TIME, now_us, _fit(self.spoke_us, count))
        is_over = np.full(count, drained)
        if clock.idle_us is not None:
            is_over |= spoke_us + clock.idle_us <= now_us
        is_over &= latest_us > BEGINNING_OF_TIME
        closed_us = np.where(is_over, np.maximum(closed_us, last_end_us(latest_us)), closed_us)
        if clock.per == "slot" and (routes_changed or slots != len(self.closed_us)):
            closed_us = np.full(count, closed_us.max(initial=self.closed_us.max(initial=BEGINNING_OF_TIME)), np.int64)
        return OperatorClocks(
            latest_us=latest_us if clock.per == "group" else self.latest_us,
            slot_latest_us=by_slot,
            closed_us=closed_us,
            fired_us=closed_us if drained else fired_us,
            spoke_us=spoke_us,
            split_keys=self.split_keys,
        )

    def forgetting(self, until_us: int, dropped_us: Mapping[int, int]) -> OperatorClocks:
        """Return the clocks after a batch that forgot keys; by group, the highest watermark that was dropped."""
        if until_us == BEGINNING_OF_TIME:
            return self
        return replace(self, forgotten=(self.forgotten or ForgottenClocks.none()).plus(until_us, dropped_us))

    def forgetting_parts(self, lateness_us: int) -> OperatorClocks:
        """Return the clocks without those of keys that slots share, and that are forgotten as whole keys are.

        Those whose parts have not heard yet how far they came stay for one batch more, as they were: a key that has its
        group's time for its own would be forgotten a second time, later.
        """
        if self.forgotten is None or self.split_keys is None:
            return self
        until_us, over_us = self.forgotten.until_us, self.split_keys.clock_us + lateness_us
        over = is_forgotten(over_us, self.split_keys.spoke_us, until_us)
        groups = self.forgotten.groups_of(self.split_keys.keys.get_column(HASH).to_numpy())
        dropped = zip(groups[over].tolist(), over_us[over].tolist(), strict=True)
        forgotten = self.forgotten
        for group, us in dropped:
            forgotten = forgotten.plus(until_us, {group: us})
        # Parts must hear first what fired where they met: one that goes to another slot would fire it again.
        unheard = self.split_keys.before_us != self.split_keys.clock_us
        return replace(self, forgotten=forgotten, split_keys=self.split_keys.pick(~over | unheard))

    def wake_us(self, clock: Clock, last_end_us: LastEnd, since_us: int) -> int | None:
        """Return when, by the wall clock, the next of them is idle whose windows may be open."""
        if clock.idle_us is None or not len(self.spoke_us):
            return None
        latest_us = self.latest_us if clock.per == "group" else self.slot_latest_us
        may_be_open = (latest_us > BEGINNING_OF_TIME) & (self.closed_us < last_end_us(latest_us))
        if not may_be_open.any():
            return None
        return max(int(self.spoke_us[may_be_open].min()), since_us) + clock.idle_us

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        times = {name: getattr(self, name) for name in self.__slots__ if name not in _OF_KEYS}
        data: dict[str, Any] = {name: values.tolist() for name, values in times.items() if len(values)}
        if self.split_keys is not None:
            data[_STORED_SPLIT_KEYS] = self.split_keys.to_text()
        if self.forgotten is not None:
            data["forgotten"] = self.forgotten.to_json()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OperatorClocks:
        """Read what ``to_json`` wrote."""
        times = dict(data)
        forgotten, split_keys = times.pop("forgotten", None), times.pop(_STORED_SPLIT_KEYS, None)
        return cls(
            **{name: np.array(values, np.int64) for name, values in times.items()},
            forgotten=None if forgotten is None else ForgottenClocks.from_json(forgotten),
            split_keys=None if split_keys is None else SplitKeyClocks.from_text(split_keys),
        )


def follow_parts(
    known: SplitKeyClocks | None, reported: Sequence[SplitKeyClocks], split: Sequence[NDArray[np.uint64]]
) -> SplitKeyClocks | None:
    """Return the clocks after a batch: what was reported counts, else what was known; None if nothing is left.

    ``split`` has the hashes of keys that are, or were until now, on several slots: others keep their time themselves.
    """
    # Of a key that nobody spoke of, nothing happened in the batch.
    still = None if known is None else replace(known, before_us=known.clock_us)
    every = [clocks for clocks in (still, *reported) if clocks is not None and len(clocks)]
    hashes = {key for part in split for key in part.tolist()}
    if not every or not hashes:
        return None
    keys = pl.concat([clocks.keys for clocks in every])
    newest = keys.with_row_index(_ROW).unique(keys.columns, keep="last", maintain_order=True)
    kept = newest.filter(pl.col(HASH).is_in(pl.Series(sorted(hashes), dtype=pl.UInt64).implode()))
    kept = kept.sort(HASH, maintain_order=True)
    if kept.is_empty():
        return None
    rows = kept.get_column(_ROW).to_numpy()
    before_us, clock_us, spoke_us = (
        np.concatenate([getattr(clocks, name) for clocks in every])[rows]
        for name in ("before_us", "clock_us", "spoke_us")
    )
    inputs = [clocks.inputs for clocks in every if clocks.inputs is not None]
    return SplitKeyClocks(kept.drop(_ROW), before_us, clock_us, spoke_us, pl.concat(inputs)[rows] if inputs else None)


def _count(clock: Clock, slots: int) -> int | None:
    if clock.per == "group":
        return clock.groups
    return slots if clock.per == "slot" else None


def _fit(times_us: Times, count: int) -> Times:
    """Return as many times; what is new has not begun."""
    if len(times_us) >= count:
        return times_us[:count]
    return np.concatenate((times_us, np.full(count - len(times_us), BEGINNING_OF_TIME, np.int64)))
