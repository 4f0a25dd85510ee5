"""What is left of hosts while replicas are put on them, and what it would cost to put one more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.placement.replicas.plan import Nearest, Shortage
from anabranch.placement.replicas.problem import Floats, ReplicaProblem

_ROUNDING = 1e-9


class Room:
    """Hosts with the slots that are at home there, and the replicas that were put so far.

    A replica takes memory on its host, and bandwidth there and at its slot's home, which sends it what changes.
    """

    def __init__(self, problem: ReplicaProblem, spare: float = 0.0) -> None:
        self.problem = problem
        hosts, slots = problem.hosts, problem.slots
        self._latency = problem.network.latency_seconds
        self._state = np.array([slot.state_bytes for slot in slots], np.float64)
        self._rate = np.array([slot.replica_bytes_per_second for slot in slots], np.float64)
        self._memory = np.array([host.memory_bytes for host in hosts], np.float64)
        self._bandwidth = np.array([host.bandwidth_bytes_per_second for host in hosts], np.float64)
        # What new replicas may fill; those that stand may fill all.
        self._memory_for_new = self._memory * (1 - spare)
        self._bandwidth_for_new = self._bandwidth * (1 - spare)
        at_home = np.bincount(problem.homes, minlength=len(hosts))
        self.primaries: NDArray[np.int64] = at_home.astype(np.int64)
        self._used_memory = np.bincount(problem.homes, self._state, len(hosts)).astype(np.float64)
        self._used_bandwidth: Floats = problem.traffic.astype(np.float64, copy=True)
        self.replicas: NDArray[np.int64] = np.zeros(len(hosts), np.int64)
        self._open = np.array([not host.is_leaving for host in hosts], np.bool_)
        copies = np.array([slot.degree - 1 for slot in slots], np.float64)
        # A home will send as many replicas as its slots want; one without a place is as far as hosts are in the mean.
        # Without this, the first replicas go to homes, which must then send their own elsewhere: more hosts, more sets.
        self._to_come = np.bincount(problem.homes, copies * self._rate, len(hosts)) * problem.mean_latency
        self._sent: Floats = np.zeros(len(hosts))
        self._held: Floats = np.zeros(len(hosts))
        self.copies: list[list[int]] = [[] for _ in slots]
        """By slot, the places of the hosts with its replicas."""

    def put(self, slot: int, host: int) -> None:
        """Put a replica of a slot on a host."""
        home, rate = int(self.problem.homes[slot]), float(self._rate[slot])
        delay = rate * float(self._latency[home, host])
        self.copies[slot].append(host)
        self.replicas[host] += 1
        self._used_memory[host] += self._state[slot]
        self._used_bandwidth[host] += rate
        self._used_bandwidth[home] += rate
        self._held[host] += delay
        self._sent[home] += delay
        self._to_come[home] = max(0.0, self._to_come[home] - rate * float(self.problem.mean_latency[home]))

    def measure(self, slot: int) -> Floats:
        """Return by host the paper's measure of delay, were a replica of the slot put there.

        That is the bytes that are on their way at any time: of replicas that the host's own slots send, and of those
        that it holds, the new one included.
        """
        new = self._rate[slot] * self._latency[int(self.problem.homes[slot])]
        measure: Floats = self._sent + self._to_come + self._held + new
        return measure

    def find_fitting(self, slot: int) -> NDArray[np.bool_]:
        """Return on which hosts a new replica of the slot may be put."""
        home, rate = int(self.problem.homes[slot]), self._rate[slot]
        if not self._has_room(self._used_bandwidth[home] + rate, self._bandwidth_for_new[home]):
            return np.zeros(len(self._open), np.bool_)
        fits = self._open & self._has_room(self._used_memory + self._state[slot], self._memory_for_new)
        fits &= self._has_room(self._used_bandwidth + rate, self._bandwidth_for_new)
        fits[home] = False
        fits[self.copies[slot]] = False
        return fits

    def can_stay(self, slot: int, host: int) -> bool:
        """Say whether a replica that stands on a host may go on standing there; it may take what is kept free, too."""
        home, rate = int(self.problem.homes[slot]), self._rate[slot]
        return bool(
            self._open[host]
            and host != home
            and host not in self.copies[slot]
            and self._has_room(self._used_memory[host] + self._state[slot], self._memory[host])
            and self._has_room(self._used_bandwidth[host] + rate, self._bandwidth[host])
            and self._has_room(self._used_bandwidth[home] + rate, self._bandwidth[home])
        )

    def _has_room(self, used: Floats | np.float64, limit: Floats | np.float64) -> NDArray[np.bool_]:
        return np.asarray(used <= limit * (1 + _ROUNDING))

    def choose_least(self, slot: int, among: NDArray[np.bool_]) -> int:
        """Return the host with the least measure; of equals one with fewest slots, then the nearest, then the first."""
        places = np.flatnonzero(among)
        measure = self.measure(slot)[places]
        least = places[measure <= measure.min() * (1 + _ROUNDING)]
        if len(least) > 1:
            near = self._latency[int(self.problem.homes[slot])][least]
            least = least[np.lexsort((near, self.primaries[least]))]
        return int(least[0])

    @property
    def delay_bytes(self) -> float:
        """What the plan is to make small besides hosts: bytes of replicas on their way at any time."""
        return float(self._held.sum())

    def find_shortage(self, slot: int) -> Shortage:
        """Return why no host can take one more replica of a slot."""
        wanted = self.problem.slots[slot]
        home = int(self.problem.homes[slot])
        others = self._open.copy()
        others[[home, *self.copies[slot]]] = False
        free_memory = np.maximum(0.0, self._memory_for_new - self._used_memory)
        free_bandwidth = np.maximum(0.0, self._bandwidth_for_new - self._used_bandwidth)
        no_memory = others & (free_memory * (1 + _ROUNDING) < self._state[slot])
        no_bandwidth = others & (free_bandwidth * (1 + _ROUNDING) < self._rate[slot])
        home_free = float(free_bandwidth[home])
        return Shortage(
            slot=wanted.slot,
            home=wanted.home,
            degree=wanted.degree,
            copies=1 + len(self.copies[slot]),
            state_bytes=wanted.state_bytes,
            replica_bytes_per_second=wanted.replica_bytes_per_second,
            hosts=len(self._open),
            leaving=int((~self._open).sum()),
            short_of_memory=int(no_memory.sum()),
            short_of_bandwidth=int((no_bandwidth & ~no_memory).sum()),
            most_memory=self._find_nearest(no_memory, free_memory),
            most_bandwidth=self._find_nearest(no_bandwidth & ~no_memory, free_bandwidth),
            home_bandwidth=home_free if home_free * (1 + _ROUNDING) < self._rate[slot] else None,
        )

    def _find_nearest(self, among: NDArray[np.bool_], free: Floats) -> Nearest | None:
        if not among.any():
            return None
        place = int(np.where(among, free, -1.0).argmax())
        return Nearest(self.problem.hosts[place].name, float(free[place]))
