"""The middle of a flow's event times, which a few wrong clocks do not move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import polars as pl

MOST_STEPS = 512
"""Steps that a tally has at most: it travels with every batch."""

MOST_REMEMBERED_ROWS = 1_000
"""Rows of earlier batches that count beside those of the last one, so that a batch of one row moves little."""

FEWEST_ROWS = 20
"""From fewer rows there is no median: the first of a flow may well be from the one clock that is wrong."""

_STEPS_WITHIN = 16
_SHORTEST_STEP_US = 1_000


def step_for(behind_us: int) -> int:
    """Return how finely times must be told apart to see who is so far behind."""
    return max(behind_us // _STEPS_WITHIN, _SHORTEST_STEP_US)


@dataclass(frozen=True, slots=True)
class TimeTally:
    """How many rows had which event time, in steps.

    Steps are doubled until few are left, so tallies of the same rows are equal however the rows were cut into parts.
    """

    step_us: int
    rows: Mapping[int, int] = field(default_factory=dict)
    """By the number of the step, counted from 1970."""

    @classmethod
    def of(cls, times_us: pl.Series, step_us: int) -> TimeTally:
        """Count the times of some rows, in microseconds."""
        counted = (times_us // step_us).alias("step").value_counts(name="rows")
        return cls(step_us, dict(counted.iter_rows()))._few()

    def plus(self, other: TimeTally) -> TimeTally:
        """Return the tally of the rows of both; their steps must have begun equal."""
        step_us = max(self.step_us, other.step_us)
        rows = self._by_steps_of(step_us)
        for step, count in other._by_steps_of(step_us).items():
            rows[step] = rows.get(step, 0) + count
        return TimeTally(step_us, rows)._few()

    def by_start_us(self) -> dict[int, int]:
        """Return rows by the beginning of their step."""
        return {step * self.step_us: count for step, count in self.rows.items()}

    def to_json(self) -> list[Any]:
        """Return plain JSON data."""
        return [self.step_us, sorted(self.rows.items())]

    @classmethod
    def from_json(cls, data: list[Any]) -> TimeTally:
        """Read what ``to_json`` wrote."""
        step_us, rows = data
        return cls(step_us, {step: count for step, count in rows})

    def _by_steps_of(self, step_us: int) -> dict[int, int]:
        if step_us == self.step_us:
            return dict(self.rows)
        joined = step_us // self.step_us
        rows: dict[int, int] = {}
        for step, count in self.rows.items():
            rows[step // joined] = rows.get(step // joined, 0) + count
        return rows

    def _few(self) -> TimeTally:
        tally = self
        while len(tally.rows) > MOST_STEPS:
            tally = TimeTally(2 * tally.step_us, tally._by_steps_of(2 * tally.step_us))
        return tally


def remember(remembered: Mapping[int, int], tally: TimeTally) -> dict[int, int]:
    """Return rows by event time with those of a batch added."""
    rows = dict(remembered)
    for start_us, count in tally.by_start_us().items():
        rows[start_us] = rows.get(start_us, 0) + count
    return rows


def fade(rows: Mapping[int, int]) -> dict[int, int]:
    """Return what the next batch remembers: the same spread of times, of not too many rows at not too many times."""
    kept = sorted(rows.items())
    total = sum(rows.values())
    if total > MOST_REMEMBERED_ROWS:
        # Sums are rounded, not counts: many small counts must not all become none.
        sums = [passed * MOST_REMEMBERED_ROWS // total for passed in accumulate(count for _, count in kept)]
        kept = [(us, upto - before) for (us, _), before, upto in zip(kept, [0, *sums], sums, strict=False)]
        kept = [(us, count) for us, count in kept if count]
    while len(kept) > MOST_STEPS:
        # Later times join earlier ones: a median that is too early closes nothing too soon.
        kept = [(pair[0][0], sum(count for _, count in pair)) for pair in _pairs(kept)]
    return dict(kept)


def median_of(rows: Mapping[int, int]) -> int | None:
    """Return the median time of rows by time; None while they are too few to say."""
    total = sum(rows.values())
    if total < FEWEST_ROWS:
        return None
    passed = 0
    for us in sorted(rows):
        passed += rows[us]
        if 2 * passed >= total:
            return us
    raise AssertionError


def _pairs(items: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [items[first : first + 2] for first in range(0, len(items), 2)]
