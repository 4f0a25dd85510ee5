"""Slots on hosts while a placement is tried: what hosts are busy with, what crosses between them, how long a batch is.

The models are those of the paper on energy: a path costs what its slots compute and what is sent between hosts; what
stays on a host costs nothing. Levels of a batch follow one another, so the slowest host of each level counts.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.model.cluster import Homes, SlotId
from anabranch.model.energy import Energy
from anabranch.model.loads import LoadError
from anabranch.placement.energy.loads import FlowLoad, Host

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
_ENOUGH = 1e18
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """How full a host may be, by resource, as shares of what it has."""

    cpu: float = 0.9
    memory: float = 0.9
    network: float = 0.9

    @classmethod
    def of(cls, settings: Energy) -> Limits:
        """Return the limits that settings give."""
        return cls(settings.cpu_limit, settings.memory_limit, settings.network_limit)


@dataclass(frozen=True, slots=True)
class PathCosts:
    """The longest way through a batch, and how near each slot is to it."""

    seconds: float
    path: tuple[SlotId, ...]
    through: Mapping[SlotId, float]
    """By slot, the cost of the longest path that passes it."""


class Board:
    """Where slots are at the moment. Slots may be moved; loads and hosts stay."""

    def __init__(self, hosts: Sequence[Host], load: FlowLoad, homes: Homes) -> None:
        self.hosts = tuple(hosts)
        self.load = load
        self.factor = 1.0
        """How many times the load it is."""
        self.places = {host.id: place for place, host in enumerate(hosts)}
        self.slots = sorted(load.slots)
        self._rows = {slot: row for row, slot in enumerate(self.slots)}
        self._cores = np.array([max(1, host.cores) for host in hosts], np.float64)
        self._memory = np.array([host.memory_bytes or _ENOUGH for host in hosts], np.float64)
        self._bandwidth = np.array([host.bandwidth or _ENOUGH for host in hosts], np.float64)
        self._cpu = np.array([load.slots[slot].cpu_seconds for slot in self.slots], np.float64)
        self._held = np.array([load.slots[slot].memory_bytes for slot in self.slots], np.float64)
        self._level = np.array([slot[0] for slot in self.slots], np.int64)
        pairs = [(self._rows[a], self._rows[b], sent) for (a, b), sent in sorted(load.sent_bytes.items()) if sent > 0]
        self._senders = np.array([a for a, _, _ in pairs], np.int64)
        self._receivers = np.array([b for _, b, _ in pairs], np.int64)
        self._sent = np.array([sent for _, _, sent in pairs], np.float64)
        rows = len(self.slots)
        self._all_in = np.bincount(self._receivers, self._sent, rows)
        self._all_out = np.bincount(self._senders, self._sent, rows)
        self._peers = self._list_peers()
        self._put(homes)

    def _put(self, homes: Homes) -> None:
        strangers = sorted({str(homes.get(slot)) for slot in self.slots} - set(self.places))
        if strangers:
            msg = f"slots are at home on {', '.join(strangers)}; the hosts are {', '.join(self.places)}; "
            msg += "give every slot a home among the hosts before planning"
            raise LoadError(msg)
        self._home = np.array([self.places[homes[slot]] for slot in self.slots], np.int64)
        # By slot and host: what the slot gets from the host's slots, and what it sends them.
        self._in_from = np.zeros((len(self.slots), len(self.hosts)))
        self._out_to = np.zeros((len(self.slots), len(self.hosts)))
        np.add.at(self._in_from, (self._receivers, self._home[self._senders]), self._sent)
        np.add.at(self._out_to, (self._senders, self._home[self._receivers]), self._sent)
        self._paths: list[PathCosts] = []

    def rehomed(self, homes: Homes) -> Board:
        """Return another board with the same hosts and load, on which slots are elsewhere."""
        other = copy.copy(self)
        other._put(homes)
        return other

    def scaled(self, factor: float) -> Board:
        """Return a look at the same placement under so many times the rows; state stays as large as it is.

        It shares what this board has: whoever moves slots afterwards moves them on both.
        """
        other = copy.copy(self)
        other.factor = self.factor * factor
        return other

    @property
    def scaled_load(self) -> FlowLoad:
        """The load, as many times as this board looks at it."""
        return self.load if self.factor == 1 else self.load.scale(self.factor)

    @property
    def rows(self) -> float:
        """Rows of the window."""
        return self.load.rows * self.factor

    # -- what is where ---------------------------------------------------------------------------------------------

    @property
    def homes(self) -> dict[SlotId, str]:
        """Slot → host."""
        return {slot: self.hosts[place].id for slot, place in zip(self.slots, self._home.tolist(), strict=True)}

    def home(self, slot: SlotId) -> str:
        """Return the host of a slot."""
        return self.hosts[int(self._home[self._rows[slot]])].id

    def count_slots(self) -> NDArray[np.int64]:
        """Return how many slots each host has."""
        return np.bincount(self._home, minlength=len(self.hosts)).astype(np.int64)

    @property
    def used(self) -> tuple[str, ...]:
        """Hosts that have slots."""
        return tuple(host.id for host, slots in zip(self.hosts, self.count_slots().tolist(), strict=True) if slots)

    def parents(self, slot: SlotId) -> list[SlotId]:
        """Return the slots that send to a slot."""
        return [self.slots[sender] for sender in self._peers[self._rows[slot]][0].tolist()]

    def find_traffic(self, slot: SlotId) -> Floats:
        """Return what a slot sends to and gets from the slots of each host."""
        row = self._rows[slot]
        found: Floats = (self._in_from[row] + self._out_to[row]) * self.factor
        return found

    def _list_peers(self) -> list[tuple[NDArray[np.int64], Floats, NDArray[np.int64], Floats]]:
        """By slot: who sends to it and how much, whom it sends to and how much."""
        rows = range(len(self.slots))
        by_receiver = np.argsort(self._receivers, kind="stable")
        by_sender = np.argsort(self._senders, kind="stable")
        first_in = np.searchsorted(self._receivers[by_receiver], [*rows, len(self.slots)])
        first_out = np.searchsorted(self._senders[by_sender], [*rows, len(self.slots)])
        found = []
        for row in rows:
            come = by_receiver[first_in[row] : first_in[row + 1]]
            go = by_sender[first_out[row] : first_out[row + 1]]
            found.append((self._senders[come], self._sent[come], self._receivers[go], self._sent[go]))
        return found

    def move(self, slot: SlotId, host: str) -> None:
        """Put a slot on another host."""
        row, target = self._rows[slot], self.places[host]
        source = int(self._home[row])
        if source == target:
            return
        senders, come, receivers, go = self._peers[row]
        for table, peers, sent in ((self._out_to, senders, come), (self._in_from, receivers, go)):
            table[peers, source] -= sent
            table[peers, target] += sent
        self._home[row] = target
        self._paths.clear()

    # -- how full hosts are ----------------------------------------------------------------------------------------

    def cpu_shares(self) -> Floats:
        """Return the share of its processor time that slots take of each host."""
        busy = np.bincount(self._home, self._cpu, len(self.hosts)) * self.factor
        found: Floats = busy / (self._cores * self.load.seconds)
        return found

    def memory_shares(self) -> Floats:
        """Return the share of its memory that slots take of each host."""
        found: Floats = np.bincount(self._home, self._held, len(self.hosts)) / self._memory
        return found

    def network_shares(self) -> Floats:
        """Return how busy each host's network is, by what it sends or receives, whichever is more."""
        come, go = self._crossing()
        found: Floats = np.maximum(come, go) / (self._bandwidth * self.load.seconds)
        return found

    def _crossing(self) -> tuple[Floats, Floats]:
        """Return what each host receives from others, and what it sends to others."""
        rows, count = np.arange(len(self.slots)), len(self.hosts)
        come = np.bincount(self._home, self._all_in - self._in_from[rows, self._home], count)
        go = np.bincount(self._home, self._all_out - self._out_to[rows, self._home], count)
        return np.maximum(come, 0.0) * self.factor, np.maximum(go, 0.0) * self.factor

    @property
    def crossing_bytes(self) -> float:
        """What slots sent to slots of other hosts in the window."""
        return float(self._crossing()[0].sum())

    def find_extreme(self, limits: Limits) -> Flags:
        """Return which hosts are at a limit of any resource: nothing may come there."""
        found: Flags = (
            (self.cpu_shares() >= limits.cpu - _ROUNDING)
            | (self.memory_shares() >= limits.memory - _ROUNDING)
            | (self.network_shares() >= limits.network - _ROUNDING)
        )
        return found

    def is_within(self, limits: Limits) -> bool:
        """Say whether no host is above a limit."""
        return bool(
            (self.cpu_shares() <= limits.cpu + _ROUNDING).all()
            and (self.memory_shares() <= limits.memory + _ROUNDING).all()
            and (self.network_shares() <= limits.network + _ROUNDING).all()
        )

    def find_admitting(self, slot: SlotId, limits: Limits) -> Flags:
        """Return which hosts may take a slot: all three resources are looked at before anything is promised.

        A host that has the slot does not take it again. What the slot's own host sends and receives may rise when the
        slot leaves slots that it talks to; that must stay within the limit, too.
        """
        row, seconds = self._rows[slot], self.load.seconds
        source = int(self._home[row])
        cpu = self.cpu_shares() + self._cpu[row] * self.factor / (self._cores * seconds)
        memory = self.memory_shares() + self._held[row] / self._memory
        come, go = self._crossing()
        # What passes between the slot and a host's slots stays within the host once the slot is there.
        within = self.find_traffic(slot)
        all_in, all_out = self._all_in[row] * self.factor, self._all_out[row] * self.factor
        room = self._bandwidth * seconds
        busy = np.maximum(come + all_in - within, go + all_out - within) / room
        left = float(max(come[source] - all_in + within[source], go[source] - all_out + within[source]) / room[source])
        before = float(max(come[source], go[source]) / room[source])
        found: Flags = (
            ~self.find_extreme(limits)
            & (cpu <= limits.cpu + _ROUNDING)
            & (memory <= limits.memory + _ROUNDING)
            & (busy <= limits.network + _ROUNDING)
        )
        found[source] = False
        if left > limits.network + _ROUNDING and left > before + _ROUNDING:
            found[:] = False
        return found

    # -- how long it takes -----------------------------------------------------------------------------------------

    def batch_seconds(self, speeds: Mapping[str, float] | None = None) -> float:
        """Return how long a batch takes: of each level the slowest host.

        On a host some slots compute while others receive, so it takes as long as its cores or its network do, or as
        one slot that first receives and then computes. ``speeds`` are shares of the full clock rate, of hosts that run
        slower.
        """
        per_batch = self.factor / self.load.batches
        clock = np.array([(speeds or {}).get(host.id, 1.0) for host in self.hosts])
        count, total = len(self.hosts), 0.0
        received = (self._all_in - self._in_from[np.arange(len(self.slots)), self._home]) / self._bandwidth[self._home]
        computed = self._cpu / clock[self._home]
        for level in sorted(set(self._level.tolist())):
            mine = self._level == level
            homes = self._home[mine]
            cores = np.bincount(homes, computed[mine], count) / self._cores
            network = np.bincount(homes, received[mine], count)
            longest = float((computed[mine] + received[mine]).max())
            total += max(float(np.maximum(cores, network).max()), longest) * per_batch + self.load.level_seconds
        return total

    def latency_seconds(self, speeds: Mapping[str, float] | None = None) -> float:
        """Return how long after it came a row is in the results at the latest: it waits for a batch, which runs.

        Batches that take longer than the time between two never catch up: there is no such time then. Where batches
        follow one another, a batch has the rows that came during the one before, and is as long as makes that so.
        """
        batch = self.batch_seconds(speeds)
        if self.load.trigger_seconds == 0:
            fixed = self.load.levels * self.load.level_seconds
            busy = (batch - fixed) / self.load.interval_seconds
            return 2 * fixed / (1 - busy) if busy < 1 else float("inf")
        return self.load.interval_seconds + batch if batch <= self.load.interval_seconds else float("inf")

    def find_paths(self) -> PathCosts:
        """Return the critical path: slots by what they compute, and what each sends the next one on another host."""
        if not self._paths:
            self._paths.append(self._measure_paths())
        found = self._paths[0]
        if self.factor == 1:
            return found
        through = {slot: cost * self.factor for slot, cost in found.through.items()}
        return PathCosts(found.seconds * self.factor, found.path, through)

    def _measure_paths(self) -> PathCosts:
        per_batch = 1 / self.load.batches
        own = self._cpu * per_batch
        remote = self._home[self._senders] != self._home[self._receivers]
        slower = np.minimum(self._bandwidth[self._home[self._senders]], self._bandwidth[self._home[self._receivers]])
        edges = np.where(remote, self._sent / slower, 0.0) * per_batch
        heads, tails = own.copy(), own.copy()
        levels = sorted(set(self._level.tolist()))
        # A level after the other: all that leads to a slot is known when its turn comes.
        for level in levels:
            into = np.flatnonzero(self._level[self._receivers] == level)
            senders, receivers = self._senders[into], self._receivers[into]
            np.maximum.at(heads, receivers, heads[senders] + edges[into] + own[receivers])
        for level in reversed(levels):
            out = np.flatnonzero(self._level[self._senders] == level)
            senders, receivers = self._senders[out], self._receivers[out]
            np.maximum.at(tails, senders, tails[receivers] + edges[out] + own[senders])
        row = int(heads.argmax())
        path = [row]
        while (into := np.flatnonzero(self._receivers == path[-1])).size:
            senders = self._senders[into]
            path.append(int(senders[(heads[senders] + edges[into]).argmax()]))
        return PathCosts(
            seconds=float(heads[row]),
            path=tuple(self.slots[row] for row in reversed(path)),
            through=dict(zip(self.slots, (heads + tails - own).tolist(), strict=True)),
        )
