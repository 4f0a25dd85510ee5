"""Which replica serves when the home of a slot is lost."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.model.cluster import Homes, SlotId, SlotLoad
from anabranch.placement.replicas.plan import StandingReplicas


def choose_heirs(
    lost: Mapping[SlotId, SlotLoad],
    current: StandingReplicas,
    busy_seconds: Mapping[str, float],
    cores: Mapping[str, int],
) -> Homes:
    """Return a new home for each lost slot that has a replica: the least busy of its hosts, the costliest slot first.

    ``current`` are hosts that live and hold the last committed version: they serve at once. ``busy_seconds`` is what
    a batch costs on each host already. Slots without a replica are not in what is returned: they load the checkpoint,
    wherever they get a home.
    """
    busy = dict(busy_seconds)
    homes: dict[SlotId, str] = {}
    for slot in sorted(lost, key=lambda one: (-lost[one].cpu_seconds, one)):
        cost = lost[slot].cpu_seconds
        heirs = [host for host in current.get(slot, ()) if host in cores]
        if heirs:
            heir = min(heirs, key=lambda host: ((busy.get(host, 0.0) + cost) / max(1, cores[host]), heirs.index(host)))
            homes[slot] = heir
            busy[heir] = busy.get(heir, 0.0) + cost
    return homes
