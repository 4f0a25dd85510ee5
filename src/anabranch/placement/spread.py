"""Slots on executors while their homes are planned: how even that is, and which step makes it more so."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch.model.cluster import Executor, Homes, SlotId, SlotLoad

Floats = NDArray[np.float64]
_Step = tuple[tuple[SlotId, str], ...]
_ENOUGH_BYTES = 1 << 62
_NO_GAIN = 1e-9
"""Less is rounding; steps that gain nothing could go on for ever."""


class Spread:
    """Where slots are at the moment. What it says depends on that alone, and not on how they came there."""

    def __init__(
        self, executors: Sequence[Executor], loads: Mapping[SlotId, SlotLoad], fixed: Collection[SlotId]
    ) -> None:
        self._loads = loads
        self._fixed = frozenset(fixed)
        self._ids = [executor.id for executor in executors]
        self.places = {id: place for place, id in enumerate(self._ids)}
        hosts = [executor.host for executor in executors]
        self._host_of = np.array([hosts.index(host) for host in hosts])
        self._cores = np.array([max(1, executor.cores) for executor in executors], np.float64)
        # Where nobody knows how much there is, there is enough.
        self._memory = np.array([executor.memory_bytes or _ENOUGH_BYTES for executor in executors], np.int64)
        self.homes: dict[SlotId, str] = {}
        self._on: list[set[SlotId]] = [set() for _ in executors]
        self._levels = sorted({level for level, _ in loads})
        self._rows = {level: row for row, level in enumerate(self._levels)}
        self._level: Floats = np.zeros((len(self._levels), len(executors)))
        self._total: Floats = np.zeros(len(executors))
        self._held: NDArray[np.int64] = np.zeros(len(executors), np.int64)
        of_level = [[load.cpu_seconds for (of, _), load in loads.items() if of == level] for level in self._levels]
        self._level_means = np.array([sum(seconds) for seconds in of_level]) / self._cores.sum()
        self._mean = float(self._level_means.sum())
        # No spread can be better than this: slots are not cut.
        largest = np.array([max(seconds) for seconds in of_level]) / self._cores.max()
        self._best_levels = float(np.maximum(self._level_means, largest).sum())
        self._best_total = max([self._mean, *largest.tolist()])

    # -- how even it is --------------------------------------------------------------------------------------------

    @property
    def cpu_seconds(self) -> dict[str, float]:
        return dict(zip(self._ids, self._total.tolist(), strict=True))

    @property
    def max_over_mean(self) -> float:
        return float((self._total / self._cores).max()) / self._mean if self._mean else 1.0

    @property
    def level_max_over_mean(self) -> dict[int, float]:
        return {
            level: float((loads / self._cores).max() / mean) if mean else 1.0
            for level, loads, mean in zip(self._levels, self._level, self._level_means, strict=True)
        }

    def describe_busiest(self) -> str:
        """Return who has most processor time for its cores, in words."""
        if not self._mean:
            return "there is no load"
        busiest = int((self._total / self._cores).argmax())
        return f"{self._ids[busiest]}, the busiest, has {self.max_over_mean:.2f} × its share"

    def needs_moves(self, limit: float) -> bool:
        """Say whether an executor is above the limit, short of memory, or has nothing while another has several."""
        return self._excess_bytes() > 0 or self._leaves_idle() or not self._is_even(limit)

    def _is_even(self, limit: float) -> bool:
        by_level = float((self._level / self._cores).max(axis=1).sum())
        in_all = float((self._total / self._cores).max())
        return by_level <= limit * self._best_levels and in_all <= limit * self._best_total

    def _leaves_idle(self) -> bool:
        if self._total.all():
            return False
        # A slot that costs nothing makes nobody busy.
        busy = [{slot for slot in on if self._loads[slot].cpu_seconds > 0} for on in self._on]
        return any(len(on) > 1 and on - self._fixed for on in busy)

    def _excess_bytes(self) -> int:
        return int(np.maximum(0, self._held - self._memory).sum())

    def _cost(self) -> float:
        """Return how uneven it is: 4 if it is as even as can be.

        Beside the two maxima, squares count: they tell a step towards evenness where several are equally busy.
        """
        by_level = (self._level / self._cores).max(axis=1).sum() / self._best_levels
        in_all = (self._total / self._cores).max() / self._best_total
        in_squares = (self._total**2 / self._cores).sum() / self._ideal_square
        in_squares += ((self._level**2 / self._cores).sum(axis=1) / self._ideal_level_squares).sum()
        return float(by_level + in_all + in_squares)

    @property
    def _ideal_square(self) -> float:
        return float(self._mean**2 * self._cores.sum())

    @property
    def _ideal_level_squares(self) -> Floats:
        """What the squares of a level are if it is even, over the part that the level has of everything."""
        # A level without load has squares of 0.
        ideal: Floats = np.maximum(self._level_means, _NO_GAIN * self._mean) * self._mean * self._cores.sum()
        return ideal

    # -- how it is made --------------------------------------------------------------------------------------------

    def put(self, slot: SlotId, home: str) -> None:
        """Put a slot on an executor, and take it from where it was."""
        if slot in self.homes:
            left = self.places[self.homes[slot]]
            self._on[left].discard(slot)
            self._count(left, slot[0])
        self.homes[slot] = home
        self._on[self.places[home]].add(slot)
        self._count(self.places[home], slot[0])

    def _count(self, place: int, level: int) -> None:
        # Added up anew in one order: to take away what was added leaves rounding, and equal homes must be equal.
        slots = sorted(self._on[place])
        self._level[self._rows[level], place] = sum(self._loads[one].cpu_seconds for one in slots if one[0] == level)
        self._total[place] = self._level[:, place].sum()
        self._held[place] = sum(self._loads[one].memory_bytes for one in slots)

    def find_place(self, slot: SlotId) -> str:
        """Return where a slot without a home does least harm: it fits, and little is done, in its level and in all.

        Among equals it is one whose host does least for the level.
        """
        row, load = self._rows[slot[0]], self._loads[slot]
        excess = np.maximum(0, self._held + load.memory_bytes - self._memory)
        of_level = (self._level[row] + load.cpu_seconds) / self._cores / (self._level_means[row] or 1.0)
        in_all = (self._total + load.cpu_seconds) / self._cores / (self._mean or 1.0)
        on_host = np.bincount(self._host_of, self._level[row])[self._host_of]
        return self._ids[int(np.lexsort((on_host, of_level + in_all, excess))[0])]

    def even_out(self, limit: float, smallest_improvement: float, free: Collection[SlotId]) -> None:
        """Move slots, or swap two, until all are within the limit or nothing is gained; each step the best one.

        A step counts if the busier of its two executors gets less to do by ``smallest_improvement`` or more, as a part
        of what an executor has to do in the mean: in all, or level by level and added up.
        """
        typical = max(1.0, sum(load.state_bytes for load in self._loads.values()) / len(self._loads))
        prices = {slot: 0.0 if slot in free else 1 + load.state_bytes / typical for slot, load in self._loads.items()}
        while self.needs_moves(limit):
            step = self._find_move(smallest_improvement, prices) or self._find_swap(smallest_improvement, prices)
            if step is None:
                return
            for slot, home in step:
                self.put(slot, home)

    def undo_needless(self, started: Homes, limit: float, free: Collection[SlotId]) -> None:
        """Let slots stay after all whose move turns out not to be needed, those with most state first."""
        by_state = sorted(started.keys() - set(free), key=lambda slot: (-self._loads[slot].state_bytes, slot))
        before: dict[SlotId, str] = {}
        # One that goes back may make another needless.
        while before != self.homes:
            before = dict(self.homes)
            self._undo_once(by_state, started, limit)

    def _undo_once(self, slots: Sequence[SlotId], started: Homes, limit: float) -> None:
        for slot in slots:
            target = self.homes[slot]
            if target == started[slot]:
                continue
            # Where slots do not allow to be within the limit, what was reached counts.
            cost, excess, was_idle = self._cost(), self._excess_bytes(), self._leaves_idle()
            self.put(slot, started[slot])
            is_worse = self._excess_bytes() > excess or (self._leaves_idle() and not was_idle)
            if is_worse or (not self._is_even(limit) and self._cost() > cost):
                self.put(slot, target)

    def _find_move(self, smallest_improvement: float, prices: Mapping[SlotId, float]) -> _Step | None:
        """Return the move of a slot that gains most for the state that it moves."""
        best: tuple[float, float] = (0.0, 0.0)
        found: _Step | None = None
        everyone = np.arange(len(self._ids))
        for source in self._list_sources():
            targets = everyone[everyone != source]
            for slot in sorted(self._on[source] - self._fixed) if targets.size else ():
                load = self._loads[slot]
                shifts = {self._rows[slot[0]]: np.full(len(targets), load.cpu_seconds)}
                memory = np.full(len(targets), load.memory_bytes)
                worth, place = self._weigh(source, targets, shifts, memory, smallest_improvement, 1 + prices[slot])
                if worth > best:
                    best, found = worth, ((slot, self._ids[int(targets[place])]),)
        return found

    def _find_swap(self, smallest_improvement: float, prices: Mapping[SlotId, float]) -> _Step | None:
        """Return the best swap of two slots; in a level, it does to executors what a move of their difference would."""
        best: tuple[float, float] = (0.0, 0.0)
        found: _Step | None = None
        for source in self._list_sources():
            elsewhere = [
                slot
                for slot, home in sorted(self.homes.items())
                if home != self._ids[source] and slot not in self._fixed
            ]
            for slot, level in itertools.product(sorted(self._on[source] - self._fixed), self._levels):
                others = [other for other in elsewhere if other[0] == level]
                if not others:
                    continue
                load = self._loads[slot]
                come = np.array([self._loads[other].cpu_seconds for other in others])
                if level == slot[0]:
                    shifts = {self._rows[level]: load.cpu_seconds - come}
                else:
                    shifts = {self._rows[slot[0]]: np.full(len(others), load.cpu_seconds), self._rows[level]: -come}
                memory = np.array([load.memory_bytes - self._loads[other].memory_bytes for other in others], np.int64)
                targets = np.array([self.places[self.homes[other]] for other in others])
                price = 1 + prices[slot] + np.array([prices[other] for other in others])
                worth, place = self._weigh(source, targets, shifts, memory, smallest_improvement, price)
                if worth > best:
                    other = others[place]
                    best, found = worth, ((slot, self.homes[other]), (other, self._ids[source]))
        return found

    def _list_sources(self) -> list[int]:
        """Return the executors that are busiest, in a level or in all, or short of memory."""
        busiest = {int((loads / self._cores).argmax()) for loads in (self._total, *self._level)}
        return sorted(busiest | set(np.flatnonzero(self._held > self._memory).tolist()))

    def _weigh(
        self,
        source: int,
        targets: NDArray[np.int64],
        shifts: Mapping[int, Floats],
        memory: NDArray[np.int64],
        smallest_improvement: float,
        price: float | Floats,
    ) -> tuple[tuple[float, float], int]:
        """Return what the best of several shifts of load is worth (memory first, then evenness), and which it is.

        ``shifts`` has the processor time that goes from the source to each target, for each row of levels that changes.
        """
        freed = self._count_freed(source, targets, memory)
        shifted: Floats = np.sum([*shifts.values()], axis=0)
        gain = self._gain(self._total, source, targets, shifted, self._best_total, self._ideal_square)
        in_all, by_level = self._relieve(self._total, source, targets, shifted), np.zeros(len(targets))
        for row, cpu in shifts.items():
            ideal = float(self._ideal_level_squares[row])
            gain = gain + self._gain(self._level[row], source, targets, cpu, self._best_levels, ideal)
            by_level = by_level + self._relieve(self._level[row], source, targets, cpu)
        is_worth_it = np.maximum(in_all, by_level) >= smallest_improvement * self._mean * (1 - _NO_GAIN)
        allowed = (freed > 0) | ((freed == 0) & (gain >= _NO_GAIN) & is_worth_it)
        if not allowed.any():
            return (0.0, 0.0), 0
        worth_freed, worth_gain = np.where(allowed, freed / price, -np.inf), np.where(allowed, gain / price, -np.inf)
        place = int(np.lexsort((-worth_gain, -worth_freed))[0])
        return (float(worth_freed[place]), float(worth_gain[place])), place

    def _count_freed(self, source: int, targets: NDArray[np.int64], memory: NDArray[np.int64]) -> NDArray[np.int64]:
        excess = np.maximum(0, self._held - self._memory)
        after_source = np.maximum(0, self._held[source] - memory - self._memory[source])
        after_target = np.maximum(0, self._held[targets] + memory - self._memory[targets])
        freed: NDArray[np.int64] = excess[source] + excess[targets] - after_source - after_target
        return freed

    def _relieve(self, loads: Floats, source: int, targets: NDArray[np.int64], cpu: Floats) -> Floats:
        """Return by how much the busier one of the source and each target gets less to do, in seconds of a core."""
        before = np.maximum(loads[source] / self._cores[source], loads[targets] / self._cores[targets])
        left, come = (loads[source] - cpu) / self._cores[source], (loads[targets] + cpu) / self._cores[targets]
        relief: Floats = before - np.maximum(left, come)
        return relief

    def _gain(
        self,
        loads: Floats,
        source: int,
        targets: NDArray[np.int64],
        cpu: Floats,
        best: float,
        ideal_square: float,
    ) -> Floats:
        """Return how much more even loads would be after each shift: as a maximum, and in squares."""
        others = loads / self._cores
        before = others.max()
        others[source] = -1.0
        first = int(others.argmax())
        most = others[first]
        others[first] = -1.0
        rest = np.where(targets == first, others.max(), most)
        left, come = loads[source] - cpu, loads[targets] + cpu
        after = np.maximum(rest, np.maximum(left / self._cores[source], come / self._cores[targets]))
        squares = (left**2 - loads[source] ** 2) / self._cores[source]
        squares = squares + (come**2 - loads[targets] ** 2) / self._cores[targets]
        gain: Floats = (before - after) / best - squares / ideal_square
        return gain
