"""What tasks observe of event time, for the driver and the slots to put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import polars as pl

from anabranch.eventtime.medians import TimeTally, step_for
from anabranch.eventtime.watermarks import SeenTimes
from anabranch.model import Clock


class EventTimeObserver:
    """By watermark node, the largest event time; more only where the watermark's clock asks for it."""

    def __init__(self) -> None:
        self._latest_us: dict[int, int] = {}
        self._partitions_us: dict[int, dict[str, int]] = defaultdict(dict)
        self._tallies: dict[int, TimeTally] = {}

    def observe(self, node: int, clock: Clock, times: pl.Series, partition: str) -> None:
        """Look at the event times, none of them null, of some rows of a partition."""
        if times.is_empty():
            return
        latest_us = int(times.dt.timestamp("us").max())  # type: ignore[arg-type]
        self._latest_us[node] = max(latest_us, self._latest_us.get(node, latest_us))
        if clock.per == "partition":
            known = self._partitions_us[node]
            known[partition] = max(latest_us, known.get(partition, latest_us))
        if clock.behind_us is not None:
            tally = TimeTally.of(times.dt.timestamp("us"), step_for(clock.behind_us))
            self._tallies[node] = self._tallies[node].plus(tally) if node in self._tallies else tally

    def observed(self) -> SeenTimes:
        """Return what was observed so far."""
        return SeenTimes(dict(self._latest_us), dict(self._partitions_us), dict(self._tallies))


def merge_seen(told: Iterable[SeenTimes]) -> SeenTimes:
    """Put together what tasks saw; in whatever order, it is the same."""
    latest: dict[int, int] = {}
    partitions: dict[int, dict[str, int]] = defaultdict(dict)
    tallies: dict[int, TimeTally] = {}
    for seen in told:
        for node, latest_us in seen.latest_us.items():
            latest[node] = max(latest_us, latest.get(node, latest_us))
        for node, times in seen.partitions_us.items():
            known = partitions[node]
            known |= {name: max(us, known.get(name, us)) for name, us in times.items()}
        for node, tally in seen.tallies.items():
            tallies[node] = tallies[node].plus(tally) if node in tallies else tally
    return SeenTimes(latest, dict(partitions), tallies)
