"""A steering that moves, splits and merges keys at random, at every boundary."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from anabranch.control.decisions import Decision, RouteChange
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.reported import BatchReport
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import JoinSpec, splits_keys, spreads_any_key
from anabranch.query.nodes import Stateful
from anabranch.routing import Routes, hash_keys
from anabranch.routing.phases import FlowRoutes
from anabranch.state.manifest import Manifest
from wild_routes import MOST_SLOTS, make_wild_deal, make_wild_routes


class WildSteering:
    """Changes every operator's routes at nearly every batch: buckets, keys, splits, slots, strategies, protocols.

    What it does in a batch follows from its seed and the batch alone, so a restart does not begin anew.
    """

    def __init__(
        self, seed: int, program: FlowProgram, rows: Sequence[Mapping[str, Any]], most_slots: int = MOST_SLOTS
    ) -> None:
        """``rows`` have the keys that are moved one by one; keys that an operator does not know move nothing."""
        self._seed = seed
        self._program = program
        self._most_slots = most_slots
        self._hashes = {
            node.id: _hash_all(node.operation, rows)
            for node in program.plan.stateful
            if isinstance(node.operation, Stateful)
        }
        self.changes = 0
        self.waits = 0
        self.handed_bytes = 0

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        return {}

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        chance = random.Random(f"{self._seed} {batch}")
        changes: dict[int, RouteChange] = {}
        for head, phases in routes.items():
            if phases.earlier is not None or chance.random() < 0.15:
                self.waits += phases.earlier is not None
                continue
            kernel = self._program.kernels[head]
            by_key = bool(self._program.plan.nodes[head].operation.spec.keys)  # type: ignore[union-attr]
            if not by_key or (_draws(self._program, head) and chance.random() < 0.8):
                dealt = make_wild_deal(chance, self._most_slots, by_key=by_key)
                changes[head] = RouteChange(Routes(dealt), "state")
                self.changes += 1
                continue
            following = make_wild_routes(
                chance,
                self._hashes[head],
                splittable=splits_keys(kernel),
                spreadable=spreads_any_key(kernel),
                by_value=self._goes_by_value(head),
                most_slots=self._most_slots,
            )
            swapped = tuple(key for key in following.table.split_keys().tolist() if chance.random() < 0.5)
            following = replace(following, swapped=swapped)
            changes[head] = RouteChange(following, chance.choice(["state", "window"]))
            self.changes += 1
        return Decision(batch, changes)

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        self.handed_bytes += sum(operator.handed_bytes for operator in report.operators.values())

    def _goes_by_value(self, head: int) -> bool:
        node = self._program.plan.nodes[head]
        assert isinstance(node.operation, Stateful)
        schema = self._program.plan.nodes[node.inputs[0]].schema
        keys = node.operation.spec.keys
        return len(keys) == 1 and schema[keys[0]].is_integer()


def _draws(program: FlowProgram, head: int) -> bool:
    """Say whether rows of an operator may be dealt to slots whatever their keys."""
    operation = program.plan.nodes[head].operation
    return isinstance(operation, Stateful) and isinstance(operation.spec, JoinSpec) and operation.spec.draws


def _hash_all(operation: Stateful, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    keys = operation.spec.keys
    known = [{key: row[key] for key in keys} for row in rows if all(row.get(key) is not None for key in keys)]
    if not known or not keys:
        return []
    return hash_keys(pl.DataFrame(known), list(keys)).unique().sort().to_list()
