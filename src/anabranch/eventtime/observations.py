"""What tasks see of event time, for the driver and the slots to put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from anabranch.eventtime.medians import TimeTally, step_for
from anabranch.eventtime.watermarks import SeenTimes
from anabranch.model import Clock


class TimeSightings:
    """By watermark node, the largest event time; more only where the watermark's clock asks for it."""

    def __init__(self) -> None:
        self._latest_us: dict[int, int] = {}
        self._partitions_us: dict[int, dict[str, int]] = defaultdict(dict)
        self._tallies: dict[int, TimeTally] = {}

    def see(self, node: int, clock: Clock, times: pl.Series, partition: str) -> None:
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

    def __bool__(self) -> bool:
        """Say whether any row was seen."""
        return bool(self._latest_us)

    def to_json(self) -> dict[str, Any]:
        """Return what a ledger says of event time."""
        content: dict[str, Any] = {"watermarks": {str(node): us for node, us in self._latest_us.items()}}
        if self._partitions_us:
            content["partitions"] = {
                str(node): dict(sorted(partitions.items())) for node, partitions in self._partitions_us.items()
            }
        if self._tallies:
            content["tallies"] = {str(node): tally.to_json() for node, tally in self._tallies.items()}
        return content


def merge_sightings(contents: Iterable[Mapping[str, Any]]) -> SeenTimes:
    """Put together what tasks saw, each as ``TimeSightings.to_json`` says it; in whatever order, it is the same."""
    latest: dict[int, int] = {}
    partitions: dict[int, dict[str, int]] = defaultdict(dict)
    tallies: dict[int, TimeTally] = {}
    for content in contents:
        for node, value in content["watermarks"].items():
            latest[int(node)] = max(value, latest.get(int(node), value))
        for node, values in content.get("partitions", {}).items():
            known = partitions[int(node)]
            known |= {name: max(value, known.get(name, value)) for name, value in values.items()}
        for node, data in content.get("tallies", {}).items():
            tally = TimeTally.from_json(data)
            tallies[int(node)] = tallies[int(node)].plus(tally) if int(node) in tallies else tally
    return SeenTimes(latest, dict(partitions), tallies)
