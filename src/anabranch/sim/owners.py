"""Which slots hosts work on as they know it themselves: one that is cut off goes on with what it was told last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from anabranch.model.cluster import Homes, SlotId


@dataclass(slots=True)
class Owners:
    """What each host was told to work on, and for which attempt at a batch."""

    told: dict[str, tuple[int, tuple[SlotId, ...]]] = field(default_factory=dict)

    def tell(self, attempt: int, homes: Homes, reachable: Collection[str]) -> None:
        """Tell all hosts that are reached what an attempt wants of them; others go on with what they have."""
        slots: defaultdict[str, list[SlotId]] = defaultdict(list)
        for slot, home in homes.items():
            slots[home].append(slot)
        self.told.update({host: (attempt, tuple(slots[host])) for host in reachable})

    def forget(self, host: str) -> None:
        """A host failed: it knows nothing any more."""
        self.told.pop(host, None)

    def collect(self, attempt: int, reachable: Collection[str]) -> tuple[dict[SlotId, tuple[str, ...]], int]:
        """Return by slot the hosts that hand in its state, and how many states are refused: of another attempt."""
        writers: defaultdict[SlotId, tuple[str, ...]] = defaultdict(tuple)
        refused = 0
        for host in reachable:
            meant, slots = self.told.get(host, (attempt, ()))
            if meant != attempt:
                refused += len(slots)
                continue
            for slot in slots:
                writers[slot] += (host,)
        return dict(writers), refused
