"""Operators without windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.rows import Placed, key_of
from oracle.windows import Shape


@dataclass
class Running:
    """A running aggregate: every batch emits the new values of the keys it has rows of.

    With a time-to-live, a key that was silent for longer, by the watermark that the batch began with, starts anew.
    """

    keys: Sequence[str]
    shape: Shape
    ttl_us: int | None = None
    groups: dict[tuple[Any, ...], list[Placed]] = field(default_factory=dict)

    windowed = False

    def advance(self, rows: Sequence[Placed], closed_us: int, fire_us: int) -> tuple[list[dict[str, Any]], int]:
        """Take the rows in and return the new values; no row is late."""
        arrived: dict[tuple[Any, ...], list[Placed]] = defaultdict(list)
        for placed in rows:
            arrived[key_of(placed, self.keys)].append(placed)
        results: list[dict[str, Any]] = []
        for key, fresh in arrived.items():
            known = self.groups.get(key, [])
            if known and self.ttl_us is not None and max(p.time_us for p in known) < closed_us - self.ttl_us:
                known = []
            self.groups[key] = [*known, *fresh]
            named = dict(zip(self.keys, key, strict=True))
            results += [{**named, **result} for result in self.shape(self.groups[key])]
        return results, 0

    def is_due(self, watermark_us: int) -> bool:
        """Say that nothing waits for time to pass."""
        return False


@dataclass
class Distinct:
    """The first row of each key, and again after its time-to-live, which runs from the row that passed."""

    keys: Sequence[str]
    ttl_us: int | None = None
    passed: dict[tuple[Any, ...], int] = field(default_factory=dict)

    windowed = False

    def advance(self, rows: Sequence[Placed], closed_us: int, fire_us: int) -> tuple[list[dict[str, Any]], int]:
        """Return the rows that pass; with a time-to-live, rows from before it are late."""
        horizon_us = None if self.ttl_us is None else closed_us - self.ttl_us
        in_time = [placed for placed in rows if horizon_us is None or placed.time_us >= horizon_us]
        known = {key for key, seen_us in self.passed.items() if horizon_us is None or seen_us >= horizon_us}
        results: list[dict[str, Any]] = []
        for placed in sorted(in_time, key=lambda placed: placed.place):
            key = key_of(placed, self.keys)
            if key not in known:
                known.add(key)
                self.passed[key] = placed.time_us
                results.append(dict(placed.row))
        return results, len(rows) - len(in_time)

    def is_due(self, watermark_us: int) -> bool:
        """Say that nothing waits for time to pass."""
        return False
