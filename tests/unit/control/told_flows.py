"""Flows whose batches are told, not run, around a steering that decides for real."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.control.apply import check_decision, store_levels
from anabranch.control.commands import Command, Reply
from anabranch.control.decisions import Decision, RouteChange
from anabranch.control.observe.load_sampling import Watch, watch_rows
from anabranch.control.rebalancer import Rebalancer
from anabranch.engine.batches.batch_routes import load_routes
from anabranch.engine.batches.reports import BatchReport, OperatorReport
from anabranch.eventtime.flow.flow_time import load_time, rules_of, store_time
from anabranch.eventtime.watermarks import SeenTimes
from anabranch.model import HASH, RunRef
from anabranch.routing import KeyBatch, hash_keys
from anabranch.routing.phases import PhasedRoutes
from anabranch.state.manifest import Manifest
from unit.engine.programs import Build, make_program

BUCKETS = 64
SECOND_US = 1_000_000


class Flow:
    """A flow whose batches are told, not run: everything around the steering as the batch runner does it."""

    def __init__(
        self,
        build: Build,
        folder: Path,
        slots: int = 2,
        resizes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.program = make_program(build, folder, slots)
        self.plan = self.program.plan
        self.steering = Rebalancer(self.program, clock, resizes)
        self.manifest: Manifest | None = None
        self.batch = -1
        self.state_bytes = 0
        """What each slot is told to hold, in as many rows as there were in the batch."""
        self._routes: dict[int, PhasedRoutes] = {}
        self._decision = Decision(-1)

    @property
    def routes(self) -> PhasedRoutes:
        """The routes of the first operator after the last batch."""
        return load_routes(self.plan, self.manifest, BUCKETS)[self.plan.stateful[0].id]

    def begin(self) -> dict[int, RouteChange]:
        """Begin a batch; return what is going to change at its end."""
        self.batch += 1
        self._routes = load_routes(self.plan, self.manifest, BUCKETS)
        decided = self.steering.decide(self.batch, self._routes)
        self._decision = check_decision(self.plan, self._routes, decided)
        return dict(self._decision.routes)

    def end(self, keys: list[int], second: int = 0) -> None:
        """End the batch: it had rows of these keys, in this second."""
        watches = self.steering.watches(self._routes)
        frame = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Int64)})
        frame = frame.with_columns(hash_keys(frame, ["key"]).alias(HASH))
        operators = {}
        for head, phases in self._routes.items():
            slots = phases.routes.storage_slots(KeyBatch.of(frame, ["key"]))
            parts = [frame.filter(pl.Series(slots == slot)) for slot in range(phases.slots)]
            watch: Watch | None = watches.get(head)
            operators[head] = OperatorReport(
                runs=tuple(self._runs(slot, part.height) for slot, part in enumerate(parts)),
                rows=tuple(part.height for part in parts),
                next_due_us=None,
                last_end_us=None,
                loads=()
                if watch is None
                else tuple(seen for part in parts if (seen := watch_rows([part], ["key"], watch)) is not None),
            )
        latest = {node: second * SECOND_US for nodes in self.plan.watermarks.values() for node in nodes}
        report = BatchReport({"rows_in": len(keys)}, latest, {}, operators, 0, (), ())
        before = load_time(self.plan, self.manifest)
        times = {
            head: before.operator_time(self.batch, self.plan.watermarks[head], lagging=False, draining=False, now_us=0)
            for head in self._routes
        }
        after = before.advanced(SeenTimes(latest), rules_of(self.plan), now_us=0)
        levels = store_levels(self.plan, self._routes, self._decision, times, after, report)
        rows_before = self.manifest.totals["rows_in"] if self.manifest is not None else 0
        self.manifest = Manifest(
            "test",
            {},
            self.batch,
            1,
            "q",
            None,
            None,
            levels,
            watermarks=store_time(self.plan, after),
            totals={"rows_in": rows_before + len(keys)},
        )
        self.steering.observe(self.manifest, report, self._routes)

    def _runs(self, slot: int, rows: int) -> tuple[RunRef, ...]:
        return (RunRef(f"state/{slot}", rows, self.state_bytes, "0", self.batch),) if self.state_bytes and rows else ()

    def run(self, keys: list[int], second: int = 0) -> dict[int, RouteChange]:
        changes = self.begin()
        self.end(keys, second)
        return changes

    def tell(self, action: Any, operator: str | None = None, **arguments: Any) -> Reply:
        return self.steering.submit(Command("id", action, operator, arguments))
