"""What one task sees of event time, for the driver to put together."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import polars as pl

from anabranch.eventtime.medians import TimeTally, step_for
from anabranch.query.nodes import Watermark


class TimeSightings:
    """By watermark node, the largest event time; more only where the watermark's clock asks for it."""

    def __init__(self) -> None:
        self._latest_us: dict[int, int] = {}
        self._partitions_us: dict[int, dict[str, int]] = defaultdict(dict)
        self._tallies: dict[int, TimeTally] = {}

    def see(self, node: int, watermark: Watermark, times: pl.Series, partition: str) -> None:
        """Look at the event times, none of them null, of some rows of a partition."""
        if times.is_empty():
            return
        latest_us = int(times.dt.timestamp("us").max())  # type: ignore[arg-type]
        self._latest_us[node] = max(latest_us, self._latest_us.get(node, latest_us))
        clock = watermark.clock
        if clock.per == "partition":
            known = self._partitions_us[node]
            known[partition] = max(latest_us, known.get(partition, latest_us))
        if clock.behind_us is not None:
            tally = TimeTally.of(times.dt.timestamp("us"), step_for(clock.behind_us))
            self._tallies[node] = self._tallies[node].plus(tally) if node in self._tallies else tally

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
