"""Which sources are held back, because an operator's inputs are to be kept close in event time."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from anabranch.eventtime.flow.flow_time import describe_watermarks, rules_of
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Hold
from anabranch.query.alignment import AlignedInput, AlignedOperator, find_aligned
from anabranch.query.plan import Plan

PATIENCE_US = 30_000_000
"""So long, by the wall clock, a source waits for one whose time stands still; less where that one says when it is idle.

Whoever waits for somebody that never comes would never come either.
"""


class Alignment:
    """Follows watermarks from batch to batch, and says who waits for whom."""

    def __init__(self, plan: Plan, *, ends: bool) -> None:
        """``ends``: the flow reads what is there and ends, so that whoever is waited for comes, or is at its end."""
        self._aligned = find_aligned(plan)
        self._clocks = rules_of(plan).clocks
        self._sources = {node: followed.sources for node, followed in describe_watermarks(plan).items()}
        self._ends = ends
        self._stands: dict[int, tuple[int, int]] = {}
        """Watermark node → where it stands, and since when by the wall clock."""
        self._held_until_us: dict[int, int] = {}
        """Source → until when it was held back, by the wall clock."""
        self.holds: tuple[Hold, ...] = ()
        """Who is held back from now on, the slowest first."""

    def begin_batch(self, time: FlowTime, now_us: int) -> FlowTime:
        """Return the time before a batch, in which nobody was silent for being held back."""
        for hold in self.holds:
            self._held_until_us[hold.source] = now_us
        if not self._held_until_us:
            return time
        return time.with_heard({node: self.listened_since_us((node,)) for node in self._sources})

    def listened_since_us(self, watermarks: Iterable[int], since_us: int = BEGINNING_OF_TIME) -> int:
        """Return since when, by the wall clock, silence of these watermarks counts."""
        sources = {source for node in watermarks for source in self._sources[node]}
        return max([since_us, *(self._held_until_us.get(source, since_us) for source in sources)])

    def end_batch(self, time: FlowTime, now_us: int) -> None:
        """Take in where watermarks stand after a batch."""
        for node, reached_us in time.current.items():
            if node not in self._stands or self._stands[node][0] != reached_us:
                self._stands[node] = (reached_us, now_us)
        leads: dict[int, tuple[int, Hold]] = {}
        for operator in self._aligned:
            for aligned in operator.inputs:
                for reached_us, hold in self._leads_of(operator, aligned, time):
                    if hold.until_us > now_us:
                        known = leads.get(hold.source)
                        leads[hold.source] = (reached_us, hold if known is None else _merge(known[1], hold))
        self.holds = tuple(hold for _, hold in sorted(leads.values(), key=lambda lead: (lead[0], lead[1].source)))

    def _leads_of(self, operator: AlignedOperator, aligned: AlignedInput, time: FlowTime) -> Iterable[tuple[int, Hold]]:
        """Yield where sources of an input are that are too far ahead of another one, and what is to become of them."""
        others = [other for other in operator.inputs if other is not aligned]
        reached = {node: _reached(time, node) for other in others for node in other.watermarks}
        for node in aligned.watermarks:
            own_us = _reached(time, node)
            # Of whom nothing was seen yet, nothing is known; nobody waits for that.
            behind = {
                other: own_us - other_us
                for other, other_us in reached.items()
                if own_us is not None and other_us is not None and own_us - other_us > operator.align_us
            }
            if not behind or own_us is None:
                continue
            waits_for = frozenset[int]().union(*(self._sources[other] for other in behind))
            until_us = max(map(self._patience_ends_us, behind))
            for source in self._sources[node] & aligned.own_sources:
                yield own_us, Hold(source, tuple(sorted(waits_for)), max(behind.values()), until_us)

    def _patience_ends_us(self, node: int) -> int:
        if self._ends:
            return END_OF_TIME
        idle_us = self._clocks[node].idle_us
        return self._stands[node][1] + (PATIENCE_US if idle_us is None else min(idle_us, PATIENCE_US))


def held_sources(plan: Plan) -> Collection[int]:
    """Return the sources that may have to be held back."""
    return frozenset(source for operator in find_aligned(plan) for one in operator.inputs for source in one.own_sources)


def _reached(time: FlowTime, node: int) -> int | None:
    reached_us = time.current.get(node, BEGINNING_OF_TIME)
    return None if reached_us == BEGINNING_OF_TIME else reached_us


def _merge(one: Hold, other: Hold) -> Hold:
    """Return what holds a source back that two operators, or two watermarks, have something against."""
    return Hold(
        one.source,
        tuple(sorted({*one.waits_for, *other.waits_for})),
        max(one.ahead_us, other.ahead_us),
        max(one.until_us, other.until_us),
    )
