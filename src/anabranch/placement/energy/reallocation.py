"""Slots leave the hosts that no long path passes, for the hosts of those who send to them; emptied hosts are released.

These are algorithms 1 and 2 of ERDM, with what its text leaves open: limits hold for all slots of a host together, all
three resources are looked at before a slot comes, slots are taken in the order of levels, one that nobody admits stays,
and hosts are removed after the last slot, if they are empty. A host is critical if it is on any path that is nearly as
long as the longest: how nearly is lowered until what is left to place fits (one path alone passes three or four hosts).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.model.cluster import Homes, SlotId
from anabranch.placement.energy.board import Board, Limits
from anabranch.placement.energy.loads import FlowLoad, Host

_MOST_TRIALS = 32
_ALMOST = 1e-9


@dataclass(frozen=True, slots=True)
class SlotMove:
    """Let a slot run on another host from the next batch on."""

    slot: SlotId
    source: str
    target: str
    state_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reallocation:
    """Where slots go, which hosts are empty then, and what that does to the longest path and to a batch."""

    homes: Homes
    moves: tuple[SlotMove, ...]
    critical: tuple[str, ...]
    """Hosts that slots go to."""
    released: tuple[str, ...]
    """Hosts that had slots and have none any more."""
    threshold: float
    """Paths of at least this share of the longest were regarded as critical; 1 for the longest alone."""


def choose_target(board: Board, slot: SlotId, critical: Collection[str], limits: Limits) -> tuple[str, str] | None:
    """Return the critical host that a slot goes to, and why; None if none admits it.

    The host of its parent; of several, the one with the fewest slots (so that they do not pile up), then the least
    processor time. If none of these admits it, the same among all critical hosts.
    """
    admitting = board.find_admitting(slot, limits)
    counts, shares = board.count_slots(), board.cpu_shares()
    parents = sorted({board.home(parent) for parent in board.parents(slot)} & set(critical))
    for among, reason in ((parents, "to a slot that sends to it"), (sorted(critical), "its senders' hosts are full")):
        places = [board.places[host] for host in among if admitting[board.places[host]]]
        if places:
            best = min(places, key=lambda place: (counts[place], round(float(shares[place]), 9), place))
            return board.hosts[best].id, reason if board.parents(slot) else "nobody sends to it"
    return None


def reallocate(board: Board, critical: Collection[str], limits: Limits) -> tuple[list[SlotMove], list[SlotId]]:
    """Move slots of hosts that are not critical, on the board; return the moves, and the slots that had to stay."""
    moves: list[SlotMove] = []
    stranded: list[SlotId] = []
    for slot in board.slots:
        source = board.home(slot)
        if source in critical:
            continue
        found = choose_target(board, slot, critical, limits)
        if found is None:
            stranded.append(slot)
            continue
        target, reason = found
        board.move(slot, target)
        moves.append(SlotMove(slot, source, target, board.load.slots[slot].state_bytes, reason))
    return moves, stranded


def plan_reallocation(
    hosts: Sequence[Host],
    load: FlowLoad,
    homes: Homes,
    limits: Limits,
    *,
    latency_seconds: float = math.inf,
    fewest: int = 1,
) -> Reallocation | None:
    """Return the reallocation with the fewest critical hosts onto which everything fits; None if no host can go.

    The batch must be as quick afterwards as the bound on latency asks, and no limit may be broken that was kept.
    """
    before = Board(hosts, load, homes)
    used = before.used
    paths = before.find_paths()
    shares = before.cpu_shares()
    reach = {host: 0.0 for host in used}
    for slot, cost in paths.through.items():
        home = before.home(slot)
        reach[home] = max(reach[home], cost)
    order = sorted(used, key=lambda host: (-reach[host], -round(float(shares[before.places[host]]), 9), host))
    for count in _list_counts(max(fewest, count_needed(hosts, load, limits)), len(used)):
        board = before.rehomed(homes)
        critical = order[:count]
        moves, stranded = reallocate(board, critical, limits)
        if stranded or not board.is_within(limits) or board.latency_seconds() > latency_seconds + _ALMOST:
            continue
        return Reallocation(
            homes=board.homes,
            moves=tuple(moves),
            critical=tuple(sorted(critical)),
            released=tuple(sorted(set(used) - set(board.used))),
            threshold=reach[critical[-1]] / paths.seconds if paths.seconds else 1.0,
        )
    return None


def count_needed(hosts: Sequence[Host], load: FlowLoad, limits: Limits, *, growth: float = 1.0) -> int:
    """Return as many of the largest hosts as so many times the load takes at least, if it could be cut at will.

    Network is left out: what crosses depends on who is where.
    """
    cpu = growth * math.fsum(use.cpu_seconds for use in load.slots.values()) / load.seconds
    memory = sum(use.memory_bytes for use in load.slots.values())
    cores = np.cumsum(sorted((limits.cpu * max(1, host.cores) for host in hosts), reverse=True))
    room = np.cumsum(sorted((limits.memory * (host.memory_bytes or math.inf) for host in hosts), reverse=True))
    by_cpu, by_memory = (
        int(np.searchsorted(sums, need - _ALMOST)) + 1 for sums, need in ((cores, cpu), (room, memory))
    )
    return min(max(by_cpu, by_memory), len(hosts))


def _list_counts(least: int, most: int) -> Iterator[int]:
    """Yield how many hosts are tried as critical ones, rising; where there are very many, not each number."""
    step = max(1, math.ceil((most - least) / _MOST_TRIALS))
    yield from range(least, most, step)
