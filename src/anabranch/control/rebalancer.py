"""The balance of a running flow: what slots saw becomes new routes, and so do people's wishes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import polars as pl

from anabranch.control.apply import Change, ReconfigurationProtocol
from anabranch.control.commands import Command, Reply
from anabranch.control.decide.balancer import Balancer, OperatorLoads, Proposal
from anabranch.control.manual_overrides import WishRefused, change_setting, place_key
from anabranch.control.observe.load_sampling import ROWS, Watch, merge_sightings
from anabranch.control.observe.state_sizes import merge_sizes
from anabranch.control.operator_status import WatchedOperator, describe_operator, label_keys
from anabranch.control.reported import BatchReport, OperatorReport
from anabranch.errors import AnabranchError
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.model import HASH, Kernel, spreads_any_key
from anabranch.model.balance import AUTO, Balance, NamedStrategy, Routing
from anabranch.model.routes import MOST_SLOTS
from anabranch.query.nodes import Stateful
from anabranch.query.plan import Plan, name_of
from anabranch.routing import hash_keys
from anabranch.routing.keys import KeySample
from anabranch.routing.phases import FlowRoutes, PhasedRoutes, can_wait, window_of
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import check_named, count_buckets, make_strategy
from anabranch.state.inspect import read_text
from anabranch.state.manifest import Manifest

MOVED_AT_ONCE_BYTES = 64 << 20
"""State that is handed over in one batch without a second thought; more waits for its windows, if they end soon."""
_BATCHES_TO_WAIT = 10

logger = logging.getLogger("anabranch")


class FlowParts(Protocol):
    """What is known of a flow before it runs."""

    @property
    def plan(self) -> Plan: ...

    @property
    def kernels(self) -> Mapping[int, Kernel]:
        """By stateful node."""
        ...


class Rebalancer:
    """Looks at what every batch did, and changes routes at the next boundary when that is worth it.

    ``submit`` may be called from any thread; everything else belongs to the thread that runs the batches.
    """

    def __init__(self, program: FlowParts, clock: Callable[[], float], resizes: bool = False) -> None:
        """``clock`` says what time it is, in seconds from any moment on, never going back.

        ``resizes``: the plan's slots were asked for, and a checkpoint that has others follows.
        """
        self._clock = clock
        self._program = program
        self._lock = threading.Lock()
        self._batch = -1
        self._begun_batch = -1
        self._latest_us: dict[int, int] = {}
        self._operators = {node.id: self._begin(node.id) for node in program.plan.stateful}
        self._to_resize = {head for head in self._operators if resizes and not self._is_ahead(head)}

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        """Return what slots should look at in the next batch."""
        watches = {}
        for head, operator in self._operators.items():
            balance = operator.balancer.balance
            undecided = operator.balancer.is_undecided(routes[head].routes)
            if balance is None and undecided:
                balance = Balance()
            if balance is not None:
                watches[head] = Watch(
                    count_buckets(routes[head].routes.base),
                    balance.sample_rate,
                    undecided or operator.balancer.wants_sample,
                    operator.balancer.wants_sizes,
                )
        return watches

    def decide(self, batch: int, routes: FlowRoutes, before: Manifest | None) -> dict[int, Change]:
        """Return what changes at the end of this batch."""
        changes: dict[int, Change] = {}
        with self._lock:
            self._begun_batch = batch
            for head, operator in self._operators.items():
                operator.phases = routes[head]
                if routes[head].earlier is not None:
                    continue
                if head in self._to_resize:
                    self._to_resize.discard(head)
                    self._wish_for_slots(operator, operator.newest_wish(routes[head].routes))
                proposal = operator.wishes.pop(0) if operator.wishes else operator.proposal
                operator.proposal = None
                if proposal is not None and proposal.routes != routes[head].routes:
                    protocol = self._protocol(operator, routes[head].routes, proposal)
                    changes[head] = Change(proposal.routes, protocol, proposal.reason, proposal.costs)
                    operator.coming = proposal.routes
                    logger.info("batch %d, %s: %s (by %s)", batch, operator.name, proposal.reason, protocol)
        return changes

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        """Learn what a batch did under its routes."""
        following = {level.operator: PhasedRoutes.from_json(level.routes) for level in manifest.levels}
        with self._lock:
            self._batch = manifest.batch
            for head, operator in self._operators.items():
                operator.phases = following[operator.name]
                operator.coming = None
                operator.exchange = report.figures.get(head)
                self._follow_time(operator, manifest)
                loads = self._loads(operator, manifest, report.operators[head], routes[head])
                if loads is None:
                    operator.loads = self._follow_state(operator, manifest, report.operators[head], routes[head])
                    continue
                operator.loads = loads
                unchanged = operator.phases == routes[head] and operator.phases.earlier is None
                if unchanged and not operator.wishes:
                    operator.proposal = operator.balancer.consider(loads, routes[head].routes)

    def strategies(self) -> dict[str, str]:
        """Return the strategy that keys go by, by operator."""
        with self._lock:
            return {watched.name: watched.balancer.choice.strategy for watched in self._watched()}

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the busiest slot's load over the mean on the last sample, by operator and strategy."""
        with self._lock:
            return {
                watched.name: {one.strategy: one.score.max_over_mean for one in watched.balancer.scores.ranked}
                for watched in self._watched()
                if watched.balancer.scores is not None
            }

    def submit(self, command: Command) -> Reply:
        """Answer a command: what will happen, or why not."""
        with self._lock:
            try:
                if command.action == "show":
                    return Reply(command.id, True, f"after batch {self._batch}", self._show())
                texts = self._wish_for_all(self._find(command.operator), command)
            except AnabranchError as error:
                return Reply(command.id, False, str(error))
        return Reply(command.id, True, "; ".join(texts))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _begin(self, head: int) -> WatchedOperator:
        node = self._program.plan.nodes[head]
        assert isinstance(node.operation, Stateful)
        spec = node.operation.spec
        schema = self._program.plan.nodes[node.inputs[0]].schema
        return WatchedOperator(
            head,
            name_of(self._program.plan, head),
            Balancer(self._routing_of(head, node.operation), self._clock),
            window_of(spec),
            self._program.kernels[head].splittable,
            spreads_any_key(self._program.kernels[head]),
            {key: schema[key] for key in spec.keys},
        )

    def _watched(self) -> list[WatchedOperator]:
        return [operator for operator in self._operators.values() if operator.balancer.balance is not None]

    def _is_ahead(self, head: int) -> bool:
        return self._program.plan.exchanges[head].kind == "ahead"

    def _routing_of(self, head: int, operation: Stateful) -> Routing:
        """Return what an operator was told about where its keys go; whoever wrote its partitions has said it all."""
        if self._is_ahead(head):
            return replace(operation.routing, strategy=AUTO, balance=None, options={}, powers=None)
        return operation.routing

    def _wish_for_slots(self, operator: WatchedOperator, routes: Routes) -> None:
        plan = self._program.plan
        slots = plan.slots[plan.level_of(operator.head) - 1]
        if slots != routes.slots:
            operator.wishes.append(operator.balancer.resize(operator.loads, routes, slots))

    def _follow_time(self, operator: WatchedOperator, manifest: Manifest) -> None:
        latest = load_time(self._program.plan, manifest).latest
        seen = [latest[node] for node in self._program.plan.watermarks[operator.head] if node in latest]
        if seen:
            known = self._latest_us.get(operator.head)
            if known is not None and max(seen) > known:
                operator.event_us_a_batch = float(max(seen) - known)
            self._latest_us[operator.head] = max(seen)

    def _loads(
        self, operator: WatchedOperator, manifest: Manifest, report: OperatorReport, phases: PhasedRoutes
    ) -> OperatorLoads | None:
        buckets = count_buckets(phases.routes.base)
        # Slots measure their state now and then; in between, what they said last holds.
        operator.sizes = merge_sizes(report.sizes, len(report.runs), buckets) or operator.sizes
        sighting = merge_sightings(report.sightings, buckets)
        if sighting is None:
            return None
        if sighting.sample is not None:
            operator.labels = label_keys(sighting.sample, tuple(operator.key_types))
        return replace(
            self._unseen_loads(operator, manifest, report, phases),
            bucket_rows=sighting.bucket_rows.astype(np.float64),
            hot_rows=sighting.hot_rows,
            sampled_rows=sighting.sampled_rows,
            sample=_sample(sighting.sample if sighting.complete else None, tuple(operator.key_types)),
        )

    def _follow_state(
        self, operator: WatchedOperator, manifest: Manifest, report: OperatorReport, phases: PhasedRoutes
    ) -> OperatorLoads:
        """Return the loads that were seen last, or the rows of slots that are not watched, with the state of now."""
        now = self._unseen_loads(operator, manifest, report, phases)
        if operator.loads is None or not operator.loads.bucket_rows.any():
            return now
        return replace(operator.loads, state_bytes=now.state_bytes, state_rows=now.state_rows)

    def _unseen_loads(
        self, operator: WatchedOperator, manifest: Manifest, report: OperatorReport, phases: PhasedRoutes
    ) -> OperatorLoads:
        """Return what can be told of a batch whose slots did not look at their keys."""
        level = next(level for level in manifest.levels if level.operator == operator.name)
        slot_rows = np.zeros(phases.slots)
        slot_rows[: len(report.rows)] = report.rows[: phases.slots]
        return OperatorLoads(
            batch=manifest.batch,
            now_seconds=self._clock(),
            rows_in_all=int(manifest.totals.get("rows_in", 0)),
            slot_rows=slot_rows[: phases.routes.slots],
            bucket_rows=np.zeros(count_buckets(phases.routes.base)),
            hot_rows={},
            sample=None,
            state_bytes=float(level.state_bytes),
            sizes=operator.sizes,
            splittable=operator.splittable,
            spreadable=operator.spreadable,
            state_rows=level.live_rows,
        )

    def _protocol(self, operator: WatchedOperator, old: Routes, proposal: Proposal) -> ReconfigurationProtocol:
        balance = operator.balancer.balance
        wanted = balance.protocol if balance is not None else "auto"
        if wanted != "auto":
            return wanted
        if proposal.moved_bytes <= MOVED_AT_ONCE_BYTES or not can_wait(operator.window, old, proposal.routes):
            return "state"
        assert operator.window is not None
        wait_us = _BATCHES_TO_WAIT * (operator.event_us_a_batch or 0.0)
        return "window" if operator.window.size_us <= wait_us else "state"

    def _find(self, name: str | None) -> list[WatchedOperator]:
        every = list(self._operators.values())
        if name is None:
            return every
        found = [operator for operator in every if operator.name == name]
        if not found:
            msg = f"no operator {name!r}; the flow has {', '.join(operator.name for operator in every) or 'none'}"
            raise WishRefused(msg)
        return found

    def _wish_for_all(self, chosen: list[WatchedOperator], command: Command) -> list[str]:
        """Note the wish for every operator, or, if one refuses it, for none."""
        before = [(operator, operator.balancer.routing, len(operator.wishes)) for operator in chosen]
        try:
            return [self._wish(operator, command) for operator in chosen]
        except AnabranchError:
            for operator, routing, wishes in before:
                operator.balancer.routing = routing
                del operator.wishes[wishes:]
            raise

    def _wish(self, operator: WatchedOperator, command: Command) -> str:
        if self._is_ahead(operator.head):
            msg = f"{operator.name} has its source's partitions as its slots; keys go where the partitioner puts them"
            raise WishRefused(msg)
        if command.action == "set":
            operator.balancer.routing = change_setting(operator.balancer.routing, command.arguments)
            return f"{operator.name}: {', '.join(f'{name} is {value}' for name, value in command.arguments.items())}"
        if operator.phases is None:
            msg = f"{operator.name} has not run yet; try again after the first batch"
            raise WishRefused(msg)
        if operator.phases.earlier is not None:
            msg = f"{operator.name} is in the midst of a change: open windows end first; try again later"
            raise WishRefused(msg)
        proposal = self._propose(operator, command, operator.newest_wish(operator.coming or operator.phases.routes))
        operator.wishes.append(proposal)
        # A batch that is running has its change decided already.
        batch = max(self._batch, self._begun_batch) + len(operator.wishes)
        moved = f"; about {proposal.moved_bytes:,.0f} bytes of state move" if proposal.moved_bytes else ""
        return f"{operator.name}: {proposal.reason}{moved}; takes effect after batch {batch}"

    def _propose(self, operator: WatchedOperator, command: Command, routes: Routes) -> Proposal:
        given = command.arguments
        if command.action == "slots":
            count = _count(given.get("count"), most=MOST_SLOTS)
            return operator.balancer.resize(operator.loads, routes, count)
        if command.action == "strategy":
            return self._propose_strategy(operator, given, routes)
        key = _read_key(str(given.get("key", "")), operator.key_types)
        if command.action == "move":
            wanted: list[int] = [_count(given.get("slot"), least=0)]
        elif command.action == "split":
            wanted = [_count(slot, least=0) for slot in given.get("slots", [])]
            if not operator.splittable:
                msg = f"{operator.name} keeps every key whole; it can be moved, not split"
                raise WishRefused(msg)
        else:
            wanted = []
        return place_key(routes, key, str(given.get("key")), wanted, operator.loads)

    def _propose_strategy(self, operator: WatchedOperator, given: Mapping[str, Any], routes: Routes) -> Proposal:
        named = NamedStrategy(str(given.get("name")), **given.get("options", {}))
        check_named(named)
        # Powers that the flow has already follow the slots; those that are given now must fit them.
        Routing().going_by(named).check_slots(routes.slots)
        if named.name != AUTO and make_strategy(named.name, **named.options).splits_keys and not operator.spreadable:
            msg = f"{operator.name} keeps every key whole; {named.name} spreads a key over slots"
            if operator.splittable:
                msg = f"{operator.name} can split single keys; {named.name} would spread all of them over slots"
            raise WishRefused(msg)
        return operator.balancer.switch(named, operator.loads, routes, np.random.default_rng(self._batch + 1))

    def _show(self) -> dict[str, Any]:
        return {
            "batch": self._batch,
            "operators": [describe_operator(operator) for operator in self._operators.values()],
        }


