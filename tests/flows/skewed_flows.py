"""Flows of skewed keys whose heat changes, drawn by chance, with strategy, planner and trigger given."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

import anabranch as ab
from anabranch.balancing import BUCKETS_ONLY, PLANNERS
from anabranch.control.rebalancer import Rebalancer
from anabranch.model.balance import AUTO
from anabranch.query.streams import Stream
from anabranch.routing import hash_keys, make_strategy
from anabranch.routing.keys import KeyBatch
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.state import Checkpoint, open_store
from flows.running import START, FlowBench, Outcome
from oracle import assert_same_batches, rows_of

BUCKETS = 64
BATCH_SECONDS = 8
DISORDER_SECONDS = 5
BATCHES_A_HEAT = 3
EVERY_PLANNER = (*sorted(PLANNERS), BUCKETS_ONLY)

TRIGGERS: dict[str, tuple[ab.BalanceTrigger | None, str]] = {
    "default": (None, "× its share, above 1.02"),
    "rows": (ab.BalanceTrigger(every_rows=500), "rows have passed, and planning is due every 500"),
    "seconds": (ab.BalanceTrigger(every_seconds=5), "s have passed, and planning is due every 5 s"),
    "imbalance": (ab.BalanceTrigger(imbalance_above=1.1), "× its share, above 1.1"),
    "balance": (ab.BalanceTrigger(balance_below=0.9), "of the busiest one's load, below 0.9"),
}
"""Mode → the trigger, and what it says when it asks for a plan."""

_KINDS: dict[str, Callable[[Stream], Stream]] = {
    "running": lambda keyed: keyed.agg(rows=ab.count(), total=ab.sum("whole")),
    "tumbling": lambda keyed: keyed.window("10s").agg(rows=ab.count(), total=ab.sum("whole")),
    "sliding": lambda keyed: keyed.window("12s", every="4s").agg(rows=ab.count(), highest=ab.max("whole")),
    "session": lambda keyed: keyed.session("2s").agg(rows=ab.count(), lowest=ab.min("whole")),
    "distinct": lambda keyed: keyed.distinct(),
    "top_k": lambda keyed: keyed.top_k(2, "whole"),
}
_SHARED = ("running", "tumbling", "sliding")
"""Kinds whose keys several slots may share."""


class Ticking:
    """A clock that goes on by a second whenever it is looked at, so that runs do the same on any machine."""

    def __init__(self) -> None:
        self._seconds = 1.8e9

    def __call__(self) -> float:
        self._seconds += 1.0
        return self._seconds


@dataclass(frozen=True, slots=True)
class SkewedFlow:
    """One flow: stream and operator follow from the seed, and how keys are spread is given."""

    seed: int
    strategy: str = AUTO
    planner: str = "mnrt"
    trigger: str = "default"
    batches: int = 9
    rows: int = 400

    def __str__(self) -> str:
        return f"{self.strategy}-{self.planner}-{self.trigger}-{self.kind}-{self.seed}"

    @property
    def kind(self) -> str:
        return self._chance("kind").choice(_SHARED if self.splits_keys else sorted(_KINDS))

    @property
    def splits_keys(self) -> bool:
        """Whether the strategy is one that shares keys out."""
        return self.strategy != AUTO and make_strategy(self.strategy).splits_keys

    @property
    def slots(self) -> int:
        return self._chance("slots").randint(3, 6)

    @property
    def merges(self) -> bool:
        """Whether rows of a key are merged before the exchange, so that slots see little of its heat."""
        return self._chance("merge").random() < 0.3

    @property
    def keys(self) -> list[str]:
        """Columns of the key; ranges go by the value of one."""
        return self._chance("keys").choice(
            [["key"], ["name"], *([] if self.strategy == "ranges" else [["name", "key"]])]
        )

    def frames(self) -> list[pl.DataFrame]:
        """Return the rows of every batch: few keys are much hotter than the rest, and after some batches others are."""
        rng = np.random.default_rng([self.seed, 1])
        count = int(rng.choice([30, 60, 150]))
        weights = np.arange(1, count + 1) ** -rng.uniform(0.9, 1.8)
        names = rng.permutation(count)
        made = []
        for batch in range(self.batches):
            names = names if batch % BATCHES_A_HEAT else rng.permutation(count)
            keys = names[rng.choice(count, self.rows, p=weights / weights.sum())]
            seconds = batch * BATCH_SECONDS + rng.integers(-4 * DISORDER_SECONDS, 4 * BATCH_SECONDS, self.rows) / 4
            made.append(
                pl.DataFrame(
                    {
                        "key": 3 * keys,
                        "name": [f"äλ{key}" for key in keys],
                        "ts": np.datetime64(START, "us") + (seconds * 1e6).astype("timedelta64[us]"),
                        "whole": rng.integers(-50, 50, self.rows),
                    }
                )
            )
        return made

    def run(self, bench: FlowBench, checkpoint: str, *, alone: bool = False) -> Outcome:
        """Run the flow to its end; ``alone``: on one slot, where keys have nowhere to go."""
        balance = ab.Balance(
            planner=self.planner,
            trigger=TRIGGERS[self.trigger][0],
            protocol=self._chance("protocol").choice(["auto", "state", "window"]),
            fewest_rows_a_slot=1,
            tolerance=0.02,
        )
        flow, sink = ab.Flow("skewed"), ab.to_memory()
        # Watermarks pass rows now and then: how many are late must be the same as well.
        stream = flow.read(ab.memory(*self.frames(), max_frames=1)).watermark("ts", delay="4s")
        keyed = stream.key_by(
            *self.keys, routing="hash" if alone else self.strategy, balance=None if alone else balance
        )
        _KINDS[self.kind](keyed).write(sink)
        return bench.run_steered(
            flow,
            [sink],
            lambda program: Rebalancer(program, Ticking()),
            checkpoint=checkpoint,
            slots=1 if alone else self.slots,
            buckets=BUCKETS,
            local_merge=self.merges,
        )

    def check(self, bench: FlowBench, checkpoint: str) -> Outcome:
        """Run the flow, and fail unless every batch emits what one slot emits."""
        got = self.run(bench, checkpoint)
        alone = self.run(bench, bench.new_checkpoint(), alone=True)
        assert_same_batches(got.batches, {batch: rows_of(frame) for batch, frame in alone.batches})
        assert (got.late_rows, got.dead_rows) == (alone.late_rows, alone.dead_rows)
        return got

    def find_routes(self, checkpoint: str) -> Routes:
        """Return the routes that a run left for the next batch."""
        manifest = Checkpoint(open_store(checkpoint)).latest()
        assert manifest is not None
        (level,) = manifest.levels
        return PhasedRoutes.from_json(level.routes).routes

    def find_slots(self, routes: Routes) -> list[set[int]]:
        """Return which slots routes give each of the stream's keys, in the order of their hashes."""
        keys = pl.concat(self.frames()).select(self.keys).unique().sort(self.keys)
        hashed = keys.with_columns(hash=hash_keys(keys, self.keys)).sort("hash")
        values = hashed[self.keys[0]] if len(self.keys) == 1 else None
        found: list[set[int]] = [set() for _ in range(hashed.height)]
        rows, slots = routes.operation_slots(KeyBatch(hashed["hash"].to_numpy(), values))
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            found[row].add(slot)
        return found

    def _chance(self, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what}")
