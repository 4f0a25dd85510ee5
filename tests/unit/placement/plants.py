"""Flows as formulas: what a batch takes, by its rows, and how sizes follow when it is told to ``admit``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.placement.admission import AdmissionState, BatchTiming, admit, begin_admission, share_out


def _steady(_: int) -> float:
    return 1.0


def _one(_: int) -> int:
    return 1


@dataclass(frozen=True)
class Plant:
    """A flow whose batches take a fixed time and a time a row, and now and then more."""

    fixed_seconds: float = 0.3
    seconds_a_row: float = 1e-6
    noise: float = 0.2
    """A batch takes up to so much more or less, as a part."""
    sigma: float = 0.0
    """Of the logarithm of how many times as long a batch takes by chance, on a machine that others use."""
    overhead_share: float = 0.5
    """Of the fixed time, what is told of it."""
    slower: Callable[[int], float] = _steady
    """Batch → how many times as long it takes."""
    rows_per_second: Callable[[int], float] | None = None
    """Batch → rows that come in a second; None if there are always enough."""
    executors: Callable[[int], int] = _one
    """Batch → executors that share its rows."""


@dataclass(frozen=True)
class Batch:
    """One that was simulated."""

    rows: int
    seconds: float
    admitted: int


def simulate(plant: Plant, target_seconds: float, batches: int, seed: int = 0) -> tuple[list[Batch], AdmissionState]:
    """Return what batches have and take, one after the other, and what is known in the end."""
    chance = random.Random(seed)
    state = begin_admission(target_seconds)
    waiting, seconds, found = 0.0, 0.3, []
    for number in range(batches):
        admitted, offered = state.admitted.rows, None
        rows = admitted
        if plant.rows_per_second is not None:
            offered = plant.rows_per_second(number)
            waiting += offered * seconds
            rows = int(min(waiting, admitted))
            waiting -= rows
        noise = (1 + chance.uniform(-plant.noise, plant.noise)) * chance.lognormvariate(0.0, plant.sigma)
        rows_seconds = plant.seconds_a_row * rows / plant.executors(number)
        seconds = (plant.fixed_seconds + rows_seconds) * plant.slower(number) * noise
        overhead = plant.fixed_seconds * plant.overhead_share
        found.append(Batch(rows, seconds, admitted))
        state = share_out(state, plant.executors(max(0, number - 1)), plant.executors(number))
        state = admit(state, BatchTiming(rows, seconds, overhead, int(waiting), offered))
    return found, state
