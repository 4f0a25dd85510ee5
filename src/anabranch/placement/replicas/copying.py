"""What is copied next: from a manifest's runs, where they are wanted, and what hosts say they hold.

Runs never change, so a replica follows its slot by what it lacks, which after most batches is what the batch wrote.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from anabranch.model.cluster import Homes, SlotId
from anabranch.model.runs import RunRef
from anabranch.placement.replicas.plan import StandingReplicas

SlotRuns = Mapping[SlotId, Mapping[str, RunRef]]
"""Slot → the name that a copy has → the run: all that the next batch may read of the slot's state."""
_AT_HOME: Homes = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a host says of its memory."""

    held: Mapping[str, int] = field(default_factory=dict)
    """The copies that are whole, with their bytes."""
    begun: Mapping[str, int] = field(default_factory=dict)
    """The copies of which a part has arrived, and how many bytes."""
    room_bytes: float = math.inf
    """What replicas may take there, with what they have."""
    link_bytes_per_second: float = math.inf
    """What its network interfaces say that they carry."""

    @property
    def bytes(self) -> int:
        """What copies take."""
        return sum(self.held.values()) + sum(self.begun.values())


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of a run, to be sent from one host to another."""

    source: str
    target: str
    run: RunRef
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class CopyRound:
    """What hosts send each other, and forget, in one go."""

    stretches: tuple[Stretch, ...] = ()
    drops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Host → copies that it is to forget."""
    asks: tuple[str, ...] = ()
    """Hosts of which nothing is known yet."""

    @property
    def copied_bytes(self) -> int:
        """What is sent."""
        return sum(stretch.end - stretch.start for stretch in self.stretches)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.stretches or self.drops or self.asks)


def plan_round(
    runs: SlotRuns,
    homes: Homes,
    placed: StandingReplicas,
    holdings: Mapping[str, Holdings],
    hosts: Sequence[str],
    most_bytes: int,
    ran: Homes = _AT_HOME,
) -> CopyRound:
    """Return what is copied next; ``homes`` are hosts, too, and no host sends or gets more than ``most_bytes``.

    A slot's state is sent from the host where it ``ran`` last, for it is in memory there: in the middle of a batch that
    may have become another than its home, and from the next batch on its home may be another. Without that host, it
    is sent after the next batch. Of slots of which nobody knows where they ran, the home sends it.

    What lacks least comes first: replicas that are nearly whole follow the batches while others are still filled. A
    host keeps what it holds of slots that are placed there, and of slots that came to be at home there: they read it.
    """
    wanted = _list_wanted(runs, placed)
    budget = dict.fromkeys(hosts, most_bytes)
    stretches: list[Stretch] = []
    taken: set[tuple[str, str]] = set()
    lacking = [
        (sum(run.bytes for _, run in missing), slot, host, missing)
        for slot, host in wanted
        if host in holdings and (missing := _list_missing(runs[slot], holdings[host]))
    ]
    for _, slot, host, missing in sorted(lacking, key=lambda one: one[:3]):
        source = ran.get(slot, homes.get(slot))
        if source is None or source not in budget or source == host or host not in budget:
            continue
        for name, run in missing:
            start = holdings[host].begun.get(name, 0)
            # A part that is longer than the run is of something else: it is written again.
            start = start if start < run.bytes else 0
            count = min(run.bytes - start, budget[source], budget[host])
            if count <= 0 or (host, name) in taken:
                continue
            taken.add((host, name))
            budget[source] -= count
            budget[host] -= count
            stretches.append(Stretch(source, host, run, start, start + count))
    kept = _list_kept(runs, homes, placed)
    drops = {
        host: gone
        for host in hosts
        if host in holdings
        and (gone := tuple(sorted({*holdings[host].held, *holdings[host].begun} - kept.get(host, set()))))
    }
    return CopyRound(tuple(stretches), drops, tuple(host for host in hosts if host not in holdings))


def find_current(runs: SlotRuns, holdings: Mapping[str, Holdings], order: StandingReplicas) -> StandingReplicas:
    """Return by slot the hosts that hold all of its state, those of ``order`` first; without state, only those."""
    found: dict[SlotId, tuple[str, ...]] = {}
    for slot, named in runs.items():
        hosts = dict.fromkeys((*order.get(slot, ()), *(sorted(holdings) if named else ())))
        whole = tuple(host for host in hosts if host in holdings and named.keys() <= holdings[host].held.keys())
        if whole:
            found[slot] = whole
    return found


def measure_held(runs: SlotRuns, holdings: Mapping[str, Holdings]) -> dict[SlotId, dict[str, int]]:
    """Return by slot the hosts that hold some of its state, and how many bytes; what has half arrived is of no use."""
    found: dict[SlotId, dict[str, int]] = {}
    for slot, named in runs.items():
        sizes = {
            host: sum(run.bytes for name, run in named.items() if name in known.held)
            for host, known in sorted(holdings.items())
        }
        if any(sizes.values()):
            found[slot] = {host: size for host, size in sizes.items() if size}
    return found


def measure_lag(runs: SlotRuns, placed: StandingReplicas, holdings: Mapping[str, Holdings]) -> tuple[int, int]:
    """Return how many replicas hold all state, and how many bytes the others lack."""
    current, lag_bytes = 0, 0
    for slot, host in _list_wanted(runs, placed):
        known = holdings.get(host, Holdings())
        missing = _list_missing(runs[slot], known)
        current += not missing
        lag_bytes += sum(max(0, run.bytes - known.begun.get(name, 0)) for name, run in missing)
    return current, lag_bytes


def _list_wanted(runs: SlotRuns, placed: StandingReplicas) -> Iterator[tuple[SlotId, str]]:
    for slot in sorted(runs):
        for host in placed.get(slot, ()):
            yield slot, host


def _list_missing(named: Mapping[str, RunRef], known: Holdings) -> list[tuple[str, RunRef]]:
    missing = [(name, run) for name, run in named.items() if name not in known.held]
    # The smallest first, as above: what the last batch wrote is small, what it was merged into is not.
    return sorted(missing, key=lambda one: (one[1].bytes, one[0]))


def _list_kept(runs: SlotRuns, homes: Homes, placed: StandingReplicas) -> dict[str, set[str]]:
    kept: defaultdict[str, set[str]] = defaultdict(set)
    for slot, named in runs.items():
        for host in (*placed.get(slot, ()), homes.get(slot)):
            if host is not None:
                kept[host].update(named)
    return kept
