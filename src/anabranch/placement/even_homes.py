"""Policies that say where slots are at home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from anabranch.model.cluster import Executor, HomeChoice, Homes, SlotId


def spread_evenly(
    slots: Sequence[SlotId], executors: Sequence[Executor], loads: Mapping[SlotId, float], before: Homes
) -> HomeChoice:
    """Give every executor as many slots of each level as any other, one more or less; loads do not matter.

    A slot stays where it is unless its executor has two more of its level than another. Among executors that have
    equally few, one on a host with fewer slots comes first, then one with fewer slots of all levels.
    """
    filled = _Filled(executors)
    homes: dict[SlotId, str] = {}
    for slot, executor in before.items():
        if slot not in slots:
            filled.add(slot, executor)
    for slot in sorted(slots):
        if slot in before:
            homes[slot] = filled.add(slot, before[slot])
    for slot in sorted(slots):
        if slot not in homes:
            homes[slot] = filled.add(slot, filled.emptiest(slot[0]))
    # Highest slots first, which came last.
    for slot in sorted(slots, reverse=True):
        level, target = slot[0], filled.emptiest(slot[0])
        if filled.by_level[level, homes[slot]] - filled.by_level[level, target] >= 2:
            filled.add(slot, homes[slot], -1)
            homes[slot] = filled.add(slot, target)
    hosts = len({executor.host for executor in executors})
    among = f"{len(executors)} executor{'s' if len(executors) != 1 else ''} on {hosts} host{'s' if hosts != 1 else ''}"
    return HomeChoice(homes, f"spread evenly over {among}")


class _Filled:
    """How many slots executors and hosts have."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self._host_of = {executor.id: executor.host for executor in executors}
        self.by_level: Counter[tuple[int, str]] = Counter()
        self._by_host: Counter[tuple[int, str]] = Counter()
        self._in_all: Counter[str] = Counter()

    def add(self, slot: SlotId, executor: str, count: int = 1) -> str:
        self.by_level[slot[0], executor] += count
        self._by_host[slot[0], self._host_of[executor]] += count
        self._in_all[executor] += count
        return executor

    def emptiest(self, level: int) -> str:
        # Ties by the order in which executors are given: equal inputs must give equal homes.
        return min(
            self._host_of,
            key=lambda id: (self.by_level[level, id], self._by_host[level, self._host_of[id]], self._in_all[id]),
        )
