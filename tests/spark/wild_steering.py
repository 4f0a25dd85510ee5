"""A steering that moves, splits and merges keys at random, at every boundary."""

from __future__ import annotations

import random
from collections.abc import Sequence

import polars as pl

from anabranch.model import BucketMap, RoutingTable
from anabranch.query.plan import Plan
from anabranch.routing import hash_keys
from anabranch.routing.bases import BucketRoute, ModuloRoute
from anabranch.routing.routes import Routes
from anabranch.routing.splitters import ChoiceSplitter
from anabranch.spark.flow_routes import Change, FlowRoutes, ReconfigurationProtocol
from anabranch.spark.phases import window_of
from anabranch.spark.reports import BatchReport
from anabranch.spark.spec import FlowProgram
from anabranch.spark.watching import Watch
from anabranch.state.manifest import Manifest

BUCKETS = 32
MOST_SLOTS = 5


class WildSteering:
    """Changes every operator's routes at nearly every batch: buckets, keys, splits, slots, strategies, protocols."""

    def __init__(self, seed: int, program: FlowProgram, keys: Sequence[object]) -> None:
        self._chance = random.Random(seed)
        self._program = program
        self._hashes = hash_keys(pl.DataFrame({"key": keys}), ["key"]).to_list()
        self.done: list[str] = []
        self.handed_bytes = 0

    @property
    def _plan(self) -> Plan:
        return self._program.plan

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        return {}

    def decide(self, batch: int, routes: FlowRoutes, before: Manifest | None) -> dict[int, Change]:
        chance = self._chance
        changes: dict[int, Change] = {}
        for head, phases in routes.items():
            if phases.earlier is not None or chance.random() < 0.2:
                continue
            kernel = self._program.kernels[head]
            window = window_of(self._plan.nodes[head].operation.spec)  # type: ignore[union-attr]
            following = self._routes(kernel.splittable, window is not None)
            by_value = phases.routes.needs_values or following.needs_values
            may_wait = window is not None and window.kind != "session" and not by_value
            protocol: ReconfigurationProtocol = "window" if may_wait and chance.random() < 0.5 else "state"
            changes[head] = Change(following, protocol)
            self.done.append(protocol)
        return changes

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        self.handed_bytes += sum(operator.handed_bytes for operator in report.operators.values())

    def _routes(self, splittable: bool, windowed: bool) -> Routes:
        chance = self._chance
        slots = chance.randint(1, MOST_SLOTS)
        base = BucketRoute(BucketMap(slots, tuple(chance.randrange(slots) for _ in range(BUCKETS))))
        placements = {}
        for key in chance.sample(self._hashes, chance.randint(0, len(self._hashes))):
            owners = chance.sample(range(slots), chance.randint(1, slots) if splittable else 1)
            placements[key] = {slot: 1 / len(owners) for slot in owners}
        if splittable and windowed and chance.random() < 0.2:
            self.done.append("row splitter")
            return Routes(base, RoutingTable.of(placements), ChoiceSplitter(slots))
        if chance.random() < 0.2:
            self.done.append("modulo")
            return Routes(ModuloRoute(slots), RoutingTable.of(placements))
        return Routes(base, RoutingTable.of(placements))
