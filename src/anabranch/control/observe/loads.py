"""What the driver makes of what slots saw: the loads of an operator, and what planners are told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.balancing import LevelLoads
from anabranch.control.facts import OperatorFacts
from anabranch.control.observe.join_loads import JoinLoads, count_bytes_once, count_rows_once, scale_sample
from anabranch.control.observe.load_sampling import ROWS, LoadReport, ObservedLoads, merge_loads
from anabranch.control.observe.state_sizes import SizesReport, merge_sizes
from anabranch.control.reported import BatchReport
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.model import HASH, BucketMap
from anabranch.model.exchanges import ExchangeFigures
from anabranch.model.loads import BucketLoads, KeyLoads, StateSizes
from anabranch.query.plan import Plan, name_of
from anabranch.routing.bases.base_routes import BucketRoute
from anabranch.routing.hashing import buckets_of
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.routing.phases import FlowRoutes, PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import count_buckets
from anabranch.state.manifest import Manifest

_MOST_WATCHED_KEYS = 1_000
_SMALLEST_WATCHED_SHARE = 0.002
"""Keys below this part of a slot's fair share are left to their buckets, unless the routing table names them."""


@dataclass(frozen=True, slots=True)
class OperatorSeen:
    """What a batch shows of one operator."""

    routes: PhasedRoutes
    """Those that the batch ran under."""
    next_routes: PhasedRoutes
    slot_rows: tuple[int, ...]
    loads: tuple[LoadReport, ...]
    """What slots saw of their rows, if they were told to look and had any."""
    sizes: tuple[SizesReport, ...]
    """How much state the slots have that measured it."""
    measuring_slots: int
    """How many slots must have measured it for all to have done so."""
    state_bytes: int
    state_rows: int
    latest_us: int | None
    """The latest event time of the watermarks that it follows."""
    exchange: ExchangeFigures | None

    @property
    def buckets(self) -> int:
        return count_buckets(self.routes.routes.base)

    @property
    def is_settled(self) -> bool:
        """Whether the next batch runs under the same routes, and under no earlier ones beside them."""
        return self.next_routes == self.routes and self.next_routes.earlier is None

    def merge_loads(self) -> ObservedLoads | None:
        """Return what all slots saw together; None if none looked, or none had rows."""
        return merge_loads(self.loads, self.buckets)

    def merge_sizes(self, facts: OperatorFacts) -> StateSizes | None:
        """Return how much state there is; None unless all slots measured it."""
        sizes = merge_sizes(self.sizes, self.measuring_slots, self.buckets)
        if sizes is None or facts.join is None:
            return sizes
        return count_bytes_once(sizes, self.routes.routes, facts.join)


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """What control learns of a batch."""

    batch: int
    now_seconds: float
    rows_in_all: int
    """Since the flow began."""
    operators: Mapping[int, OperatorSeen]


def see_batch(plan: Plan, manifest: Manifest, report: BatchReport, routes: FlowRoutes, now_seconds: float) -> BatchSeen:
    """Return what manifest and report say of a batch that ran under these routes."""
    levels = {level.operator: level for level in manifest.levels}
    latest = load_time(plan, manifest).latest
    operators = {}
    for head, phases in routes.items():
        level, told = levels[name_of(plan, head)], report.operators[head]
        operators[head] = OperatorSeen(
            routes=phases,
            next_routes=PhasedRoutes.from_json(level.routes),
            slot_rows=told.rows,
            loads=told.loads,
            sizes=told.sizes,
            measuring_slots=len(told.runs),
            state_bytes=level.state_bytes,
            state_rows=level.live_rows,
            latest_us=max((latest[node] for node in plan.watermarks[head] if node in latest), default=None),
            exchange=report.figures.get(head),
        )
    return BatchSeen(manifest.batch, now_seconds, int(manifest.totals.get("rows_in", 0)), operators)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorLoads:
    """What an operator's slots had to do in a batch."""

    batch: int
    now_seconds: float
    rows_in_all: int
    """Since the flow began."""
    slot_rows: NDArray[np.float64]
    bucket_rows: NDArray[np.float64]
    hot_rows: Mapping[int, float]
    """Key hash → rows."""
    sample: KeySample | None
    """Keys of all slots; None in most batches of slots that are even."""
    state_bytes: float
    """As the files of all state have them."""
    splittable: bool
    """Whether keys of this operator may be shared by slots."""
    spreadable: bool = True
    """Whether a strategy may share any of them, and not only those that a plan names."""
    state_rows: int = 0
    """Rows of state; as many as ``state_bytes`` are of."""
    sizes: StateSizes | None = None
    """How much state buckets and hot keys have, as last measured; None if it never was."""
    sampled_rows: int = 0
    """Rows that were looked at for hot keys."""
    join: JoinLoads | None = None
    """What both inputs of a join bring; all rows count once, except that ``slot_rows`` are those that slots get."""

    def with_observed(self, observed: ObservedLoads, facts: OperatorFacts, routes: Routes) -> OperatorLoads:
        """Return the loads with what slots saw of their keys under some routes."""
        sample = _gather_sample(observed.sample, tuple(facts.key_types)) if observed.complete else None
        join = None
        if facts.join is not None:
            seen = observed.hot_rows
            observed, join = count_rows_once(observed, routes, facts.join)
            sample = None if sample is None else scale_sample(sample, seen, observed.hot_rows)
            if self.sizes is not None:
                left_bytes = self.sizes.key_left_bytes
                join = replace(
                    join,
                    state_bytes={
                        key: (left_bytes.get(key, 0.0), size - left_bytes.get(key, 0.0))
                        for key, size in self.sizes.key_bytes.items()
                    },
                )
        return replace(
            self,
            bucket_rows=observed.bucket_rows.astype(np.float64),
            hot_rows=observed.hot_rows,
            sampled_rows=observed.sampled_rows,
            sample=sample,
            join=join,
        )

    def following_state(self, now: OperatorLoads) -> OperatorLoads:
        """Return what was seen last, with the state of now; all of what is known now if nothing was seen."""
        return replace(self, state_bytes=now.state_bytes, state_rows=now.state_rows) if self.bucket_rows.any() else now

    @property
    def bytes_a_state_row(self) -> float:
        """How large a row of state is, in the mean; 0 if nobody counted them."""
        return self.state_bytes / self.state_rows if self.state_rows else 0.0


