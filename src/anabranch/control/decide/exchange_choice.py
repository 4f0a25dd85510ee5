"""What *auto* does at an exchange: rows go as they are, merged first, or held back, by what each was found to cost."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from anabranch.model.exchanges import ExchangeCosts, ExchangeTally, ExchangeWay

EXCHANGED_BYTES_PER_SECOND = 200e6
"""Through Spark's shuffle and into a slot's task, on one host. A network is slower, and then a merge is worth more."""
FEWEST_ROWS = 10_000
"""Fewer rows than that, the last batches together, say nothing."""
LEAST_GAIN = 0.1
"""A way must cost so much less than the one that is gone."""
BATCHES_OF_ONE_MIND = 2
"""In so many batches one behind the other."""
BATCHES_HELD = 8
"""Holding back pays only when later rows have come to what is held: it is judged after so many batches, not before."""
FIRST_PAUSE, LONGEST_PAUSE = 64, 1_024
"""After so many batches without it, holding back is tried again: what it saves shows only while it is done."""
_FADE = 0.7
"""What the past counts beside the present, a batch further back."""
_TIMES_KEPT = 5
"""Processor times count by their median over so many batches: a first batch compiles, and neighbours disturb."""
_HELD_FADE = 0.95
"""The same for rows that are held back: a window's first batch finds nothing to merge with."""


@dataclass(slots=True)
class _Sums:
    """Figures of the last batches, the present counting most."""

    tried_rows: float = 0.0
    left_rows: float = 0.0
    plain_bytes: float = 0.0
    merged_bytes: float = 0.0
    merge_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES_KEPT))
    """A row that was tried, by batch."""
    send_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES_KEPT))
    """A row that was sent, by batch."""

    def take(self, seen: ExchangeTally, spent: ExchangeCosts) -> None:
        self.tried_rows = _FADE * self.tried_rows + seen.tried_rows
        self.left_rows = _FADE * self.left_rows + seen.left_rows
        self.plain_bytes = _FADE * self.plain_bytes + seen.plain_bytes
        self.merged_bytes = _FADE * self.merged_bytes + seen.merged_bytes
        if spent.merge_seconds:
            self.merge_seconds.append(spent.merge_seconds / seen.tried_rows)
        if seen.sent_rows and spent.send_seconds:
            self.send_seconds.append(spent.send_seconds / seen.sent_rows)


@dataclass(slots=True)
class _HeldSums:
    """The same of batches that held rows back."""

    batches: int = 0
    rows: float = 0.0
    left_rows: float = 0.0
    new_rows: float = 0.0
    """Merged rows that found none to merge with, among those that were held."""
    hold_seconds: float = 0.0

    def take(self, seen: ExchangeTally, spent: ExchangeCosts) -> None:
        self.batches += 1
        self.rows = _HELD_FADE * self.rows + seen.tried_rows
        self.left_rows = _HELD_FADE * self.left_rows + seen.left_rows
        self.new_rows = _HELD_FADE * self.new_rows + seen.sent_rows + seen.held_rows
        self.hold_seconds = _HELD_FADE * self.hold_seconds + spent.hold_seconds


class ExchangeChooser:
    """Chooses one operator's way from batch to batch; whatever it chooses, results are the same.

    The ways differ in where rows are merged and how many of them are sent. Merged first, all rows are merged where
    they leave, and slots merge what is left; as they are, all are sent, and slots merge them all.
    """

    def __init__(self, ways: Sequence[ExchangeWay], way: ExchangeWay | None = None) -> None:
        """``ways`` are those that the operator and the flow allow; it begins with ``way``, else with the last."""
        self.ways = tuple(ways)
        self.way: ExchangeWay = way if way in self.ways else self.ways[-1]
        self.reason = "no batch was large enough to tell"
        self.costs: dict[ExchangeWay, float] = {}
        """Processor seconds a million rows; empty while too little is known."""
        self._sums = _Sums()
        self._held = _HeldSums()
        self._preferred: tuple[ExchangeWay, int] = (self.way, 0)
        self._pause = FIRST_PAUSE
        self._paused = 0

    def observe(self, seen: ExchangeTally, spent: ExchangeCosts) -> bool:
        """Learn what a batch did; say whether another way is gone from the next one on."""
        before = self.way
        if seen.tried_rows:
            self._sums.take(seen, spent)
            if before == "held":
                self._held.take(seen, spent)
            self._consider()
        return self.way != before

    def _consider(self) -> None:
        self.costs = self._find_costs()
        if not self.costs:
            return
        if "held" in self.ways and self.way != "held":
            self._paused += 1
            if self._paused >= self._pause:
                self._go("held", "holding rows back is tried again")
                return
        best = min(self.costs, key=lambda way: (self.costs[way], way != self.way))
        gain = 1 - self.costs[best] / self.costs[self.way] if self.way in self.costs else 0.0
        if best == self.way or gain < LEAST_GAIN:
            self._preferred = (self.way, 0)
            self.reason = self._describe(self.way)
            return
        self.reason = self._describe(self.way)
        times = self._preferred[1] + 1 if self._preferred[0] == best else 1
        self._preferred = (best, times)
        if times >= BATCHES_OF_ONE_MIND:
            self._go(best, self._describe(best))

    def _go(self, way: ExchangeWay, reason: str) -> None:
        if self.way == "held":
            self._pause, self._paused = (self._pause if self._paused == 0 else min(2 * self._pause, LONGEST_PAUSE)), 0
        self.way, self.reason = way, reason
        self._preferred = (way, 0)
        if way == "held":
            self._held = _HeldSums()

    def _find_costs(self) -> dict[ExchangeWay, float]:
        """Return what each way costs a million rows, as far as that is known."""
        sums = self._sums
        if sums.tried_rows < FEWEST_ROWS or not sums.merge_seconds or not sums.send_seconds:
            return {}
        merge, send = median(sums.merge_seconds), median(sums.send_seconds)
        left = sums.left_rows / sums.tried_rows
        plain_crossing = sums.plain_bytes / sums.tried_rows / EXCHANGED_BYTES_PER_SECOND
        merged_crossing = sums.merged_bytes / sums.tried_rows / EXCHANGED_BYTES_PER_SECOND
        costs: dict[ExchangeWay, float] = {
            "plain": send + plain_crossing + merge,
            "merged": merge + left * (send + merge) + merged_crossing,
        }
        held = self._held
        if self.way == "held" and held.batches >= BATCHES_HELD and held.rows and held.left_rows:
            # What is new among merged rows must be sent once; the rest is sent with it.
            new = held.new_rows / held.left_rows
            costs["held"] = merge + held.hold_seconds / held.rows + new * (left * (send + merge) + merged_crossing)
        elif self.way == "held":
            return {}
        return {way: 1e6 * cost for way, cost in costs.items() if way in self.ways}

    def _describe(self, way: ExchangeWay) -> str:
        left = self._sums.left_rows / self._sums.tried_rows
        others = [f"{cost:.3g} s {_WORDS[other]}" for other, cost in self.costs.items() if other != way]
        against = f", {' and '.join(others)}" if others else ""
        return f"{left:.1%} of the rows are left after the merge; {self.costs[way]:.3g} s a million rows{against}"


_WORDS: Mapping[ExchangeWay, str] = {"plain": "as they are", "merged": "merged first", "held": "held back"}