def _sample(sample: pl.DataFrame | None, keys: tuple[str, ...]) -> KeySample | None:
    if sample is None:
        return None
    seen = sample.group_by(HASH, maintain_order=True).agg(pl.col(ROWS).sum(), pl.first(*keys)).sort(HASH)
    values = seen.get_column(keys[0]) if len(keys) == 1 else None
    return KeySample(seen[HASH].to_numpy(), seen[ROWS].to_numpy(), values)


def _count(given: Any, least: int = 1, most: int | None = None) -> int:
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = least - 1
    if number < least or (most is not None and number > most):
        msg = f"{given!r} is not a number from {least} {'on' if most is None else f'to {most:,}'}"
        raise WishRefused(msg)
    return number


def _read_key(text: str, types: Mapping[str, pl.DataType]) -> int:
    """Return the hash of a key that is given as text; several columns are separated by commas."""
    parts = [text] if len(types) == 1 else [part.strip() for part in text.split(",")]
    if len(parts) != len(types):
        msg = f"the key {text!r} has {len(parts)} parts; the operator is keyed by {', '.join(types)}"
        raise WishRefused(msg)
    columns = []
    for part, (name, dtype) in zip(parts, types.items(), strict=True):
        value = read_text(part, dtype)
        if value[0] is None:
            msg = f"{part!r} cannot be a value of {name}, which is {dtype}"
            raise WishRefused(msg)
        columns.append(value.alias(name))
    return int(hash_keys(pl.DataFrame(columns), list(types))[0])
