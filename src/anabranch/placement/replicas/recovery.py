"""Which replica serves when the home of a slot is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad
from anabranch.placement.replicas.plan import StandingReplicas

_NOTHING_HELD: Mapping[SlotId, Mapping[str, int]] = MappingProxyType({})


def choose_heirs(
    lost: Mapping[SlotId, SlotLoad],
    current: StandingReplicas,
    busy_seconds: Mapping[str, float],
    cores: Mapping[str, int],
    held_bytes: Mapping[SlotId, Mapping[str, int]] = _NOTHING_HELD,
) -> Homes:
    """Return a new home for each lost slot that has a replica: the least busy of its hosts, the costliest slot first.

    ``current`` are hosts that live and hold the last committed version: they serve at once. ``busy_seconds`` is what
    a batch costs on each host already. A slot of which no host holds all goes where most of it is: ``held_bytes`` says
    by slot what hosts hold of its state, and what they lack is all that is read from the checkpoint. Slots without any
    replica are not in what is returned: they load the checkpoint, wherever they get a home.
    """
    busy = dict(busy_seconds)
    homes: dict[SlotId, str] = {}
    for slot in sorted(lost, key=lambda one: (-lost[one].cpu_seconds, one)):
        cost = lost[slot].cpu_seconds
        heirs = [host for host in current.get(slot, ()) if host in cores] or _find_fullest(
            {host: size for host, size in held_bytes.get(slot, {}).items() if host in cores}
        )
        if heirs:
            heir = min(heirs, key=lambda host: ((busy.get(host, 0.0) + cost) / max(1, cores[host]), heirs.index(host)))
            homes[slot] = heir
            busy[heir] = busy.get(heir, 0.0) + cost
    return homes


def _find_fullest(held_bytes: Mapping[str, int]) -> list[str]:
    most = max(held_bytes.values(), default=0)
    return sorted(host for host, size in held_bytes.items() if size == most > 0)


def choose_executors(
    heirs: Homes, executors: Sequence[Executor], host_of: Mapping[str, str], loads: Mapping[SlotId, SlotLoad]
) -> Homes:
    """Return for slots that go on at these hosts the executor of the host that has least to do, one after the other."""
    busy = dict.fromkeys((executor.id for executor in executors), 0.0)
    chosen: dict[SlotId, str] = {}
    for slot, host in sorted(heirs.items()):
        there = [executor for executor in executors if host_of[executor.id] == host]
        heir = min(there, key=lambda one: (busy[one.id] / max(1, one.cores), one.id))
        chosen[slot] = heir.id
        busy[heir.id] += loads[slot].cpu_seconds if slot in loads else 1.0
    return chosen
