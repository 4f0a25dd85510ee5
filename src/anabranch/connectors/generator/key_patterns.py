"""How often each key of a generated stream comes: uniform, zipf, or a hot spot that moves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch.errors import FlowError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class KeyPattern(Protocol):
    """Draws keys as a pure function of two uniform numbers a row and the seconds since the stream began."""

    @property
    def label(self) -> str: ...

    def draw(self, first: Floats, second: Floats, seconds: Floats) -> Ints:
        """Return a key in [0, keys) for every row; ``first`` and ``second`` are uniform in [0, 1)."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every key equally often."""

    keys: int

    @property
    def label(self) -> str:
        """Name the pattern and the number of keys."""
        return f"uniform over {self.keys} keys"

    def draw(self, first: Floats, second: Floats, seconds: Floats) -> Ints:
        """Return a key for every row."""
        return np.minimum((first * self.keys).astype(np.int64), self.keys - 1)


@dataclass(frozen=True, slots=True)
class Zipf:
    """Key k comes in proportion to 1 / (k + 1) ** exponent: key 0 is the hottest."""

    keys: int
    exponent: float

    @property
    def label(self) -> str:
        """Name the pattern, the number of keys and the exponent."""
        return f"zipf({self.exponent:g}) over {self.keys} keys"

    def draw(self, first: Floats, second: Floats, seconds: Floats) -> Ints:
        """Return a key for every row."""
        return np.minimum(np.searchsorted(_zipf_shares(self.keys, self.exponent), first, side="right"), self.keys - 1)


@dataclass(frozen=True, slots=True)
class MovingNormal:
    """A normal distribution over the keys whose mean goes from one key to another and back, once a period."""

    keys: int
    mean_from: float
    mean_to: float
    sigma: float
    period_seconds: float

    @property
    def label(self) -> str:
        """Name the pattern and the way of its mean."""
        return (
            f"normal over {self.keys} keys, mean {self.mean_from:g} → {self.mean_to:g} "
            f"and back in {self.period_seconds:g} s, sigma {self.sigma:g}"
        )

    def draw(self, first: Floats, second: Floats, seconds: Floats) -> Ints:
        """Return a key for every row; what falls off one end comes in at the other."""
        phase = np.mod(seconds / self.period_seconds, 1.0)
        way = 1.0 - np.abs(1.0 - 2.0 * phase)
        mean = self.mean_from + (self.mean_to - self.mean_from) * way
        return np.mod(np.rint(mean + self.sigma * draw_normal(first, second)), self.keys).astype(np.int64)


def uniform(keys: int) -> Uniform:
    """Draw every key equally often.

    Examples:
        >>> ab.uniform(1_000).label
        'uniform over 1000 keys'
    """
    return Uniform(_check_keys(keys))


def zipf(keys: int, exponent: float = 1.0) -> Zipf:
    """Draw key k in proportion to 1 / (k + 1) ** exponent; the larger the exponent, the hotter key 0.

    Examples:
        >>> ab.zipf(1_000, exponent=1.5).label
        'zipf(1.5) over 1000 keys'
    """
    if exponent < 0:
        msg = f"the zipf exponent is {exponent}; use 0 (uniform) or more, usually between 0.5 and 2"
        raise FlowError(msg)
    return Zipf(_check_keys(keys), float(exponent))


def moving_normal(
    keys: int,
    mean_from: float | None = None,
    mean_to: float | None = None,
    sigma: float | None = None,
    period_seconds: float = 60.0,
) -> MovingNormal:
    """Draw keys around a mean that moves to and fro; by default between the quarters, sigma a twentieth of the keys.

    Examples:
        >>> ab.moving_normal(100).label
        'normal over 100 keys, mean 25 → 75 and back in 60 s, sigma 5'
    """
    _check_keys(keys)
    if period_seconds <= 0:
        msg = f"period_seconds is {period_seconds}; use a positive number of seconds"
        raise FlowError(msg)
    return MovingNormal(
        keys,
        keys / 4 if mean_from is None else float(mean_from),
        keys * 3 / 4 if mean_to is None else float(mean_to),
        keys / 20 if sigma is None else float(sigma),
        float(period_seconds),
    )


def draw_normal(first: Floats, second: Floats) -> Floats:
    """Return standard normal numbers made of two uniform ones each (Box and Muller)."""
    return np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second)


@lru_cache(maxsize=4)
def _zipf_shares(keys: int, exponent: float) -> Floats:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    shares = np.cumsum(weights)
    return np.asarray(shares / shares[-1], dtype=np.float64)


def _check_keys(keys: int) -> int:
    if keys < 1:
        msg = f"a stream needs at least one key, found {keys}"
        raise FlowError(msg)
    return keys
