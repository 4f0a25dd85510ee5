"""Who holds which version of a slot's state, and what is on its way: bounded by the wires of both hosts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from anabranch.model.cluster import Homes, SlotId


@dataclass(slots=True)
class Copy:
    """A slot's state in the memory of a host."""

    version: int | None = None
    """The last batch whose state is there whole; None while the first transfer is not over."""
    wanted: int = 0
    """The version that it has when all that is on its way has come."""
    outstanding_bytes: float = 0.0


@dataclass(slots=True)
class Copies:
    """All copies of all slots, those of the homes included; ``committed`` is the last batch that was committed."""

    committed: int = 0
    by_slot: dict[SlotId, dict[str, Copy]] = field(default_factory=dict)

    def list_current(self, slot: SlotId, reachable: Collection[str]) -> tuple[str, ...]:
        """Return the hosts that hold the last committed version."""
        return tuple(
            host
            for host, copy in self.by_slot.get(slot, {}).items()
            if copy.version == self.committed and host in reachable
        )

    def is_current(self, slot: SlotId, host: str) -> bool:
        """Say whether a host holds the last committed version."""
        copy = self.by_slot.get(slot, {}).get(host)
        return copy is not None and copy.version == self.committed

    def list_whole(self, slot: SlotId, reachable: Collection[str]) -> tuple[str, ...]:
        """Return the hosts that hold any version whole, the newest first."""
        held = self.by_slot.get(slot, {})
        whole = [(-copy.version, host) for host, copy in held.items() if copy.version is not None and host in reachable]
        return tuple(host for _, host in sorted(whole))

    def find_lag(self, planned: Mapping[SlotId, Collection[str]], reachable: Collection[str]) -> int:
        """Return by how many batches the replica that is furthest behind is; a first transfer counts as one batch."""
        there = set(reachable)
        copies = (
            copy
            for slot, hosts in planned.items()
            for host, copy in self.by_slot[slot].items()
            if host in hosts and host in there
        )
        return max((1 if copy.version is None else self.committed - copy.version for copy in copies), default=0)

    def seed(self, slot: SlotId, host: str) -> None:
        """Give a host the last committed version: it loaded it, or just wrote it."""
        self.by_slot.setdefault(slot, {})[host] = Copy(self.committed, self.committed)

    def begin(self, slot: SlotId, host: str, state_bytes: float) -> None:
        """Begin to copy a slot's state to a host; one that has an old version is only sent what came since."""
        held = self.by_slot.setdefault(slot, {})
        if host not in held:
            held[host] = Copy(None, self.committed, state_bytes)

    def commit(self, homes: Homes, changed_bytes: Mapping[SlotId, float]) -> None:
        """Let homes have the next version; what changed is on its way to all other copies."""
        self.committed += 1
        for slot, held in self.by_slot.items():
            home = homes.get(slot)
            for host, copy in held.items():
                if host == home:
                    copy.version, copy.outstanding_bytes = self.committed, 0.0
                else:
                    copy.outstanding_bytes += changed_bytes[slot]
                copy.wanted = self.committed

    def forget(self, host: str) -> None:
        """Lose all that a host holds."""
        for held in self.by_slot.values():
            held.pop(host, None)

    def drop(self, slot: SlotId, host: str) -> None:
        """Forget one copy."""
        self.by_slot.get(slot, {}).pop(host, None)

    def transfer(self, homes: Homes, room_bytes: dict[str, float]) -> float:
        """Send what fits through the wires of both hosts, the oldest version first; return the bytes that were sent.

        ``room_bytes`` is what each wire can still take; hosts that it does not name are out of reach.
        """
        waiting = [
            (-1 if copy.version is None else copy.version, slot, host, copy)
            for slot, held in self.by_slot.items()
            for host, copy in held.items()
            if copy.version != self.committed and host != homes.get(slot) and host in room_bytes
        ]
        sent = 0.0
        for _, slot, host, copy in sorted(waiting, key=lambda one: one[:3]):
            home = homes.get(slot)
            if home is None or home not in room_bytes or not self.is_current(slot, home):
                continue
            moved = min(copy.outstanding_bytes, room_bytes[home], room_bytes[host])
            for wire in (home, host):
                if math.isfinite(room_bytes[wire]):
                    room_bytes[wire] = max(0.0, room_bytes[wire] - moved)
            sent += moved
            copy.outstanding_bytes -= moved
            if copy.outstanding_bytes <= 1e-6:
                copy.version, copy.outstanding_bytes = copy.wanted, 0.0
        return sent
