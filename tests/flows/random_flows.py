"""Flows made by chance, with what the oracle says about them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

import polars as pl
from hypothesis import strategies as st

import anabranch as ab
from anabranch.balancing import PLANNERS
from anabranch.control.steering import Steering
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import LATE_POLICIES, Clock, LatePolicy, WindowSpec
from anabranch.query.streams import Stream
from anabranch.routing import hash_keys, make_strategy, strategy_names
from flows.running import START, FlowBench, frames_of
from oracle import NEVER, Answer, Distinct, Running, Sessions, Windows, answer_flow, assert_same_batches, compute
from oracle.aggregates import best_rows
from oracle.own_time import OwnTime

SECOND_US = 1_000_000

KINDS = ("tumbling", "sliding", "session", "running", "distinct", "top_k", "best")
HELD_KINDS = ("held tumbling", "held sliding", "held session")
"""Windows whose rows readers hold back, and slots those of the next hop."""
MERGES: tuple[Any, ...] = (
    ab.LocalMerge(at="window"),
    ab.LocalMerge(count=25),
    ab.LocalMerge(delay="0s"),
    ab.LocalMerge(delay="1h", slice="1s"),
    ab.LocalMerge(at=pl.col("rows") >= 3),
)
OWN_TIME_KINDS = ("own tumbling", "own sliding", "own session", "group sliding", "group session")
"""Windows that close in the time of their key, or of the group that their key is in."""
GROUPS = 3

AGGREGATES: dict[str, tuple[str, str | None]] = {
    "rows": ("count", None),
    "values": ("count", "real"),
    "total": ("sum", "whole"),
    "volume": ("sum", "real"),
    "lowest": ("min", "real"),
    "highest": ("max", "whole"),
    "average": ("mean", "whole"),
    "spread": ("variance", "real"),
    "deviation": ("stddev", "whole"),
    "opening": ("first", "name"),
    "closing": ("last", "whole"),
}

_KEY_COLUMNS = (["key"], ["name"], ["key", "name"], ["raw"], ["day", "key"])
SCHEMA: dict[str, pl.DataType] = {
    "key": pl.Int64(),
    "name": pl.String(),
    "raw": pl.Binary(),
    "day": pl.Date(),
    "ts": pl.Datetime("us"),
    "whole": pl.Int32(),
    "real": pl.Float64(),
}


_WHOLE = ("auto", "auto", *(name for name in strategy_names() if not make_strategy(name).splits_keys))
_SPREADING = ("auto", "auto", *strategy_names())
_PLANNERS = (*sorted(PLANNERS), "balance-load")
_TRIGGERS = (
    None,
    ab.BalanceTrigger(every_rows=1),
    ab.BalanceTrigger(every_seconds=0.001),
    ab.BalanceTrigger(balance_below=0.9),
    ab.BalanceTrigger(imbalance_above=1.0, cool_down_batches=0),
)


@dataclass(frozen=True)
class RandomFlow:
    """One flow, its input and how it is run; everything follows from these values."""

    seed: int
    batch_rows: tuple[int, ...]
    key_count: int
    disorder_seconds: int
    keys: tuple[str, ...]
    kind: str
    size_seconds: int
    slide_seconds: int
    offset_seconds: int
    ttl_seconds: int | None
    delay_seconds: int
    aggregates: tuple[str, ...]
    second_hop: bool
    drain: bool
    slots: int
    local_merge: bool
    parallelism: str
    frames_per_batch: int
    late: LatePolicy = "drop"
    lateness_seconds: int = 0
    early_seconds: int | None = None
    merge: ab.LocalMerge | None = None
    merge_again: ab.LocalMerge | None = None
    routing: str = "auto"
    balance: ab.Balance = field(default_factory=ab.Balance)

    @property
    def per(self) -> str:
        """What has a watermark of its own."""
        return {"own": "key", "group": "group"}.get(self.kind.split()[0], "flow")

    def batches(self) -> list[list[dict[str, Any]]]:
        """Return the rows of every frame that the source gets."""
        chance = random.Random(self.seed)
        made = []
        for number, rows in enumerate(self.batch_rows):
            made.append([self._row(chance, number) for _ in range(rows)])
        return made

    def _row(self, chance: random.Random, number: int) -> dict[str, Any]:
        seconds = number * 9 + chance.randrange(-4 * self.disorder_seconds, 40) / 4
        # A few keys are much hotter than the rest.
        key = min(chance.randrange(self.key_count), chance.randrange(self.key_count))
        return {
            "key": key,
            "name": f"{'äλ' if key % 3 else ''}{key % 4}",
            "raw": bytes([key % 5, 0]),
            "day": (START + timedelta(days=key % 3)).date(),
            "ts": START + timedelta(seconds=seconds),
            "whole": chance.choice([None, chance.randrange(-5, 5), chance.randrange(-(2**31), 2**31)]),
            "real": chance.choice([None, chance.randrange(-64, 64) / 8, 0.0]),
        }

    # -- as a flow -------------------------------------------------------------------------------------------------

    def build(self, stream: Stream) -> Stream:
        """Write the flow."""
        delay = f"{self.delay_seconds}s"
        keyed = stream.watermark("ts", delay=delay, per=self.per, groups=GROUPS)  # type: ignore[arg-type]
        keyed = keyed.key_by(*self.keys, merge=self.merge, routing=self.routing, balance=self.balance)
        ttl = None if self.ttl_seconds is None else f"{self.ttl_seconds}s"
        if self.kind == "distinct":
            first = keyed.distinct(ttl=ttl)
        elif self.kind == "running":
            first = keyed.agg(ttl=ttl, **self._specs())
        elif self.kind == "top_k":
            first = keyed.top_k(2, "whole", columns=["real"], ttl=ttl)
        else:
            windowed = self._windowed(keyed)
            first = (
                windowed.top_k(2, "real", columns=["whole"]) if self.kind == "best" else windowed.agg(**self._specs())
            )
        if not self.second_hop or not self._is_windowed():
            return first
        again = first.key_by(self.keys[0], merge=self.merge_again).window("25s", every="12s")
        return again.agg(results=ab.count(), name="again")

    def _windowed(self, keyed: Stream) -> Stream:
        lateness = f"{self.lateness_seconds}s"
        early = None if self.early_seconds is None else f"{self.early_seconds}s"
        if self._window().kind == "session":
            return keyed.session(f"{self.size_seconds}s", late=self.late, lateness=lateness, early=early)
        return keyed.window(
            f"{self.size_seconds}s",
            every=f"{self._window().slide_us // SECOND_US}s",
            offset=f"{self.offset_seconds}s",
            late=self.late,
            lateness=lateness,
            early=early,
        )

    def _window(self) -> WindowSpec:
        kind = self.kind.split()[-1]
        size_us = self.size_seconds * SECOND_US
        emissions = {
            "late": self.late,
            "lateness_us": self.lateness_seconds * SECOND_US,
            "early_us": None if self.early_seconds is None else self.early_seconds * SECOND_US,
        }
        if kind == "session":
            return WindowSpec("session", size_us, size_us, **emissions)  # type: ignore[arg-type]
        slide_us = self.slide_seconds * SECOND_US if kind == "sliding" else size_us
        shape: Literal["tumbling", "sliding"] = "tumbling" if slide_us == size_us else "sliding"
        return WindowSpec(shape, size_us, slide_us, self.offset_seconds * SECOND_US, **emissions)  # type: ignore[arg-type]

    def _specs(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name in self.aggregates:
            kind, column = AGGREGATES[name]
            made[name] = ab.count() if column is None else getattr(ab, kind)(column)
        return made

    def _is_windowed(self) -> bool:
        return self.kind in ("tumbling", "sliding", "session", "best", *HELD_KINDS, *OWN_TIME_KINDS)

    # -- as the oracle sees it -------------------------------------------------------------------------------------

    def answer(self, at_once_from: int = 0) -> Answer:
        """Return what the flow must emit; readers that hold rows back let windows wait for the next batch."""
        operators: list[Any] = [self._operator()]
        if self.second_hop and self._is_windowed():
            counted = [self.keys[0]]
            operators.append(Windows(counted, lambda group: [{"results": len(group)}], 25 * SECOND_US, 12 * SECOND_US))
        return answer_flow(
            self._extents(),
            operators,
            time="ts",
            delay_us=self.delay_seconds * SECOND_US,
            drain=self.drain,
            at_once_from=at_once_from if self.merge is None else NEVER,
        )

    def _extents(self) -> list[list[dict[str, Any]]]:
        frames = self.batches()
        step = self.frames_per_batch
        return [[row for frame in frames[at : at + step] for row in frame] for at in range(0, len(frames), step)]

    def _operator(self) -> Any:
        ttl_us = None if self.ttl_seconds is None else self.ttl_seconds * SECOND_US
        wanted = {name: AGGREGATES[name] for name in self.aggregates}

        def aggregated(group: Sequence[Any]) -> list[dict[str, Any]]:
            return [compute(group, wanted)]

        size_us = self.size_seconds * SECOND_US
        offset_us = self.offset_seconds * SECOND_US
        if self.per != "flow":
            clock = Clock(self.per, self.delay_seconds * SECOND_US)  # type: ignore[arg-type]
            return OwnTime(self.keys, aggregated, self._window(), clock, self._group if self.per == "group" else None)
        if self.kind == "distinct":
            return Distinct(self.keys, ttl_us)
        if self.kind == "running":
            return Running(self.keys, aggregated, ttl_us)
        if self.kind == "top_k":
            return Running(self.keys, lambda group: best_rows(group, 2, "whole", ["real"]), ttl_us)
        if self.kind in ("session", "held session"):
            return Sessions(self.keys, aggregated, size_us)
        if self.kind == "best":
            return Windows(self.keys, lambda group: best_rows(group, 2, "real", ["whole"]), size_us, size_us, offset_us)
        slide_us = size_us if self.kind.endswith("tumbling") else self.slide_seconds * SECOND_US
        return Windows(self.keys, aggregated, size_us, slide_us, offset_us)

    def _group(self, key: tuple[Any, ...]) -> int:
        named = pl.DataFrame([key], schema={name: SCHEMA[name] for name in self.keys}, orient="row")
        return int(hash_keys(named, self.keys)[0]) % GROUPS


def check(bench: FlowBench, case: RandomFlow, steer: Callable[[FlowProgram], Steering] | None = None) -> None:
    """Run a flow and fail unless every batch emits what the oracle says, whoever steers it."""
    flow, sink = ab.Flow("random"), ab.to_memory()
    source = ab.memory(*frames_of(case.batches(), SCHEMA), max_frames=case.frames_per_batch)
    built = case.build(flow.read(source)).write(sink)
    sinks = [sink]
    if case.late == "side":
        sinks.append(ab.to_memory())
        built.late_rows().write(sinks[1])
    settings = {
        "drain": case.drain,
        "slots": case.slots,
        "local_merge": case.local_merge,
        "parallelism": case.parallelism,
        "buckets": 64,
    }
    if steer is None:
        got = bench.run_flow(flow, sinks, **settings)
    else:
        got = bench.run_steered(flow, sinks, steer, **settings)
    expected = case.answer()
    assert_same_batches(sink.batches(), expected.batches)
    assert got.late_rows == expected.late_rows
    if case.late == "side":
        assert sinks[1].frame().height == expected.late_rows


def make_random_flow(kind: str, seed: int) -> RandomFlow:
    """Return the flow that a seed stands for.

    Hypothesis draws the seed only: what it draws by itself is small at first, and every example costs a whole run.
    """
    chance = random.Random(f"{kind} {seed}")
    size = chance.randint(2, 20)
    own_time = kind in OWN_TIME_KINDS
    late = chance.choice(LATE_POLICIES) if own_time else "drop"
    held = kind in HELD_KINDS
    has_ttl = kind in ("running", "distinct", "top_k") and chance.random() < 0.7
    made = RandomFlow(
        seed=chance.getrandbits(32),
        batch_rows=tuple(chance.randint(1, 60) for _ in range(chance.randint(2, 4))),
        key_count=chance.randint(1, 25),
        disorder_seconds=chance.randint(0, 25),
        keys=tuple(chance.choice(_KEY_COLUMNS)),
        kind=kind,
        size_seconds=size,
        slide_seconds=chance.randint(1, size),
        offset_seconds=chance.randint(0, 3),
        ttl_seconds=chance.randint(1, 20) if has_ttl else None,
        delay_seconds=chance.randint(0, 10),
        aggregates=_with_rows(chance.sample(sorted(AGGREGATES), chance.randint(2, 7)), held),
        second_hop=chance.random() < 0.5 and not own_time,
        drain=chance.random() < 0.85,
        slots=chance.randint(1, 4),
        local_merge=chance.random() < 0.5 or held,
        parallelism=chance.choice(["operator-set", "operator-set", "operator", "query"]),
        frames_per_batch=chance.choice([1, 1, 2]),
        late=late,
        lateness_seconds=chance.randint(1, 20) if late == "update" else 0,
        early_seconds=chance.choice([None, 5]) if own_time else None,
        merge=chance.choice([merge for merge in MERGES if merge.slice is None or "session" not in kind])
        if held
        else None,
        merge_again=chance.choice([None, *MERGES[:4]]) if held else None,
        # Few rows are enough, so that flows of a few hundred rows are balanced at all.
        balance=ab.Balance(
            planner=chance.choice(_PLANNERS), trigger=chance.choice(_TRIGGERS), fewest_rows_a_slot=1, tolerance=0.02
        ),
    )
    routings = _SPREADING if kind in ("tumbling", "sliding") else _WHOLE
    # Ranges go by the value of one column.
    return replace(made, routing=chance.choice([name for name in routings if name != "ranges" or len(made.keys) == 1]))


def _with_rows(names: list[str], held: bool) -> tuple[str, ...]:
    """Return the names, with the one that a merge may go by."""
    return tuple(names) if not held or "rows" in names else (*names, "rows")


SEEDS = st.integers(0, 2**63)
