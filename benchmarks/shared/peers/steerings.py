"""Steerings for benches: one that notes what each operator's slots got, one that follows a script."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.control.decisions import Decision, ReconfigurationProtocol, RouteChange
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.rebalancer import Rebalancer
from anabranch.control.reported import BatchReport
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import BucketMap
from anabranch.query.plan import name_of
from anabranch.routing.bases.base_routes import BucketRoute
from anabranch.routing.phases import FlowRoutes
from anabranch.routing.routes import Routes
from anabranch.state.manifest import Manifest


class RecordingSteering(Rebalancer):
    """Balances as usual, and notes by operator and batch what slots received and what changed."""

    def __init__(self, program: FlowProgram) -> None:
        super().__init__(program, time.monotonic)
        self._plan = program.plan
        self._changes: dict[int, str] = {}
        self.batches: list[dict[str, dict[str, Any]]] = []
        """By batch: operator → rows by slot, bytes that were handed on, the change that takes effect afterwards."""

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        decision = super().decide(batch, routes)
        self._changes = {head: str(change) for head, change in decision.routes.items()}
        return decision

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        super().observe(manifest, report, routes)
        self.batches.append(
            {
                name_of(self._plan, head): {
                    "rows": list(operator.rows),
                    "moved_bytes": operator.handed_bytes,
                    "change": self._changes.get(head, ""),
                }
                for head, operator in report.operators.items()
            }
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What a script does at the end of a batch: give some buckets to the next slot, or change the number of slots."""

    buckets_a_slot: int = 0
    slots: int | None = None
    protocol: ReconfigurationProtocol = "state"


@dataclass(slots=True)
class ScriptedSteering:
    """Changes the only operator's routes as a script says, batch → step; watches nothing."""

    program: FlowProgram
    script: Mapping[int, Step]
    done: dict[int, tuple[Routes, Routes]] = field(default_factory=dict)
    """Batch → routes before and after it."""

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        return {}

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        step = self.script.get(batch)
        if step is None:
            return Decision(batch)
        ((head, phases),) = routes.items()
        following = take_step(phases.routes, step)
        self.done[batch] = (phases.routes, following)
        return Decision(batch, {head: RouteChange(following, step.protocol, f"the script says: {step}")})

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        return


def take_step(routes: Routes, step: Step) -> Routes:
    """Return the routes after a step; loads stay as even as they were."""
    assert isinstance(routes.base, BucketRoute)
    slot_of = np.asarray(routes.base.bucket_map.slot_of)
    slots = routes.slots
    moved = slot_of.copy()
    if step.slots is not None and step.slots < slots:
        leaving = np.flatnonzero(slot_of >= step.slots)
        moved[leaving] = np.arange(len(leaving)) % step.slots
    elif step.slots is not None and step.slots > slots:
        # Every slot gives up the same part, and what is given is dealt to the new slots in turn.
        given = np.concatenate([_first_part(slot_of, slot, 1 - slots / step.slots) for slot in range(slots)])
        moved[given] = slots + np.arange(len(given)) % (step.slots - slots)
    else:
        for slot in range(slots):
            moved[np.flatnonzero(slot_of == slot)[: step.buckets_a_slot]] = (slot + 1) % slots
    return Routes(BucketRoute(BucketMap(step.slots or slots, tuple(moved.tolist()))), routes.table)


def _first_part(slot_of: np.ndarray, slot: int, part: float) -> np.ndarray:
    own = np.flatnonzero(slot_of == slot)
    return own[: round(len(own) * part)]
