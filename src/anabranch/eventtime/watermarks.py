"""Watermarks of a flow from batch to batch: rows are judged by the one a batch began with, and none goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from anabranch.eventtime.medians import TimeTally, fade, median_of, remember
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Clock, OperatorTime

WHOLE_FLOW = ""
"""The one partition of a watermark that is kept for the whole flow."""

LastEnd = Callable[[int, int], int]
"""Watermark node, event time → when the last window that may hold such an event ends."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class WatermarkRules:
    """What a flow says of its watermarks."""

    clocks: Mapping[int, Clock]
    """By watermark node."""
    last_end_us: LastEnd = lambda _, latest_us: latest_us
    together: tuple[tuple[int, ...], ...] = ()
    """The watermarks that an operator follows at once, for each operator."""


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """What is known of the time of one partition of a source."""

    latest_us: int
    """The largest event time seen."""
    heard_us: int
    """When it last had a row, by the wall clock."""


@dataclass(frozen=True, slots=True)
class SeenTimes:
    """What the tasks of a batch saw of event time, by watermark node."""

    latest_us: Mapping[int, int] = field(default_factory=dict)
    """The largest event time."""
    partitions_us: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """The same by partition, where watermarks are kept per partition."""
    tallies: Mapping[int, TimeTally] = field(default_factory=dict)
    """How event times were spread, where somebody may be too far behind the median."""

    def __bool__(self) -> bool:
        """Say whether any row was seen."""
        return bool(self.latest_us)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        data = {
            "latest_us": {str(node): us for node, us in self.latest_us.items()},
            "partitions_us": {str(node): dict(times) for node, times in self.partitions_us.items()},
            "tallies": {str(node): tally.to_json() for node, tally in self.tallies.items()},
        }
        return {name: values for name, values in data.items() if values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SeenTimes:
        """Read what ``to_json`` wrote."""
        return cls(
            {int(node): us for node, us in data.get("latest_us", {}).items()},
            {int(node): times for node, times in data.get("partitions_us", {}).items()},
            {int(node): TimeTally.from_json(tally) for node, tally in data.get("tallies", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class FlowTime:
    """What is known of event time after a batch; by watermark node, in microseconds."""

    latest: Mapping[int, int] = field(default_factory=dict)
    """The largest event time seen."""
    current: Mapping[int, int] = field(default_factory=dict)
    """The watermark under which the next batch runs."""
    previous: Mapping[int, int] = field(default_factory=dict)
    """The watermark up to which windows have fired: the current one, or, where slots could not know that while the last
    batch ran, the one that it began with."""
    partitions: Mapping[int, Mapping[str, PartitionTime]] = field(default_factory=dict)
    """The partitions that count, where it matters who spoke when; one that is silent for too long is forgotten."""
    medians: Mapping[int, int] = field(default_factory=dict)
    """The highest median event time so far, where somebody may be too far behind it."""
    remembered: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    """Rows by event time, which the next batch's median counts in."""

    def operator_time(
        self, batch: int, followed: Iterable[int], *, lagging: bool, draining: bool, now_us: int
    ) -> OperatorTime:
        """Return the time for an operator that follows these watermark nodes; the slowest of them counts."""
        nodes = tuple(followed)
        current = self.slowest_us(nodes)
        fired = _slowest(self.previous, nodes)
        return OperatorTime(
            batch,
            closed_us=fired if lagging else current,
            fire_us=END_OF_TIME if draining else current,
            now_us=now_us,
            fired_us=fired,
        )

    def slowest_us(self, followed: Iterable[int]) -> int:
        """Return the slowest of these watermarks."""
        return _slowest(self.current, tuple(followed))

    def floor_us(self, followed: Iterable[int], behind_us: int | None) -> int:
        """Return the time that nobody may be behind; the beginning of time if anybody may."""
        nodes = tuple(followed)
        if behind_us is None or not nodes or any(node not in self.medians for node in nodes):
            return BEGINNING_OF_TIME
        return min(self.medians[node] for node in nodes) - behind_us

    def advanced(
        self,
        seen: SeenTimes,
        rules: WatermarkRules,
        *,
        now_us: int,
        since_us: int = 0,
        fired_until: Mapping[int, int] | None = None,
        fires_at_once: bool = False,
    ) -> FlowTime:
        """Return the time after a batch that ran at ``now_us`` by the wall clock.

        Silence counts from ``since_us`` on, when the flow began to listen. Where all partitions are silent, what is
        open closes: the watermark goes to the end of the last window that may have rows. ``fired_until`` holds the end
        of the last window that a drain fired, by watermark node: what was emitted must not be opened again, so later
        rows of those windows are late. ``fires_at_once``: the batch fired up to the watermark that it left.
        """
        latest, current = dict(self.latest), dict(self.current)
        for node, value in seen.latest_us.items():
            latest[node] = max(value, latest.get(node, value))
        medians, remembered = self._medians_after(seen)
        floors = FlowTime(medians=medians)
        partitions: dict[int, Mapping[str, PartitionTime]] = {}
        for node, clock in rules.clocks.items():
            if node not in latest:
                continue
            reached = latest[node] - clock.delay_us
            if keeps_partitions(clock):
                spoke = _heard(self.partitions.get(node, {}), _seen_partitions(node, clock, seen), now_us)
                partitions[node] = _without_idle(spoke, clock, now_us, since_us)
                if partitions[node]:
                    reached = _slowest_partition(partitions[node], clock, floors.floor_us((node,), clock.behind_us))
                else:
                    reached = rules.last_end_us(node, latest[node]) if spoke else BEGINNING_OF_TIME
            current[node] = max(reached, current.get(node, BEGINNING_OF_TIME))
        _take_silent_along(current, partitions, rules, now_us - since_us)
        previous = dict(current if fires_at_once else self.current)
        for node, value in (fired_until or {}).items():
            current[node] = previous[node] = max(value, current.get(node, BEGINNING_OF_TIME))
        return FlowTime(latest, current, previous, partitions, medians, remembered)

    def wake_us(self, rules: WatermarkRules, *, now_us: int, since_us: int = 0) -> int | None:
        """Return when, by the wall clock, the next of those that are waited for counts as silent."""
        wakes = []
        for node, clock in rules.clocks.items():
            if clock.idle_us is not None and keeps_partitions(clock):
                heard = [partition.heard_us for partition in self.partitions.get(node, {}).values()]
                wakes.append(max(min(heard, default=since_us), since_us) + clock.idle_us)
        return min((wake for wake in wakes if wake > now_us), default=None)

    @property
    def watermark_us(self) -> int | None:
        """The slowest watermark, for people; None before any event."""
        return min(self.current.values(), default=None)

    def renamed(self, names: Mapping[int, int]) -> FlowTime:
        """Return the same under other node numbers; a watermark that has no new number is forgotten."""

        def rename(values: Mapping[int, V]) -> dict[int, V]:
            return {names[node]: value for node, value in values.items() if node in names}

        return FlowTime(
            rename(self.latest),
            rename(self.current),
            rename(self.previous),
            rename(self.partitions),
            rename(self.medians),
            rename(self.remembered),
        )

    def with_heard(self, heard_us: Mapping[int, int]) -> FlowTime:
        """Return the same as if all partitions had been heard at these moments; later ones stay."""
        partitions = {
            node: {
                name: PartitionTime(time.latest_us, max(time.heard_us, heard_us.get(node, time.heard_us)))
                for name, time in times.items()
            }
            for node, times in self.partitions.items()
        }
        return replace(self, partitions=partitions)

    def without_partitions(self, is_gone: Callable[[str], bool]) -> FlowTime:
        """Return the same without partitions that nobody waits for any more."""
        partitions = {
            node: {name: time for name, time in times.items() if not is_gone(name)}
            for node, times in self.partitions.items()
        }
        return replace(self, partitions=partitions)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        data: dict[str, Any] = {
            name: {str(node): value for node, value in values.items()}
            for name, values in (("latest", self.latest), ("current", self.current), ("previous", self.previous))
        }
        if self.partitions:
            data["partitions"] = {
                str(node): {name: [time.latest_us, time.heard_us] for name, time in sorted(times.items())}
                for node, times in self.partitions.items()
            }
        if self.medians:
            data["medians"] = {str(node): value for node, value in self.medians.items()}
        if self.remembered:
            data["remembered"] = {str(node): sorted(rows.items()) for node, rows in self.remembered.items()}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlowTime:
        """Read what ``to_json`` wrote, in this version or in one that knew the first three fields only."""
        latest, current, previous, medians = (
            {int(node): value for node, value in data.get(name, {}).items()}
            for name in ("latest", "current", "previous", "medians")
        )
        partitions = {
            int(node): {name: PartitionTime(*time) for name, time in times.items()}
            for node, times in data.get("partitions", {}).items()
        }
        remembered = {int(node): {us: count for us, count in rows} for node, rows in data.get("remembered", {}).items()}
        return cls(latest, current, previous, partitions, medians, remembered)

    def _medians_after(self, seen: SeenTimes) -> tuple[dict[int, int], dict[int, Mapping[int, int]]]:
        medians, remembered = dict(self.medians), dict(self.remembered)
        for node, tally in seen.tallies.items():
            rows = remember(remembered.get(node, {}), tally)
            median_us = median_of(rows)
            if median_us is not None:
                medians[node] = max(median_us, medians.get(node, median_us))
            remembered[node] = fade(rows)
        return medians, remembered


def keeps_partitions(clock: Clock) -> bool:
    """Say whether the driver must know who spoke when; slots know it where they keep watermarks themselves."""
    return clock.per == "partition" or (clock.per == "flow" and clock.idle_us is not None)


def _seen_partitions(node: int, clock: Clock, seen: SeenTimes) -> Mapping[str, int]:
    if clock.per == "partition":
        return seen.partitions_us.get(node, {})
    return {WHOLE_FLOW: seen.latest_us[node]} if node in seen.latest_us else {}


def _heard(known: Mapping[str, PartitionTime], seen: Mapping[str, int], now_us: int) -> dict[str, PartitionTime]:
    heard = dict(known)
    for name, latest_us in seen.items():
        before_us = known[name].latest_us if name in known else latest_us
        heard[name] = PartitionTime(max(latest_us, before_us), now_us)
    return heard


def _without_idle(
    partitions: Mapping[str, PartitionTime], clock: Clock, now_us: int, since_us: int
) -> dict[str, PartitionTime]:
    if clock.idle_us is None:
        return dict(partitions)
    return {name: time for name, time in partitions.items() if max(time.heard_us, since_us) + clock.idle_us > now_us}


def _slowest_partition(partitions: Mapping[str, PartitionTime], clock: Clock, floor_us: int) -> int:
    """Return how far all partitions are that are waited for."""
    counted = [time.latest_us - clock.delay_us for time in partitions.values() if time.latest_us >= floor_us]
    return min(counted, default=floor_us)


def _take_silent_along(
    current: dict[int, int],
    partitions: Mapping[int, Mapping[str, PartitionTime]],
    rules: WatermarkRules,
    listened_us: int,
) -> None:
    """Bring watermarks of which nothing is heard to where the others are that an operator follows beside them.

    Where nothing is heard of any, all that is open closes: they go to the furthest.
    """
    silent = {
        node
        for node, clock in rules.clocks.items()
        if clock.idle_us is not None
        and keeps_partitions(clock)
        and not partitions.get(node)
        and clock.idle_us <= listened_us
    }
    for group in rules.together:
        heard = [current.get(node, BEGINNING_OF_TIME) for node in group if node not in silent]
        unheard = [node for node in group if node in silent]
        reached = min(heard) if heard else max(current.get(node, BEGINNING_OF_TIME) for node in group)
        for node in unheard:
            if reached > current.get(node, BEGINNING_OF_TIME):
                current[node] = reached


def _slowest(watermarks: Mapping[int, int], nodes: tuple[int, ...]) -> int:
    return min((watermarks.get(node, BEGINNING_OF_TIME) for node in nodes), default=BEGINNING_OF_TIME)
