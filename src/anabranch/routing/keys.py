"""Keys as routes see them: the rows of a batch, and what a sample tells about each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from anabranch.model import RouteError
from anabranch.routing.hashing import hash_keys


@dataclass(frozen=True, slots=True, eq=False)
class KeyBatch:
    """The keys of some rows: their hashes and, for routes that need it, the key column itself."""

    hashes: NDArray[np.uint64]
    values: pl.Series | None = None
    """None where the key is made of several columns, or where no route asks for it."""

    @classmethod
    def of(cls, frame: pl.DataFrame, keys: Sequence[str]) -> KeyBatch:
        """Hash the key columns of a frame; a single one is kept as the key's value."""
        values = frame.get_column(keys[0]) if len(keys) == 1 else None
        return cls(hash_keys(frame, keys).to_numpy(), values)

    def __len__(self) -> int:
        return len(self.hashes)

    def require_values(self, route: str) -> pl.Series:
        """Return the key column for a route that can't do without it."""
        if self.values is None:
            msg = (
                f"the {route} route needs key values, and got hashes only; "
                "key by one column, or choose a strategy that goes by the hash, such as 'hash' or 'least-count'"
            )
            raise RouteError(msg)
        return self.values

    def take(self, rows: NDArray[Any]) -> KeyBatch:
        """Return the keys of some of the rows."""
        return KeyBatch(self.hashes[rows], None if self.values is None else self.values.gather(rows))


@dataclass(frozen=True, slots=True, eq=False)
class KeySample:
    """The keys that a sample saw, each with its rows; all that a strategy decides from."""

    keys: NDArray[np.uint64]
    """Sorted, each once."""
    counts: NDArray[np.float64]
    """Rows of each key in the sample, or another measure of the load that it makes."""
    values: pl.Series | None = None
    """The keys themselves, in the order of ``keys``."""
    history: NDArray[np.float64] | None = None
    """Rows of each key before this sample; a key with history was decided before."""
    powers: NDArray[np.float64] | None = None
    """By slot: how much of the load it can bear beside the others; None when all slots are alike."""

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.keys):
            msg = f"a sample has {len(self.keys)} keys and {len(self.counts)} counts; give one count a key"
            raise RouteError(msg)
        if (self.keys[1:] <= self.keys[:-1]).any():
            msg = "the keys of a sample are not sorted or not unique; build it with KeySample.gather"
            raise RouteError(msg)

    def with_powers(self, powers: Sequence[float] | None) -> KeySample:
        """Return the sample with the powers of the slots, by which strategies decide and are scored; None: as it is."""
        return self if powers is None else replace(self, powers=np.asarray(powers))

    @classmethod
    def gather(cls, keys: ArrayLike, counts: ArrayLike | None = None, values: pl.Series | None = None) -> KeySample:
        """Return the sample of some rows or partial counts, in any order; without counts, each row counts one."""
        hashes = np.asarray(keys, np.uint64)
        weights = np.ones(len(hashes)) if counts is None else np.asarray(counts, np.float64)
        unique, first_rows, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        return cls(
            unique,
            np.bincount(inverse, weights, minlength=len(unique)).astype(np.float64),
            None if values is None else values.gather(first_rows),
        )

    @property
    def batch(self) -> KeyBatch:
        """The sampled keys as rows to route, one a key."""
        return KeyBatch(self.keys, self.values)

    def __len__(self) -> int:
        return len(self.keys)

    def slot_powers(self, slots: int) -> NDArray[np.float64]:
        """Return the power of each slot; 1 where none is known."""
        if self.powers is None:
            return np.ones(slots)
        if len(self.powers) != slots:
            msg = f"the sample knows the powers of {len(self.powers)} slots, there are {slots}; give one power a slot"
            raise RouteError(msg)
        return self.powers

    def remembering(self, earlier: KeySample, fade: float = 1.0) -> KeySample:
        """Return this sample with all that ``earlier`` knew as history; its keys that are silent now count 0.

        ``fade`` below 1 lets the past lose weight with every sample, so that a moving skew is followed.
        """
        both = np.union1d(self.keys, earlier.keys)
        here, there = np.searchsorted(both, self.keys), np.searchsorted(both, earlier.keys)
        counts, history = np.zeros(len(both)), np.zeros(len(both))
        counts[here] = self.counts
        history[there] = fade * (earlier.counts + (0 if earlier.history is None else earlier.history))
        return KeySample(both, counts, _joined_values(both, self, earlier), history, self.powers)

    def hottest(self, most: int) -> KeySample:
        """Return the sample without its coldest keys, by all that is known of them, if there are more than so many."""
        if len(self) <= most:
            return self
        known = self.counts + (0 if self.history is None else self.history)
        # Ties by key: equal samples must leave the same keys.
        return self.take(np.sort(np.lexsort((self.keys, -known))[:most]))

    def take(self, rows: NDArray[Any]) -> KeySample:
        """Return the sample of some of its keys, given in their order."""
        return KeySample(
            self.keys[rows],
            self.counts[rows],
            None if self.values is None else self.values.gather(rows),
            None if self.history is None else self.history[rows],
            self.powers,
        )

    def thinned(self, most: int) -> KeySample:
        """Return a sample of at most so many keys: the hottest, and of the others a few that stand for all."""
        if len(self) <= most:
            return self
        # Ties by key: equal samples must leave the same keys.
        order = np.lexsort((self.keys, -self.counts))
        hottest, others = order[: most // 2], order[most // 2 :]
        few = others[:: -(-len(others) // (most - len(hottest)))]
        counts = self.counts.copy()
        counts[few] *= counts[others].sum() / max(counts[few].sum(), 1e-300)
        kept = np.sort(np.concatenate((hottest, few)))
        return KeySample(
            self.keys[kept],
            counts[kept],
            None if self.values is None else self.values.gather(kept),
            None if self.history is None else self.history[kept],
            self.powers,
        )


def _joined_values(both: NDArray[np.uint64], newer: KeySample, earlier: KeySample) -> pl.Series | None:
    if newer.values is None or earlier.values is None:
        return None
    positions = np.concatenate((np.searchsorted(both, newer.keys), np.searchsorted(both, earlier.keys)))
    _, first_rows = np.unique(positions, return_index=True)
    return pl.concat([newer.values, earlier.values]).gather(first_rows)
