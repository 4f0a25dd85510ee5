"""What each input of a join brings of its hot keys; slots report copied rows once each, and they count once here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.control.observe.load_sampling import ObservedLoads
from anabranch.model.joins import LEFT, RIGHT, JoinSpec
from anabranch.model.loads import StateSizes
from anabranch.routing import buckets_of
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes


@dataclass(frozen=True, slots=True)
class JoinLoads:
    """What the inputs of a join bring of its hot keys; every row counts once, however many slots get it."""

    copied: int
    """The input that is copied unless the routes say else."""
    swaps: bool
    """Whether routes may say else."""
    rows: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Key hash → rows of the left and of the right input."""
    state_bytes: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Key hash → state of the left and of the right input, of keys of which it was measured."""
    sides: tuple[float, float] = (0.0, 0.0)
    """All rows of the left and of the right input; those of keys that slots share count once for each slot."""

    def copied_under(self, routes: Routes, key: int) -> int:
        """Return the input of which all slots of a key get all rows, if slots share it."""
        return 1 - self.copied if self.swaps and key in routes.swapped else self.copied

    def rows_of(self, key: int) -> tuple[float, float]:
        """Return the rows of both inputs."""
        return self.rows.get(key, (0.0, 0.0))

    def state_bytes_of(self, key: int) -> tuple[float, float]:
        """Return the state of both inputs."""
        return self.state_bytes.get(key, (0.0, 0.0))


def find_copied_input(spec: JoinSpec, routes: Routes, key: int) -> int:
    """Return the input of which all slots of a key get all rows."""
    return 1 - spec.copied if spec.swaps_sides and key in routes.swapped else spec.copied


def count_rows_once(observed: ObservedLoads, routes: Routes, spec: JoinSpec) -> tuple[ObservedLoads, JoinLoads]:
    """Return what slots saw, and what each input had part in it, with every row counted once."""
    rows: dict[int, tuple[float, float]] = {}
    bucket_rows = observed.bucket_rows.copy()
    for key, seen in observed.hot_rows.items():
        left = observed.hot_left_rows.get(key, 0.0)
        by_input = _divide(key, (left, max(seen - left, 0.0)), routes, spec)
        rows[key] = by_input
        bucket = buckets_of(np.array([key], np.uint64), len(bucket_rows))[0]
        bucket_rows[bucket] = max(bucket_rows[bucket] - round(seen - sum(by_input)), 0)
    hot_rows = {key: sum(by_input) for key, by_input in rows.items()}
    once = replace(observed, bucket_rows=bucket_rows, hot_rows=hot_rows)
    left, right = _find_copies(routes)
    sides = observed.left_rows / left, (int(observed.bucket_rows.sum()) - observed.left_rows) / right
    return once, JoinLoads(spec.copied, spec.swaps_sides, rows, sides=sides)


def scale_sample(sample: KeySample, seen: Mapping[int, float], once: Mapping[int, float]) -> KeySample:
    """Return a sample in which hot keys count as often as they have rows."""
    factors = {key: once[key] / rows for key, rows in seen.items() if rows}
    counts = sample.counts * np.array([factors.get(key, 1.0) for key in sample.keys.tolist()])
    return replace(sample, counts=counts)


def count_bytes_once(sizes: StateSizes, routes: Routes, spec: JoinSpec) -> StateSizes:
    """Return the sizes of state, with every row counted once."""
    left_bytes, key_bytes, bucket_bytes = {}, {}, sizes.bucket_bytes.copy()
    for key, measured in sizes.key_bytes.items():
        left = sizes.key_left_bytes.get(key, 0.0)
        by_input = _divide(key, (left, max(measured - left, 0.0)), routes, spec)
        left_bytes[key], key_bytes[key] = by_input[LEFT], sum(by_input)
        bucket = buckets_of(np.array([key], np.uint64), len(bucket_bytes))[0]
        bucket_bytes[bucket] = max(bucket_bytes[bucket] - (measured - sum(by_input)), 0.0)
    return StateSizes(bucket_bytes, key_bytes, left_bytes)


def _find_copies(routes: Routes) -> tuple[float, float]:
    """Return how many slots get a row of each input, where rows have places of their own."""
    return routes.base.copies if isinstance(routes.base, DrawnRoute) else (1.0, 1.0)


def _divide(key: int, by_input: tuple[float, float], routes: Routes, spec: JoinSpec) -> tuple[float, float]:
    """Return what both inputs have of a key, when slots counted so much."""
    if isinstance(routes.base, DrawnRoute):
        copies = _find_copies(routes)
        return by_input[LEFT] / copies[LEFT], by_input[RIGHT] / copies[RIGHT]
    slots = max(len(routes.table.owners(key)), 1)
    copied = find_copied_input(spec, routes, key)
    left, right = by_input
    return (left / slots if copied == LEFT else left, right / slots if copied == RIGHT else right)
