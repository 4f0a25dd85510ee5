"""How many rows come, over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.sim.cluster import SimulationError


@dataclass(frozen=True, slots=True)
class LoadTrace:
    """Rows a second at some moments; between two of them it changes evenly, before and after them not at all."""

    points: tuple[tuple[float, float], ...]
    """(second, rows a second), in the order of time; two at the same moment are a step."""

    def __post_init__(self) -> None:
        moments = [moment for moment, _ in self.points]
        if not moments or moments != sorted(moments) or min(rate for _, rate in self.points) < 0:
            msg = f"a load has {len(self.points)} points; give at least one, in the order of time, and no rate below 0"
            raise SimulationError(msg)

    @classmethod
    def constant(cls, rows_per_second: float) -> LoadTrace:
        """Return a load that never changes."""
        return cls(((0.0, rows_per_second),))

    @classmethod
    def steps(cls, rates: Sequence[float], seconds: float) -> LoadTrace:
        """Return a load that stays at each rate for so long."""
        return cls(tuple((at * seconds, rate) for place, rate in enumerate(rates) for at in (place, place + 1)))

    @classmethod
    def day(cls, lowest: float, highest: float, seconds: float = 86_400.0, points: int = 96) -> LoadTrace:
        """Return a day that begins at night: rates rise to the highest at noon, and fall again."""
        middle, half = (lowest + highest) / 2, (highest - lowest) / 2
        shares = [place / points for place in range(points + 1)]
        return cls(tuple((share * seconds, middle - half * math.cos(2 * math.pi * share)) for share in shares))

    def at(self, seconds: float) -> float:
        """Return the rows a second at a moment."""
        after = bisect_right(self.points, seconds, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        before, rate = self.points[after - 1]
        if after == len(self.points):
            return rate
        moment, next_rate = self.points[after]
        return rate + (next_rate - rate) * (seconds - before) / (moment - before)
