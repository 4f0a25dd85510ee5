"""An operator's slots without Spark: drawn keys in, loads and samples out, and time as rows and moves take it.

The balancer is the real one. What is modelled is what it steers: a batch takes as long as its busiest slot, state that
moves takes time, and new routes count from the second batch after the one that they were decided on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.control.decide.balancer import Balancer
from anabranch.control.decisions import Proposal
from anabranch.control.observe.loads import OperatorLoads
from anabranch.routing.hashing import buckets_of, hash_keys
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.routing.moving import moved_parts
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import count_buckets

_HOT_KEYS_A_SLOT = 768
_SAMPLED_ROWS_A_SLOT = 20_000


@dataclass(frozen=True, slots=True)
class LabBatch:
    """What one batch did."""

    ended_seconds: float
    seconds: float
    rows: int
    max_over_mean: float
    strategy: str
    moved_bytes: float
    """State that changed slots at its end."""


@dataclass(slots=True)
class Lab:
    """Slots that get rows of drawn keys, batch by batch; equal seeds give equal rows, whatever the slots do."""

    values: pl.Series
    slots: int
    seed: int
    rows_a_batch: int
    splittable: bool = False
    seconds_a_row: float = 5e-6
    bytes_a_key: float = 200.0
    seconds_a_byte: float = 5e-8
    """As the balancer has it: a row takes the time of a hundred bytes."""
    seconds_a_meeting: float = 0.1
    """What a batch takes longer while slots share keys, whose parts meet in an exchange more."""
    _keys: KeyBatch = field(init=False)
    _order: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        hashes = hash_keys(pl.DataFrame({"key": self.values}), ["key"]).to_numpy()
        self._order = np.argsort(hashes)
        self._keys = KeyBatch(hashes[self._order], self.values.gather(self._order))

    def draw(self, batch: int, weights: NDArray[np.float64]) -> KeySample:
        """Return all rows of a batch; ``weights`` are in the order of ``values``."""
        rng = np.random.default_rng([self.seed, batch])
        in_order = weights[self._order]
        counts = rng.multinomial(self.rows_a_batch, in_order / in_order.sum())
        return KeySample(self._keys.hashes, counts.astype(np.float64), self._keys.values)

    def look(self, batch: int, weights: NDArray[np.float64]) -> KeySample:
        """Return a sample of a batch, as slots would send it."""
        return self._sample(batch, self.draw(batch, weights))

    def run(
        self,
        balancer: Balancer | None,
        routes: Routes,
        weights_at: Callable[[float], NDArray[np.float64]],
        *,
        seconds: float = float("inf"),
        batches: int | None = None,
    ) -> list[LabBatch]:
        """Return what the batches did, for so long or so many; ``weights_at`` says what keys come at a time."""
        now = 0.0
        ran: list[LabBatch] = []
        coming: Proposal | None = None
        while now < seconds and (batches is None or len(ran) < batches):
            batch = len(ran)
            rows = self.draw(batch, weights_at(now))
            slot_rows = routes.loads(rows)
            took = float(slot_rows.max()) * self.seconds_a_row
            if routes.splitter is not None or len(routes.table.split_keys()):
                took += self.seconds_a_meeting
            before, moved_bytes = routes, 0.0
            strategy = "" if balancer is None else balancer.choice.strategy
            if coming is not None:
                routes, coming = coming.routes, None
                moved = moved_parts(self._keys, before, routes) * self.bytes_a_key
                moved_bytes = float(moved.sum())
                took += self._longest_way(before, routes, moved) * self.seconds_a_byte
            elif balancer is not None:
                loads = self._loads(batch, now + took, rows, slot_rows, routes, balancer.wants_sample)
                found = balancer.consider(loads, routes)
                coming = found if found is not None and found.routes != routes else None
            now += took
            evenness = float(slot_rows.max() / slot_rows.mean())
            ran.append(LabBatch(now, took, self.rows_a_batch, evenness, strategy, moved_bytes))
        return ran

    # -- inside ----------------------------------------------------------------------------------------------------

    def _loads(
        self, batch: int, now: float, rows: KeySample, slot_rows: NDArray[np.float64], routes: Routes, sampled: bool
    ) -> OperatorLoads:
        sample = self._sample(batch, rows)
        hottest = np.argsort(-sample.counts, kind="stable")[: _HOT_KEYS_A_SLOT * self.slots]
        buckets = count_buckets(routes.base)
        return OperatorLoads(
            batch=batch,
            now_seconds=now,
            rows_in_all=(batch + 1) * self.rows_a_batch,
            slot_rows=slot_rows,
            bucket_rows=np.bincount(buckets_of(rows.keys, buckets), rows.counts, minlength=buckets).astype(np.float64),
            hot_rows=dict(zip(sample.keys[hottest].tolist(), sample.counts[hottest].tolist(), strict=True)),
            sample=sample if sampled else None,
            state_bytes=self.bytes_a_key * len(rows),
            state_rows=len(rows),
            splittable=self.splittable,
            spreadable=self.splittable,
        )

    def _sample(self, batch: int, rows: KeySample) -> KeySample:
        stride = max(1, self.rows_a_batch // (self.slots * _SAMPLED_ROWS_A_SLOT))
        rng = np.random.default_rng([self.seed, batch, 1])
        counts = rng.binomial(rows.counts.astype(np.int64), 1 / stride) * stride
        seen = np.flatnonzero(counts)
        values = None if rows.values is None else rows.values.gather(seen)
        return KeySample(rows.keys[seen], counts[seen].astype(np.float64), values)

    def _longest_way(self, old: Routes, new: Routes, moved: NDArray[np.float64]) -> float:
        """Return the bytes of the slot that has most to give or to take."""
        ways = []
        for routes in (old, new):
            rows, slots = routes.operation_slots(self._keys)
            firsts = np.searchsorted(rows, np.arange(len(moved)))
            ways.append(float(np.bincount(slots[firsts], moved, minlength=self.slots).max()))
        return max(ways)


def rows_a_second(batches: list[LabBatch], after: int = 0) -> float:
    """Return the rows a second of all batches but the first few."""
    counted = batches[after:]
    return sum(batch.rows for batch in counted) / sum(batch.seconds for batch in counted)
