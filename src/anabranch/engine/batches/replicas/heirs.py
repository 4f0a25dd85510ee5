"""Where slots go on that lost their homes, from what the last batch left and what hosts hold."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.engine.batches.replicas.problem import Known, find_unbroken, list_written
from anabranch.model.cluster import Cluster, Executor, Home, Homes, SlotId, SlotLoads
from anabranch.placement.replicas import (
    Holdings,
    StandingReplicas,
    choose_executors,
    choose_heirs,
    find_current,
    measure_held,
)


@dataclass(frozen=True, slots=True)
class Heirs:
    """New homes for slots that lost theirs; slots that no host has anything of are not among them."""

    executors: Homes
    """Slot → executor."""
    whole: Homes
    """Slot → its host, which holds all of its state."""
    partial: Homes
    """Slot → its host, which holds more of its state than others, as far as is known; the store has the rest."""


def find_heirs(
    known: Known,
    lost: Mapping[SlotId, Home],
    holdings: Mapping[str, Holdings],
    placed: StandingReplicas,
    executors: Sequence[Executor],
    cluster: Cluster,
    loads: SlotLoads,
    before: Homes,
) -> Heirs:
    """Return who inherits slots; ``executors`` are usable, and ``before`` has the slots that stay on some of them."""
    host_of = {executor.id: cluster.name_memory(executor) for executor in executors}
    cores: dict[str, int] = dict.fromkeys(host_of.values(), 0)
    busy: dict[str, float] = dict.fromkeys(host_of.values(), 0.0)
    for executor in executors:
        cores[host_of[executor.id]] += executor.cores
    for slot, id in before.items():
        busy[host_of[id]] += loads.slots[slot].cpu_seconds if slot in loads.slots else 0.0
    runs = {slot: known.runs[slot] for slot in lost if slot in known.runs}
    believed = add_own(known, {host: held for host, held in holdings.items() if host in cores}, cores)
    unbroken = find_unbroken(known, host_of)
    certain = {host: held for host, held in believed.items() if host in unbroken}
    current = find_current(runs, certain, placed)
    homes = choose_heirs(
        {slot: known.load_of(slot, loads) for slot in lost}, current, busy, cores, measure_held(runs, believed)
    )
    return Heirs(
        choose_executors(homes, executors, host_of, loads.slots),
        {slot: host for slot, host in homes.items() if host in current.get(slot, ())},
        {slot: host for slot, host in homes.items() if host not in current.get(slot, ())},
    )


def add_own(known: Known, holdings: Mapping[str, Holdings], hosts: Container[str]) -> dict[str, Holdings]:
    """Return what hosts hold with the runs that slots wrote there, which are no replicas.

    An executor may be gone whose host is not. And in the middle of a batch Spark may have run a slot elsewhere than at
    home, because that was lost: the newest run is in memory only there.
    """
    found = dict(holdings)
    for slot, host in known.ran.items():
        if host in hosts:
            held = found.get(host, Holdings())
            found[host] = replace(held, held={**held.held, **list_written(known, slot)})
    return found
