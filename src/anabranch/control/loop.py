"""Observe, decide: what control knows of a flow, and what it makes of it. Batches and commands in, frozen data out.

It has no lock, no log and no thread, and is told what time it is: whoever runs it has those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from anabranch.control.apply import choose_protocol
from anabranch.control.cluster_size import ClusterSize
from anabranch.control.commands import Command, Reply
from anabranch.control.decide.balancer import Balancer
from anabranch.control.decisions import Decision, ExecutorChange, HomeChange, RouteChange
from anabranch.control.energy_use import EnergyUse
from anabranch.control.facts import OperatorFacts
from anabranch.control.homes import find_home_change, list_homes
from anabranch.control.manual_overrides import CommandRefused, note_for_all
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.observe.loads import BatchSeen, count_loads
from anabranch.control.operator_status import describe_operator, label_keys
from anabranch.control.operators import ControlledOperator
from anabranch.errors import AnabranchError
from anabranch.model.balance import Balance
from anabranch.model.cluster import Executor, KeptHomes, SlotId
from anabranch.model.elasticity import Elasticity
from anabranch.model.events import Sender
from anabranch.placement.elasticity import ClusterReading
from anabranch.routing.phases import FlowRoutes
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import count_buckets


class ControlLoop:
    """Looks at what every batch did, and says what changes at the next boundary, when that is worth it."""

    def __init__(
        self,
        operators: Iterable[OperatorFacts],
        clock: Callable[[], float] | None = None,
        resizes: bool = False,
        elasticity: Elasticity | None = None,
        energy: EnergyUse | None = None,
    ) -> None:
        """``clock`` says what planning takes; ``resizes``: routes over other slots than planned follow the plan.

        With ``elasticity``, the number of executors follows the load, and slots follow executors; with ``energy``,
        hosts that are not needed are let go, and elasticity only brings more.
        """
        self._batch = -1
        self._begun_batch = -1
        self._operators = {facts.head: ControlledOperator(facts, Balancer(facts.routing, clock)) for facts in operators}
        self._executors: Sequence[Executor] = ()
        self._homes = KeptHomes()
        self._home_overrides: dict[SlotId, HomeChange] = {}
        self._energy = energy
        self._size = None if elasticity is None else ClusterSize(elasticity, only_grows=energy is not None)
        self._to_resize: dict[int, tuple[int, Sender]] = {
            head: (one.facts.slots, "resize")
            for head, one in self._operators.items()
            if resizes and not one.facts.is_ahead
        }

    def watches(self, routes: FlowRoutes) -> dict[int, Watch]:
        """Return what slots should look at in the next batch."""
        watches = {}
        for head, operator in self._operators.items():
            balancer = operator.balancer
            undecided = balancer.is_undecided(routes[head].routes)
            balance = Balance() if balancer.balance is None and undecided else balancer.balance
            if balance is not None:
                watches[head] = Watch(
                    count_buckets(routes[head].routes.base),
                    balance.sample_rate,
                    undecided or balancer.wants_sample,
                    balancer.wants_sizes,
                )
        return watches

    def observe(self, batch: BatchSeen) -> None:
        """Learn what a batch did under its routes."""
        self._batch = batch.batch
        for head, operator in self._operators.items():
            seen = batch.operators[head]
            operator.phases, operator.coming, operator.exchange = seen.next_routes, None, seen.exchange
            operator.follow_time(seen.latest_us)
            # Slots measure their state now and then; in between, what they said last holds.
            operator.sizes = seen.merge_sizes(operator.facts) or operator.sizes
            loads = count_loads(operator.facts, batch, operator.sizes)
            observed = seen.merge_loads()
            if observed is None:
                operator.loads = loads if operator.loads is None else operator.loads.following_state(loads)
                continue
            keys = tuple(operator.facts.key_types)
            if observed.sample is not None:
                operator.labels = label_keys(observed.sample, keys)
            operator.loads = loads.with_observed(observed, operator.facts, seen.routes.routes)
            if seen.is_settled and not operator.overrides:
                operator.proposal = operator.balancer.consider(operator.loads, seen.routes.routes)

    def see_homes(self, executors: Sequence[Executor], kept: KeptHomes) -> None:
        """Learn which executors there are, and where the slots of the batch that begins are at home."""
        self._executors, self._homes = executors, kept

    def see_cluster(self, reading: ClusterReading) -> None:
        """Learn what a batch says of the cluster's load."""
        if self._energy is not None:
            self._energy.see(reading, self._homes, None if self._size is None else self._size.wanted)
        if self._size is not None and (self._energy is None or not self._energy.is_changing):
            self._size.see(reading)

    def see_refusal(self) -> None:
        """Learn that executors could not be had, or be let go."""
        if self._energy is not None:
            self._energy.refuse()
        if self._size is not None:
            self._size.refuse()

    @property
    def idle_seconds(self) -> float | None:
        """After so long without rows a batch is wanted all the same, for executors may be too many; None if not."""
        sizes = [None if one is None else one.idle_seconds for one in (self._size, self._energy)]
        return min((seconds for seconds in sizes if seconds is not None), default=None)

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        """Return what changes at the end of this batch."""
        self._begun_batch = batch
        slots = None if self._size is None else self._size.take_slots()
        if slots is not None:
            able = [head for head, operator in self._operators.items() if not operator.facts.is_ahead]
            self._to_resize |= dict.fromkeys(able, (slots, "elasticity"))
        changes = {}
        for head, operator in self._operators.items():
            operator.phases = routes[head]
            if routes[head].earlier is not None:
                continue
            now = routes[head].routes
            if head in self._to_resize:
                self._override_slots(operator, operator.newest_override(now), *self._to_resize.pop(head))
            proposal = operator.overrides.pop(0) if operator.overrides else operator.proposal
            operator.proposal = None
            if proposal is not None and proposal.routes != now:
                balance = operator.balancer.balance
                protocol = choose_protocol(
                    balance.protocol if balance is not None else "auto",
                    now,
                    proposal,
                    operator.facts.end,
                    operator.event_us_a_batch,
                )
                changes[head] = RouteChange(
                    proposal.routes,
                    protocol,
                    proposal.reason,
                    proposal.costs or operator.balancer.count_costs(proposal, operator.loads),
                    proposal.sender,
                    operator.imbalance,
                    proposal.imbalance_expected,
                )
                operator.coming = proposal.routes
        homes, self._home_overrides = self._home_overrides, {}
        if self._energy is not None:
            homes = self._energy.take_homes() | homes
        return Decision(batch, changes, homes, self._take_executor_change())

    def submit(self, command: Command) -> Reply:
        """Answer a command: what will happen, or why not."""
        try:
            if command.action == "show":
                return Reply(command.id, True, f"after batch {self._batch}", self._show())
            chosen = self._find(command.operator)
            if command.action == "home":
                return Reply(command.id, True, self._note_home(chosen, command.arguments))
            texts = note_for_all(chosen, command, seen_batch=self._batch, begun_batch=self._begun_batch)
        except AnabranchError as error:
            return Reply(command.id, False, str(error))
        return Reply(command.id, True, "; ".join(texts))

    def strategies(self) -> dict[str, str]:
        """Return the strategy that keys go by, by operator."""
        return {one.facts.name: one.balancer.choice.strategy for one in self._balanced()}

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the busiest slot's load over the mean on the last sample, by operator and strategy."""
        return {
            one.facts.name: {scored.strategy: scored.score.max_over_mean for scored in one.balancer.scores.ranked}
            for one in self._balanced()
            if one.balancer.scores is not None
        }

    def _take_executor_change(self) -> ExecutorChange | None:
        """Return what changes about executors: one thing at a boundary, whoever wants it."""
        change = None if self._energy is None else self._energy.take_change()
        if change is None:
            return None if self._size is None else self._size.take_change()
        if self._size is not None:
            staying = sum(not one.is_leaving for one in self._executors)
            self._size.follow(change.total or staying - len(change.offload) + len(change.keep))
        return change

    # -- inside ----------------------------------------------------------------------------------------------------

    def _balanced(self) -> list[ControlledOperator]:
        return [operator for operator in self._operators.values() if operator.balancer.balance is not None]

    def _override_slots(self, operator: ControlledOperator, routes: Routes, slots: int, sender: Sender) -> None:
        if sender == "elasticity":
            # Nobody is there who could be told that buckets are too few.
            slots = min(slots, count_buckets(routes.base) or slots)
        if slots != routes.slots:
            resized = operator.balancer.resize(operator.loads, routes, slots)
            operator.overrides.append(replace(resized, sender=sender))

    def _find(self, name: str | None) -> list[ControlledOperator]:
        every = list(self._operators.values())
        if name is None:
            return every
        found = [operator for operator in every if operator.facts.name == name]
        if not found:
            names = ", ".join(operator.facts.name for operator in every) or "none"
            msg = f"no operator {name!r}; the flow has {names}"
            raise CommandRefused(msg)
        return found

    def _note_home(self, chosen: Iterable[ControlledOperator], given: Mapping[str, Any]) -> str:
        if not self._homes.homes:
            msg = (
                "slots of this flow have no homes: it runs in one process, or has not run yet, or with anchors=False; "
                "give it a cluster of several executors"
            )
            raise CommandRefused(msg)
        slot, change = given["slot"], find_home_change(given.get("place"), self._executors)
        wanted = {(operator.facts.level, slot) for operator in chosen}
        for level, _ in sorted(wanted):
            slots = sum(of_level == level for of_level, _ in self._homes.homes)
            if not 0 <= slot < slots:
                msg = f"there is no slot {slot}; level {level} has {slots}, from 0 to {slots - 1}"
                raise CommandRefused(msg)
        self._home_overrides |= dict.fromkeys(wanted, change)
        batch = max(self._batch, self._begun_batch) + 1
        levels = ", ".join(f"level {level}" for level, _ in sorted(wanted))
        return f"slot {slot} of {levels} {change.reason}; takes effect after batch {batch}"

    def _show(self) -> dict[str, Any]:
        kept = self._homes
        return {
            "batch": self._batch,
            "operators": [
                describe_operator(operator) | {"homes": [*list_homes(operator.facts.level, kept)]}
                for operator in self._operators.values()
            ],
            "executors": [asdict(executor) for executor in self._executors],
            "elasticity": None if self._size is None else self._size.show(),
            "energy": None if self._energy is None else self._energy.show(),
        }
