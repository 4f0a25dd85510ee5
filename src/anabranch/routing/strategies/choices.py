"""Strategies that split rows: PKG, D-Choices and W-Choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import check_option, strategy
from anabranch.routing.strategies.splitters import ChoiceSplitter

HEAD_THRESHOLD_OF_FAIR_SHARE = 0.2
"""A key is of the head if it has more than this part of a slot's fair share of the rows: 1/(5n) of all."""

IMBALANCE_ALLOWED = 1e-4
"""How much of all rows the fullest slot may have above its fair share before D-Choices takes a choice more."""


@strategy("pkg")
@dataclass(frozen=True, slots=True)
class PartialKeyGrouping:
    """Two slots for every key: even until the hottest key has more rows than two slots should get."""

    splits_keys: ClassVar[bool] = True
    looks_at_keys: ClassVar[bool] = False

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return Routes(current.base, splitter=ChoiceSplitter(current.slots))


@strategy("d-choices")
@dataclass(frozen=True, slots=True)
class DChoices:
    """Two slots for keys of the tail, and for the head as few more as the sample's frequencies ask for."""

    threshold: float = HEAD_THRESHOLD_OF_FAIR_SHARE
    splits_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_option("threshold", self.threshold, float)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        head, frequencies = find_head(sample, current.slots, self.threshold)
        choices = needed_choices(frequencies, current.slots)
        return Routes(current.base, splitter=_with_head(current.slots, head, choices))


@strategy("w-choices")
@dataclass(frozen=True, slots=True)
class WChoices:
    """Two slots for keys of the tail, and all slots for the head: even, and dearest to merge."""

    threshold: float = HEAD_THRESHOLD_OF_FAIR_SHARE
    splits_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_option("threshold", self.threshold, float)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        head, _ = find_head(sample, current.slots, self.threshold)
        return Routes(current.base, splitter=_with_head(current.slots, head, current.slots))


def find_head(
    sample: KeySample, slots: int, threshold: float = HEAD_THRESHOLD_OF_FAIR_SHARE
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Return the keys with more than ``threshold`` of a slot's fair share of the rows, and their parts of all rows."""
    frequencies = sample.counts / max(sample.counts.sum(), 1e-300)
    hot = frequencies > threshold / slots
    return sample.keys[hot], frequencies[hot]


def needed_choices(frequencies: NDArray[np.float64], slots: int) -> int:
    """Return the smallest number of choices for head keys with which no slot is expected to be too full.

    ``frequencies`` are the head keys' parts of all rows. For the h hottest keys, whatever h, the b slots that their
    choices are expected to reach must hold them, and all other rows whose choices happen to lie among these b:
    p₁ + … + pₕ + (b/n)ᵈ · rest of the head + (b/n)² · tail ≤ b · (1/n + ε), with b = n − n·((n − 1)/n)^(h·d).
    """
    if not len(frequencies) or slots <= 2:
        return 2
    hottest_first = np.sort(frequencies)[::-1]
    prefix = np.cumsum(hottest_first)
    rest = prefix[-1] - prefix
    tail = max(1 - prefix[-1], 0.0)
    keys = np.arange(1, len(frequencies) + 1)
    # A key of frequency p needs at least p·n slots, whatever the others do.
    for choices in range(max(2, int(np.ceil(hottest_first[0] * slots))), slots):
        reached = slots - slots * ((slots - 1) / slots) ** (keys * choices)
        inside = reached / slots
        if np.all(prefix + inside**choices * rest + inside**2 * tail <= reached * (1 / slots + IMBALANCE_ALLOWED)):
            return choices
    return slots


def _with_head(slots: int, head: NDArray[np.uint64], choices: int) -> ChoiceSplitter:
    return ChoiceSplitter(slots, tuple(head.tolist()), max(2, choices))
