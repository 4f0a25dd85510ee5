"""Watermarks of a flow from batch to batch: frozen while a batch runs, never going back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, OperatorTime


@dataclass(frozen=True, slots=True)
class FlowTime:
    """What is known of event time after a batch; by watermark node, in microseconds."""

    latest: Mapping[int, int] = field(default_factory=dict)
    """The largest event time seen."""
    current: Mapping[int, int] = field(default_factory=dict)
    """The watermark under which the next batch runs."""
    previous: Mapping[int, int] = field(default_factory=dict)
    """The watermark under which the last batch ran."""

    def operator_time(
        self, batch: int, followed: Iterable[int], *, lagging: bool, draining: bool, now_us: int
    ) -> OperatorTime:
        """Return the time for an operator that follows these watermark nodes; the slowest of them counts."""
        nodes = tuple(followed)
        fire = END_OF_TIME if draining else _slowest(self.current, nodes)
        fired = _slowest(self.previous, nodes)
        closed = fired if lagging else _slowest(self.current, nodes)
        return OperatorTime(batch, closed_us=closed, fire_us=fire, now_us=now_us, fired_us=fired)

    def advanced(
        self, seen: Mapping[int, int], delays: Mapping[int, int], fired_until: Mapping[int, int] | None = None
    ) -> FlowTime:
        """Return the time after a batch that saw these largest event times.

        ``fired_until`` holds the end of the last window that a drain fired, by watermark node: what was emitted
        must not be opened again, so later rows of those windows are late.
        """
        latest = dict(self.latest)
        for node, value in seen.items():
            latest[node] = max(value, latest.get(node, value))
        current = dict(self.current)
        for node, value in latest.items():
            current[node] = max(value - delays[node], current.get(node, BEGINNING_OF_TIME))
        previous = dict(self.current)
        for node, value in (fired_until or {}).items():
            current[node] = previous[node] = max(value, current.get(node, BEGINNING_OF_TIME))
        return FlowTime(latest, current, previous)

    @property
    def watermark_us(self) -> int | None:
        """The slowest watermark, for people; None before any event."""
        return min(self.current.values(), default=None)

    def renamed(self, names: Mapping[int, int]) -> FlowTime:
        """Return the same under other node numbers; a watermark that has no new number is forgotten."""
        return FlowTime(
            *(
                {names[node]: value for node, value in values.items() if node in names}
                for values in (self.latest, self.current, self.previous)
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            name: {str(node): value for node, value in values.items()}
            for name, values in (("latest", self.latest), ("current", self.current), ("previous", self.previous))
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlowTime:
        """Read what ``to_json`` wrote."""
        return cls(
            *(
                {int(node): value for node, value in data.get(name, {}).items()}
                for name in ("latest", "current", "previous")
            )
        )


def _slowest(watermarks: Mapping[int, int], nodes: tuple[int, ...]) -> int:
    return min((watermarks.get(node, BEGINNING_OF_TIME) for node in nodes), default=BEGINNING_OF_TIME)