def count_loads(facts: OperatorFacts, batch: BatchSeen, sizes: StateSizes | None) -> OperatorLoads:
    """Return what can be told of a batch whose slots did not look at their keys; ``sizes`` as last measured."""
    seen = batch.operators[facts.head]
    slot_rows = np.zeros(seen.routes.slots)
    slot_rows[: len(seen.slot_rows)] = seen.slot_rows[: seen.routes.slots]
    return OperatorLoads(
        batch=batch.batch,
        now_seconds=batch.now_seconds,
        rows_in_all=batch.rows_in_all,
        slot_rows=slot_rows[: seen.routes.routes.slots],
        bucket_rows=np.zeros(seen.buckets),
        hot_rows={},
        sample=None,
        state_bytes=float(seen.state_bytes),
        sizes=sizes,
        splittable=facts.splittable,
        spreadable=facts.spreadable,
        state_rows=seen.state_rows,
    )


def _gather_sample(sample: pl.DataFrame | None, keys: tuple[str, ...]) -> KeySample | None:
    if sample is None or not keys:
        return None
    seen = sample.group_by(HASH, maintain_order=True).agg(pl.col(ROWS).sum(), pl.first(*keys)).sort(HASH)
    values = seen.get_column(keys[0]) if len(keys) == 1 else None
    return KeySample(seen[HASH].to_numpy(), seen[ROWS].to_numpy(), values)


def measure_level(loads: OperatorLoads, routes: Routes) -> LevelLoads:
    """Return what a batch says of buckets and of the keys that are worth watching, for planners."""
    assert isinstance(routes.base, BucketRoute)
    buckets: BucketMap = routes.base.bucket_map
    if len(loads.bucket_rows) != buckets.buckets:
        # Slots count the buckets of the routes that they have: those of other routes are known from the sample only.
        assert loads.sample is not None
        of_sample = buckets_of(loads.sample.keys, buckets.buckets)
        bucket_rows = np.bincount(of_sample, loads.sample.counts, minlength=buckets.buckets).astype(np.float64)
        loads = replace(loads, bucket_rows=bucket_rows)
    total = float(loads.slot_rows.sum())
    smallest = _SMALLEST_WATCHED_SHARE * total / routes.slots
    by_load = sorted(loads.hot_rows.items(), key=lambda item: (-item[1], item[0]))
    watched = dict(by_load[:_MOST_WATCHED_KEYS])
    watched = {key: rows for key, rows in watched.items() if rows >= smallest}
    for key in np.unique(routes.table.keys).tolist():
        watched[key] = loads.hot_rows.get(key, 0.0)
    keys = np.array(sorted(watched), np.uint64)
    key_rows = np.array([watched[key] for key in keys.tolist()], np.float64)
    key_buckets = buckets_of(keys, buckets.buckets)
    bucket_bytes, key_bytes = _find_bytes(loads, keys, key_rows, key_buckets)
    return LevelLoads(
        BucketLoads(buckets, loads.bucket_rows, bucket_bytes),
        KeyLoads(
            keys,
            key_rows,
            key_bytes,
            routes.base.slots_of(KeyBatch(keys)),
            splittable=np.full(len(keys), loads.splittable),
        ),
        key_buckets,
    )


def _find_bytes(
    loads: OperatorLoads, keys: NDArray[np.uint64], key_rows: NDArray[np.float64], key_buckets: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the state of each bucket, and of each of some keys; what was not measured is shared out by rows."""
    sizes = loads.sizes
    if sizes is None or not sizes.fit(len(loads.bucket_rows)):
        bytes_a_row = loads.state_bytes / max(float(loads.slot_rows.sum()), 1.0)
        return loads.bucket_rows * bytes_a_row, key_rows * bytes_a_row
    measured = np.array([sizes.key_bytes.get(key, -1.0) for key in keys.tolist()])
    of_bucket = sizes.bucket_bytes[key_buckets] * key_rows / np.maximum(loads.bucket_rows[key_buckets], 1.0)
    return sizes.bucket_bytes, np.where(measured < 0, of_bucket, measured)
