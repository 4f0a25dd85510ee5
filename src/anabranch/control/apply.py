"""A decision becomes routes: by which protocol, and what the manifest says of the next batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from anabranch.control.decisions import Decision, Proposal, ReconfigurationProtocol, RouteChange
from anabranch.control.facts import find_end
from anabranch.control.reported import BatchReport
from anabranch.eventtime.watermarks import FlowTime
from anabranch.model import BEGINNING_OF_TIME, OperatorTime
from anabranch.model.balance import ProtocolChoice
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.phases import Earlier, End, FlowRoutes, JoinEnd, PhasedRoutes, settle, switch_after
from anabranch.routing.routes import Routes
from anabranch.state.manifest import LevelState

MOVED_AT_ONCE_BYTES = 64 << 20
"""State that is handed over in one batch without a second thought; more waits for its windows, if they end soon."""
_BATCHES_TO_WAIT = 10


def choose_protocol(
    wanted: ProtocolChoice,
    old: Routes,
    proposal: Proposal,
    end: End | None,
    event_us_a_batch: float | None,
) -> ReconfigurationProtocol:
    """Return how a proposal is carried out, unless it is said: much state waits, if what it is for ends soon."""
    if wanted != "auto":
        return wanted
    if proposal.moved_bytes <= MOVED_AT_ONCE_BYTES or not can_wait(end, old, proposal.routes):
        return "state"
    assert end is not None
    most_us = _BATCHES_TO_WAIT * (event_us_a_batch or 0.0)
    return "window" if (end.wait_us if isinstance(end, JoinEnd) else end.size_us) <= most_us else "state"


def can_wait(end: End | None, old: Routes, new: Routes) -> bool:
    """Say whether the window protocol can do a change, or its state must move.

    Sessions and running aggregates have no end to wait for. What a slot fires is looked at by the hash alone. And
    where a row goes to its old and to its new slot, one of them could get it twice if a key had several of each.
    """
    if end is None or old.needs_values or new.needs_values:
        return False
    if isinstance(end, JoinEnd):
        return _splits_alike(old, new)
    if end.kind == "session":
        return False
    return end.kind == "tumbling" or not (old.may_split or new.may_split)


def _splits_alike(old: Routes, new: Routes) -> bool:
    """Say whether the same keys are split in the same way."""
    if isinstance(old.base, DrawnRoute) or isinstance(new.base, DrawnRoute):
        return False
    if old.splitter is not None or new.splitter is not None or old.swapped != new.swapped:
        return False
    return all(
        old.table.owners(key) == new.table.owners(key)
        for key in np.union1d(old.table.split_keys(), new.table.split_keys()).tolist()
    )


def check_decision(plan: Plan, routes: FlowRoutes, decision: Decision) -> Decision:
    """Return the decision with a protocol that each change can be done by.

    An operator in the midst of a change is left alone.
    """
    checked = {}
    for head, change in decision.routes.items():
        operation = plan.nodes[head].operation
        if routes[head].earlier is not None or not isinstance(operation, Stateful):
            continue
        waits = can_wait(find_end(plan, head), routes[head].routes, change.routes)
        checked[head] = change if waits else replace(change, protocol="state")
    return replace(decision, routes=checked)


def find_split_keys(routes: FlowRoutes, decision: Decision) -> dict[int, tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Return by stateful node the hashes of keys that slots share in a batch, and of those that they will share."""
    found = {}
    for head, phases in routes.items():
        following = decision.routes[head].routes if head in decision.routes else phases.routes
        found[head] = (phases.routes.table.split_keys(), following.table.split_keys())
    return found


def store_levels(
    plan: Plan,
    routes: FlowRoutes,
    decision: Decision,
    times: Mapping[int, OperatorTime],
    time_after: FlowTime,
    report: BatchReport,
) -> tuple[LevelState, ...]:
    """Return what the manifest says of every operator: its state, and the routes of the next batch."""
    levels = []
    for head, operator in report.operators.items():
        operation = plan.nodes[head].operation
        assert isinstance(operation, Stateful)
        end = find_end(plan, head)
        if head in decision.routes:
            seen = [time_after.latest.get(node, BEGINNING_OF_TIME) for node in plan.watermarks[head]]
            latest_us = max(seen, default=BEGINNING_OF_TIME)
            following = _begin(decision.routes[head], routes[head].routes, end, latest_us)
        else:
            time = times[head]
            following = settle(routes[head], end, max(time.fired_us, time.closed_us, time.fire_us))
        runs = operator.runs
        if following.slots < len(runs):
            # Slots that are no more have handed everything on; of a join that waited, what they have can meet nobody.
            waited = routes[head].earlier is not None and isinstance(end, JoinEnd)
            assert waited or not any(runs[following.slots :]), "a slot that goes still has state"
            runs = runs[: following.slots]
        levels.append(LevelState(operation.name, following.to_json(), runs, operator.handoffs))
    return tuple(levels)


def _begin(change: RouteChange, old: Routes, end: End | None, latest_us: int) -> PhasedRoutes:
    """Return the routes of the batch after a change; under the window protocol, what is open keeps the old ones."""
    if change.protocol == "state" or end is None or latest_us == BEGINNING_OF_TIME:
        return PhasedRoutes(change.routes)
    return PhasedRoutes(change.routes, Earlier(old, switch_after(latest_us, end)))
