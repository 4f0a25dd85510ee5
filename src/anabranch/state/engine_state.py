"""What the engine leaves in a manifest for the next batch, beside state and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.model.cluster import KeptHomes
from anabranch.model.exchanges import ExchangeWay
from anabranch.model.times import FollowedTimes

_NAMES = ("slots", "next_due", "clocks", "now_us", "wake_us", "partitions", "exchanges", "watermarks")
_HOMES = "homes"


@dataclass(frozen=True, slots=True)
class EngineState:
    """What the next batch must know of the last one. Operators go by their names, which are stable between starts."""

    slots: int = 0
    """Slots of a stateful subquery; 0 if the manifest does not say."""
    next_due_us: Mapping[str, int | None] = field(default_factory=dict)
    """By operator, the end of the first window that waits for anything."""
    clocks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By operator, what is known of its own time, as ``OperatorClocks`` writes it."""
    now_us: int = 0
    """The wall clock when the batch began."""
    wake_us: int | None = None
    """When, by the wall clock, a batch must run even if no data comes."""
    partition_keys: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By operator whose slots are partitions, what is known of their keys, as ``AuditedKeys`` writes it."""
    exchanges: Mapping[str, ExchangeWay] = field(default_factory=dict)
    """By operator whose exchange is weighed, how its rows leave in the next batch."""
    followed: tuple[FollowedTimes, ...] = ()
    """What each place of the manifest's watermarks stands for; empty if it does not say."""
    homes: KeptHomes = field(default_factory=KeptHomes)
    """Where slots are at home; not written where they are nowhere, as in one process."""
    said: frozenset[str] = frozenset(_NAMES)
    """Which of these the manifest has: an earlier version did not know all of them."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """What another version wrote, and this one does not know."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data; what was read from a manifest is written as it was there."""
        data = {
            "slots": self.slots,
            "next_due": dict(self.next_due_us),
            "clocks": dict(self.clocks),
            "now_us": self.now_us,
            "wake_us": self.wake_us,
            "partitions": dict(self.partition_keys),
            "exchanges": dict(self.exchanges),
            "watermarks": [followed.to_json() for followed in self.followed],
        }
        homes = {_HOMES: self.homes.to_json()} if self.homes != KeptHomes() else {}
        return {name: value for name, value in data.items() if name in self.said} | homes | dict(self.unknown)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineState:
        """Read what ``to_json`` wrote, in this version or in an earlier one, which may have said less."""
        return cls(
            slots=data.get("slots", 0),
            next_due_us=data.get("next_due", {}),
            clocks=data.get("clocks", {}),
            now_us=data.get("now_us", 0),
            wake_us=data.get("wake_us"),
            partition_keys=data.get("partitions", {}),
            exchanges=data.get("exchanges", {}),
            followed=tuple(FollowedTimes.from_json(followed) for followed in data.get("watermarks", ())),
            homes=KeptHomes.from_json(data[_HOMES]) if _HOMES in data else KeptHomes(),
            said=frozenset(_NAMES) & data.keys(),
            unknown={name: value for name, value in data.items() if name not in (*_NAMES, _HOMES)},
        )
