"""Replicas get hosts: few of them, near, within their limits (MRP), or by chance, or all on the same.

MRP is the greedy method of *A Replica Placement Method during Data Stream Processing* (Ding and Han, 2014): for one
replica after another, the host with the least delay among those that hold replicas already, else among the others. The
fewer sets of hosts hold all copies of something, the fewer sets of failures lose something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from anabranch.errors import name_alternatives
from anabranch.model.loads import LoadError
from anabranch.model.replicas import PLACEMENTS
from anabranch.placement.replicas.plan import (
    ReplicaDrop,
    ReplicaMove,
    ReplicaPlan,
    ResourcesInsufficient,
    Shortage,
    StandingReplicas,
)
from anabranch.placement.replicas.problem import ReplicaProblem, list_names
from anabranch.placement.replicas.room import Room

_Chooser = Callable[[Room, int], int | None]
"""Where the next replica of a slot goes; None if nowhere."""
_NONE_STAND: StandingReplicas = MappingProxyType({})


def place_replicas(
    problem: ReplicaProblem, placement: str = "mrp", *, spare: float = 0.0, rng: np.random.Generator | None = None
) -> ReplicaPlan:
    """Return hosts for all replicas of all slots; raise ``ResourcesInsufficient`` if one has no place.

    *random* draws from ``rng``, and equal generators give equal plans.
    """
    plan = restore_replicas(problem, _NONE_STAND, placement, spare=spare, rng=rng)
    if plan.missing:
        raise ResourcesInsufficient(plan.missing)
    return plan


def restore_replicas(
    problem: ReplicaProblem,
    before: StandingReplicas,
    placement: str = "mrp",
    *,
    spare: float = 0.0,
    rng: np.random.Generator | None = None,
) -> ReplicaPlan:
    """Return where replicas stand after hosts were lost, came, or were given other slots: all that can stay, stays.

    ``before`` says which hosts hold a copy of a slot; of hosts that are gone nothing is left, and a former home may be
    named, too. What has no place is in the plan's ``missing``; the rest is placed all the same, since some copies are
    better than none.
    """
    choose = _find_chooser(placement, problem, rng)
    in_order = range(len(problem.slots))
    room, missing = _fill(problem, before, choose, spare, in_order)
    if missing and placement == "mrp":
        # Large ones find no place behind small ones; the other way round they may.
        by_size = sorted(in_order, key=lambda slot: _rank_by_size(problem, slot))
        other, still_missing = _fill(problem, before, choose, spare, by_size)
        if len(still_missing) < len(missing):
            room, missing = other, still_missing
    return _describe(problem, before, room, missing)


def _rank_by_size(problem: ReplicaProblem, slot: int) -> tuple[float, float, int]:
    wanted = problem.slots[slot]
    return -wanted.state_bytes, -wanted.replica_bytes_per_second, slot


def _fill(
    problem: ReplicaProblem, before: StandingReplicas, choose: _Chooser, spare: float, order: Sequence[int]
) -> tuple[Room, list[Shortage]]:
    room = Room(problem, spare)
    for slot in order:
        _keep_standing(problem, before, room, slot)
    missing: list[Shortage] = []
    for slot in order:
        while len(room.copies[slot]) < problem.slots[slot].degree - 1:
            host = choose(room, slot)
            if host is None:
                missing.append(room.find_shortage(slot))
                break
            room.put(slot, host)
    return room, missing


def _keep_standing(problem: ReplicaProblem, before: StandingReplicas, room: Room, slot: int) -> None:
    """Let replicas stand where they may; if there are too many, on the hosts that were named first."""
    wanted = problem.slots[slot]
    for name in before.get(wanted.slot, ()):
        host = problem.places.get(name)
        if len(room.copies[slot]) < wanted.degree - 1 and host is not None and room.can_stay(slot, host):
            room.put(slot, host)


def _find_chooser(placement: str, problem: ReplicaProblem, rng: np.random.Generator | None) -> _Chooser:
    match placement:
        case "mrp":
            return _choose_by_mrp
        case "whole-cluster":
            return _choose_from(_find_common_hosts(problem))
        case "random" if rng is not None:
            return _choose_by(rng)
        case "random":
            msg = "random placement draws hosts; give a generator as rng, such as numpy.random.default_rng(seed)"
            raise LoadError(msg)
    msg = f"there is no placement {placement!r}; {name_alternatives(placement, PLACEMENTS)}"
    raise LoadError(msg)


def _choose_by_mrp(room: Room, slot: int) -> int | None:
    fitting = room.find_fitting(slot)
    used = fitting & (room.replicas > 0)
    if used.any():
        return room.choose_least(slot, used)
    return room.choose_least(slot, fitting) if fitting.any() else None


def _choose_by(rng: np.random.Generator) -> _Chooser:
    def choose(room: Room, slot: int) -> int | None:
        places = np.flatnonzero(room.find_fitting(slot))
        return int(places[rng.integers(len(places))]) if len(places) else None

    return choose


def _choose_from(hosts: Sequence[int]) -> _Chooser:
    def choose(room: Room, slot: int) -> int | None:
        fitting = room.find_fitting(slot)
        return next((host for host in hosts if fitting[host]), None)

    return choose


def _find_common_hosts(problem: ReplicaProblem) -> tuple[int, ...]:
    """Return the hosts that hold replicas of everybody: as many as the highest degree, less one if none is a home.

    A slot whose home is among them uses the others.
    """
    degree = max((slot.degree for slot in problem.slots), default=1)
    rates = np.array([slot.replica_bytes_per_second for slot in problem.slots])
    delay = rates @ problem.network.latency_seconds[problem.homes] if len(rates) else np.zeros(len(problem.hosts))
    is_home = np.isin(np.arange(len(problem.hosts)), problem.homes)
    usable = [int(host) for host in np.lexsort((delay, is_home)) if not problem.hosts[host].is_leaving]
    return tuple(usable[: degree - 1 if not is_home[usable[: degree - 1]].any() else degree])


def _describe(
    problem: ReplicaProblem, before: StandingReplicas, room: Room, missing: Sequence[Shortage]
) -> ReplicaPlan:
    replicas = {slot.slot: list_names(problem, copies) for slot, copies in zip(problem.slots, room.copies, strict=True)}
    moves: list[ReplicaMove] = []
    drops: list[ReplicaDrop] = []
    for slot in problem.slots:
        had, has = before.get(slot.slot, ()), replicas[slot.slot]
        reason = _tell_reason(problem, slot.home, had)
        moves += [ReplicaMove(slot.slot, slot.home, host, slot.state_bytes, reason) for host in has if host not in had]
        drops += [
            ReplicaDrop(
                slot.slot, host, "the slot is at home there" if host == slot.home else "it stands elsewhere now"
            )
            for host in had
            if host in problem.places and host not in has
        ]
    in_use = int(((room.replicas > 0) | (room.primaries > 0)).sum())
    holding = int((room.replicas > 0).sum())
    told = f"{sum(map(len, replicas.values()))} replicas on {holding} of {len(problem.hosts)} hosts"
    if moves:
        told += f", {len(moves)} of them new"
    if missing:
        told += f"; {missing[0]}"
    return ReplicaPlan(replicas, tuple(moves), tuple(drops), tuple(missing), holding, in_use, room.delay_bytes, told)


def _tell_reason(problem: ReplicaProblem, home: str, had: Sequence[str]) -> str:
    gone = [host for host in had if host not in problem.places]
    if gone:
        return f"{gone[0]} is gone"
    leaving = [host for host in had if host in problem.places and problem.hosts[problem.places[host]].is_leaving]
    if leaving:
        return f"{leaving[0]} is leaving"
    if home in had:
        return f"the slot is at home on {home} now"
    return "a copy has no room where it was" if had else "it had no replica"
