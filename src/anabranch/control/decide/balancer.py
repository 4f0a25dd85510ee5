"""One operator's balance: loads in, new routes out, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.balancing import (
    Goal,
    LevelLoads,
    LevelPlan,
    Reading,
    TriggerState,
    decide_to_apply,
    decide_to_plan,
    plan_cooling,
    plan_level,
)
from anabranch.balancing.level import BUCKETS_ONLY
from anabranch.balancing.planners.outcome import Clock
from anabranch.control.decide.choosing import PLAN, Choice, Round
from anabranch.control.decide.copied_inputs import copy_smaller_inputs, find_copied_loads
from anabranch.control.decide.moved_state import estimate_moved_bytes
from anabranch.control.decide.trials import FADE, Trials, name_strategy
from anabranch.control.decisions import Proposal
from anabranch.control.observe.loads import OperatorLoads, measure_level
from anabranch.model import RouteError
from anabranch.model.balance import AUTO, Balance, NamedStrategy, Routing
from anabranch.model.moves import PlanCosts
from anabranch.routing.bases.base_routes import BucketRoute
from anabranch.routing.bases.drawn import DrawnRoute
from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import (
    count_buckets,
    decide_named,
    goes_by_history,
    is_sticky,
    looks_at_keys,
    make_strategy,
    places_rows,
    strategy_over,
)
from anabranch.routing.strategies.coordinated import decide_bounded
from anabranch.routing.strategies.scores import Scores, score_loads

_AIM = 0.3
"""The part of the tolerance that a plan may use: loads are known from one batch, and the next one differs by chance."""
_MOST_REMEMBERED_KEYS = 100_000
_BYTES_A_ROW = 100.0
"""State that moves in the time of a row: 42 MB took as long as 0.3 million rows in the migration bench."""
_SHARING = 0.1
"""What it costs, as a part of a batch, that any key may be in several slots: an exchange more, in which parts meet."""
_WORTH_A_NEW_SHAPE = 0.1
"""How many of its rows a slot must be spared before all state of a grid moves for it."""
_BATCHES_A_SAMPLE = 8
"""Slots that are even, and stay so, send a sample as often as that: people want to see scores and hot keys."""


@dataclass(slots=True)
class Balancer:
    """Watches one operator, and proposes new routes when they are worth it."""

    routing: Routing
    clock: Clock | None = None
    last_reason: str = "no batch has been looked at"
    last_costs: PlanCosts | None = None
    """Of the last plan, carried out or not."""
    scores: Scores | None = None
    """What every strategy, decided on earlier rows, would have done with the last sample."""
    choice: Choice = field(default_factory=Choice)
    """The strategy that keys go by, and how the others stand."""
    _state: TriggerState | None = None
    _trials: Trials = field(default_factory=Trials)
    _known: Routes | None = None
    """The routes that the choice is about."""
    _proposed: tuple[str, Routes] | None = None
    _planned: LevelPlan | None = None
    """The plan for the batch that is looked at, once it is made."""
    _latest: KeySample | None = None
    _remembered: KeySample | None = None
    """The last sample with all earlier ones as its history; kept for strategies that go by it only."""
    _decided: str = ""
    """The strategy that has decided, or found that it cannot, since it was named."""
    _batches_without_sample: int = _BATCHES_A_SAMPLE
    _batches_unmeasured: int = _BATCHES_A_SAMPLE
    _imbalance: float = 1.0
    _sides: tuple[float, float] = (0.0, 0.0)
    """Of a join whose rows have places of their own, the rows of both inputs; earlier ones count less."""

    @property
    def balance(self) -> Balance | None:
        return self.routing.balance

    @property
    def wants_sample(self) -> bool:
        """Whether the next batch's slots should send a sample of their keys, hot or not.

        A plan for slots that were even so far can do without: it moves hot keys, which are always named, and buckets.
        """
        if self.routing.balance is None or self._places_rows:
            return False
        trigger = self.routing.balance.planning
        by_loads_alone = trigger.every_rows is None and trigger.every_seconds is None
        if self.routing.strategy != AUTO or not by_loads_alone or trigger.balance_below is not None:
            return True
        return self._nearly_uneven or self._batches_without_sample >= _BATCHES_A_SAMPLE - 1

    @property
    def wants_sizes(self) -> bool:
        """Whether the next batch's slots should measure their state: it changes slowly, and now and then is enough."""
        due = self._nearly_uneven or self._batches_unmeasured >= _BATCHES_A_SAMPLE - 1
        return self.routing.balance is not None and due

    @property
    def _places_rows(self) -> bool:
        """Whether rows are dealt to slots whatever their keys, so that no key need be known."""
        named = self.routing
        return named.strategy != AUTO and places_rows(make_strategy(named.strategy, **named.options))

    @property
    def _nearly_uneven(self) -> bool:
        return self.routing.balance is not None and self._imbalance > 1 + self.routing.balance.tolerance / 2

    def consider(self, loads: OperatorLoads, routes: Routes) -> Proposal | None:
        """Return better routes, or None; ``last_reason`` says why either way."""
        balance = self.routing.balance
        if loads.sample is not None:
            self._latest = loads.sample.with_powers(self.routing.powers_over(routes.slots))
            self._remember(self._latest, routes.slots)
            loads = replace(loads, sample=self._latest)
        # Also after a batch that is not judged: small ones are sampled again and again until one of them counts.
        self._batches_unmeasured = 0 if self.wants_sizes else self._batches_unmeasured + 1
        if self.is_undecided(routes):
            return self._decide_first(loads, routes)
        if balance is None:
            self.last_reason = "balancing is off"
            return None
        if self._state is None:
            self._state = TriggerState(loads.now_seconds, loads.rows_in_all)
        placed = self._place_new_keys(loads, routes)
        if placed is not None:
            return placed
        if loads.slot_rows.sum() < balance.fewest_rows_a_slot * routes.slots:
            self.last_reason = f"batch {loads.batch} had too few rows to tell skew from chance"
            return None
        self._batches_without_sample = 0 if loads.sample is not None else self._batches_without_sample + 1
        self._follow(routes)
        if isinstance(routes.base, DrawnRoute):
            return self._fit_shape(loads, routes.base, routes, balance)
        self._planned = None
        goal = Goal(
            routes.slots,
            _AIM * balance.tolerance,
            powers=self.routing.powers_over(routes.slots),
            oversized=balance.oversized,
        )
        started = self._now()
        reading = Reading(
            loads.batch,
            loads.now_seconds,
            loads.rows_in_all,
            loads.slot_rows,
            goal.find_means(float(loads.slot_rows.sum())),
            # Slots that share all keys are even whatever comes: what that costs must be weighed all the same.
            _extra(routes) if self.routing.strategy == AUTO else 0.0,
        )
        self._imbalance = reading.imbalance
        decision = decide_to_plan(balance.planning, self._state, reading)
        self._state = decision.state
        # Also where nothing is planned: every sample says something of every strategy.
        if loads.sample is not None:
            self._score(loads, loads.sample, routes, goal)
        if not decision.go:
            self.last_reason = decision.reason
            return self._cool(loads, routes, goal)
        proposal, expected = self._plan(loads, routes, goal)
        proposal = self._with_costs(proposal, loads, started)
        verdict = decide_to_apply(balance.planning, self._state, reading, reading.imbalance, expected)
        self._state = verdict.state
        self.last_reason = f"{decision.reason}: {proposal.reason}; {verdict.reason}"
        return replace(proposal, reason=self.last_reason, imbalance_expected=expected) if verdict.go else None

    def resize(self, loads: OperatorLoads | None, routes: Routes, slots: int) -> Proposal:
        """Return the routes over another number of slots; a new slot is an empty one."""
        reason = f"{routes.slots} slots become {slots}"
        # Also where a plan is made of loads: this refuses more slots than there are buckets.
        base = routes.base.resized(slots)
        strategy = None if self.routing.strategy == AUTO else strategy_over(self.routing, slots)
        staying = routes.table.without(routes.table.keys[routes.table.slots >= slots])
        if strategy is None and loads is not None and loads.bucket_rows.any() and _can_be_planned(routes):
            balance = self.routing.balance or Balance()
            powers = self.routing.powers_over(slots)
            goal = Goal(routes.slots, balance.tolerance, slots_after=slots, powers=powers, oversized=balance.oversized)
            # Who moves whole buckets only leaves keys of slots that go to their buckets.
            planned = routes.with_table(staying) if balance.planner == BUCKETS_ONLY else routes
            resized = _routes_of(self._plan_level(loads, planned, goal, balance.planner), routes, loads)
        else:
            splitter = None if routes.splitter is None else routes.splitter.resized(slots)
            resized = Routes(base, staying, splitter, routes.by)
            sample = self._remembered or self._latest
            if strategy is not None and looks_at_keys(strategy) and sample is not None:
                resized = decide_bounded(self.routing, sample, resized, slots)
        return Proposal(resized, reason, estimate_moved_bytes(loads, routes, resized))

    def switch(
        self, named: NamedStrategy | str, loads: OperatorLoads | None, routes: Routes, rng: np.random.Generator
    ) -> Proposal:
        """Return the routes of another strategy, decided from the last sample; ``auto`` plans from then on."""
        named = NamedStrategy(named) if isinstance(named, str) else named
        routing = self.routing.going_by(named)
        if named.name == AUTO:
            base = routes.base if isinstance(routes.base, BucketRoute) else _even_like(routes)
            chosen, reason = Routes(base, routes.table), "keys are planned from now on"
        else:
            sample = loads.sample if loads is not None and loads.sample is not None else self._latest
            reason = f"the strategy is {named} from now on"
            if sample is None and looks_at_keys(strategy_over(routing, routes.slots)):
                chosen, reason = routes, f"{reason}, once a batch has shown it keys"
            else:
                nothing = KeySample(np.empty(0, np.uint64), np.empty(0))
                chosen = decide_named(routing, sample or nothing, routes, rng)
        # Not before: a strategy that is refused must not be asked again after the next batch.
        self.routing, self._decided = routing, ""
        seen = loads if loads is None or loads.sample is not None else replace(loads, sample=self._latest)
        return Proposal(chosen, reason, estimate_moved_bytes(seen, routes, chosen))

    def count_costs(self, proposal: Proposal, loads: OperatorLoads | None) -> PlanCosts:
        """Return what routes cost from then on, as far as loads tell; planning them is not in it."""
        table, split_load = proposal.routes.table, 0.0
        if loads is not None and proposal.routes.splitter is not None:
            # A splitter shares out any key, so that results of all of them have to meet.
            split_load = float(loads.slot_rows.sum())
        elif loads is not None:
            split_load = sum(_later_rows(loads, proposal.routes, key) for key in table.split_keys().tolist())
        return PlanCosts(None, len(table.keys), proposal.moved_bytes, split_load)

    def is_undecided(self, routes: Routes) -> bool:
        """Say whether the named strategy has not decided yet where keys go."""
        by = str(self.routing.named)
        return self.routing.strategy != AUTO and by not in (routes.by, self._decided)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _decide_first(self, loads: OperatorLoads, routes: Routes) -> Proposal | None:
        """Return the routes of a strategy that was named before any key was known, or in another flow's time."""
        by = str(self.routing.named)
        if loads.sample is None:
            self.last_reason = f"{by} waits for slots to send a sample of their keys"
            return None
        self._decided = by
        try:
            chosen = decide_bounded(self.routing, self._remembered or loads.sample, routes, loads.batch)
        except RouteError as error:
            # It cannot decide on such keys: what is there stays, and the flow goes on.
            self.last_reason = str(error)
            return None
        self.last_reason = f"{by} decides, now that keys are known"
        return Proposal(chosen, self.last_reason, estimate_moved_bytes(loads, routes, chosen))

    def _fit_shape(self, loads: OperatorLoads, base: DrawnRoute, routes: Routes, balance: Balance) -> Proposal | None:
        """Return the routes of slots that rows are dealt to, if another shape suits what both inputs bring."""
        assert loads.join is not None and self._state is not None
        left, right = (FADE * past + now for past, now in zip(self._sides, loads.join.sides, strict=True))
        self._sides = left, right
        fitted = base.fitted(self._sides)
        busiest, busiest_then = (float(one.slot_rows(self._sides).max()) for one in (base, fitted))
        saved = 1 - busiest_then / max(busiest, 1.0)
        came = f"of a join that gets {left:,.0f} left and {right:,.0f} right rows"
        if fitted == base or saved < max(balance.planning.smallest_improvement, _WORTH_A_NEW_SHAPE):
            self.last_reason = f"{came}, the {base.label} is the best or nearly"
            return None
        settled = self._state.settled_batch
        if settled is not None and loads.batch - settled <= balance.planning.cool_down_batches:
            self.last_reason = f"the shape of the slots has changed after batch {settled}, and may again later"
            return None
        self._state = self._state.settle(loads.batch, loads.now_seconds)
        self.last_reason = f"{came}, the {base.label} becomes a {fitted.label}: slots get {saved:.0%} fewer rows"
        shaped = replace(routes, base=fitted)
        return Proposal(shaped, self.last_reason, estimate_moved_bytes(loads, routes, shaped))

    def _place_new_keys(self, loads: OperatorLoads, routes: Routes) -> Proposal | None:
        """Return the routes with keys that are new, by a strategy that decides once for each, when it comes."""
        if self.routing.strategy == AUTO or loads.sample is None:
            return None
        if not is_sticky(strategy_over(self.routing, routes.slots)):
            return None
        chosen = decide_bounded(self.routing, self._remembered or loads.sample, routes, loads.batch)
        if chosen == routes:
            return None
        new = count_of(len(chosen.table) - len(routes.table), "new key is placed", "new keys are placed")
        self.last_reason = f"{new} by {self.routing.named}"
        return Proposal(chosen, self.last_reason, estimate_moved_bytes(loads, routes, chosen))

    def _remember(self, sample: KeySample, slots: int) -> None:
        if self.routing.strategy == AUTO or not goes_by_history(strategy_over(self.routing, slots)):
            self._remembered = None
        elif self._remembered is None:
            self._remembered = sample
        else:
            self._remembered = sample.remembering(self._remembered, FADE).hottest(_MOST_REMEMBERED_KEYS)

    def _follow(self, routes: Routes) -> None:
        """Notice routes that are others than before, whoever made them."""
        if self._known is routes or self._known == routes:
            return
        name, proposed = self._proposed or ("", None)
        by_name = self.routing.strategy if self.routing.strategy != AUTO else name_strategy(routes)
        self.choice = self.choice.changed(name if proposed == routes else by_name)
        self._known, self._proposed = routes, None

    def _score(self, loads: OperatorLoads, sample: KeySample, routes: Routes, goal: Goal) -> None:
        """Score the routes as they are, the planner's plan and all strategies on a sample."""
        self.scores = self._trials.judge(
            sample, routes, loads.batch, lambda: _routes_of(self._find_plan(loads, routes, goal), routes, loads)
        )
        held = _worth(routes, score_loads(routes.loads(sample), sample.powers).max_over_mean)
        allowed = {
            scored.strategy: _worth(scored.routes, scored.score.max_over_mean)
            for scored in self.scores.ranked
            if _keeps_whole(scored.routes, loads)
        }
        self.choice = self.choice.after(Round(float(loads.slot_rows.sum()) / routes.slots, held, allowed))

    def _plan(self, loads: OperatorLoads, routes: Routes, goal: Goal) -> tuple[Proposal, float]:
        """Return the best routes that can be found, and the imbalance that they should give."""
        now = score_loads(loads.slot_rows, goal.powers).max_over_mean
        if self.routing.strategy != AUTO:
            if loads.sample is None:
                return Proposal(routes, "slots have sent no sample yet", 0.0), now
            try:
                chosen = decide_bounded(self.routing, self._remembered or loads.sample, routes, loads.batch)
            except RouteError as error:
                # It cannot decide on such keys: what is there stays, and the flow goes on.
                return Proposal(routes, str(error), 0.0), now
            score = score_loads(chosen.loads(loads.sample), loads.sample.powers)
            moved_bytes = estimate_moved_bytes(loads, routes, chosen)
            return Proposal(chosen, f"{self.routing.strategy} decides anew", moved_bytes), score.max_over_mean
        if self.choice.strategy != PLAN:
            reason = f"{self.choice.strategy} stays: nothing else has led for long enough"
            stays = Proposal(routes, reason, 0.0), _worth(routes, now)
            return self._choose(loads, routes, None) or stays
        plan = self._find_plan(loads, routes, goal)
        planner = self.routing.balance.planner if self.routing.balance is not None else ""
        proposal = Proposal(_routes_of(plan, routes, loads), describe_plan(plan, planner), plan.costs.moved_bytes)
        return self._choose(loads, routes, plan.imbalance_after) or (proposal, plan.imbalance_after)

    def _choose(self, loads: OperatorLoads, routes: Routes, planned: float | None) -> tuple[Proposal, float] | None:
        """Return the routes of the strategy that has led for long enough, if one has, and its score.

        ``planned`` is what a new plan promises, where keys go by plans: promises count until too much was lost to them.
        """
        if loads.sample is None or self.scores is None:
            return None
        moved_bytes: dict[str, float] = {}

        def find_cost(name: str) -> float:
            moved_bytes[name] = estimate_moved_bytes(loads, routes, self._trials.latest(name))
            return moved_bytes[name] / routes.slots / _BYTES_A_ROW

        name = self.choice.choose(find_cost, planned)
        if name is None:
            return None
        # Scored is what it had decided before the sample; what it decides now knows keys that are new in it.
        standing, chosen = self.choice.standings[name], self._trials.latest(name)
        self._proposed = name, chosen
        rival = "its routes as they are" if name == self.choice.strategy else self.choice.strategy
        reason = (
            f"{name} leads {rival} by {standing.lead_rows:,.0f} rows of the busiest slot, "
            f"and {moved_bytes[name]:,.0f} bytes of state to move are paid for"
        )
        return Proposal(chosen, reason, moved_bytes[name]), standing.score

    def _cool(self, loads: OperatorLoads, routes: Routes, goal: Goal) -> Proposal | None:
        """Return routes without the splits that are no longer needed."""
        assert self._state is not None
        settled = self._state.settled_batch
        if settled is not None and loads.batch - settled <= 1:
            return None
        if self.choice.strategy != PLAN or not len(routes.table.keys):
            return None
        swapped = self._swap_inputs(loads, routes)
        if swapped is not None:
            return swapped
        level = _measure(loads, routes)
        rest = level.find_rest()
        unlisted = np.bincount(rest.slots_of, rest.loads, minlength=goal.slots_in_all).astype(np.float64)
        started = self._now()
        plan = plan_cooling(replace(level.keys, unlisted=unlisted), routes.table, goal, clock=self.clock)
        if not len(plan.moves):
            return None
        self._state = self._state.settle(loads.batch, loads.now_seconds)
        merged = len(routes.table.split_keys()) - len(plan.table.split_keys())
        parts = count_of(len(plan.moves), "part of a key that cooled goes back", "parts of keys that cooled go back")
        self.last_reason = f"{parts}; {count_of(merged, 'key is', 'keys are')} whole again"
        proposal = Proposal(routes.with_table(plan.table), self.last_reason, plan.costs.moved_bytes)
        return self._with_costs(proposal, loads, started)

    def _swap_inputs(self, loads: OperatorLoads, routes: Routes) -> Proposal | None:
        """Return routes that copy the other input of split keys, where it has become much the smaller one."""
        swapped = copy_smaller_inputs(routes, routes, loads.join)
        if swapped == routes:
            return None
        assert self._state is not None
        self._state = self._state.settle(loads.batch, loads.now_seconds)
        keys = count_of(len(set(swapped.swapped) ^ set(routes.swapped)), "split key has", "split keys have")
        self.last_reason = f"{keys} the other input copied: it is the smaller one now"
        return Proposal(swapped, self.last_reason, estimate_moved_bytes(loads, routes, swapped))

    def _now(self) -> float:
        return self.clock() if self.clock is not None else 0.0

    def _with_costs(self, proposal: Proposal, loads: OperatorLoads, started: float) -> Proposal:
        """Return the proposal with what it costs: the time since planning began, and what its routes cost."""
        seconds = None if self.clock is None else self.clock() - started
        self.last_costs = replace(self.count_costs(proposal, loads), planning_seconds=seconds)
        return replace(proposal, costs=self.last_costs)

    def _find_plan(self, loads: OperatorLoads, routes: Routes, goal: Goal) -> LevelPlan:
        """Return the planner's plan for a batch: from the routes as they are, or from those of hashes."""
        if self._planned is None:
            assert self.routing.balance is not None
            start = routes if _can_be_planned(routes) else Routes(_even_like(routes))
            self._planned = self._plan_level(loads, start, goal, self.routing.balance.planner)
        return self._planned

    def _plan_level(self, loads: OperatorLoads, routes: Routes, goal: Goal, planner: str) -> LevelPlan:
        return plan_level(planner, _measure(loads, routes), routes.table, goal, clock=self.clock)


def _measure(loads: OperatorLoads, routes: Routes) -> LevelLoads:
    """Return what planners are told of a batch."""
    level = measure_level(loads, routes)
    if loads.join is None:
        return level
    copied, copied_bytes = find_copied_loads(loads.join, routes, level.keys.keys)
    return replace(level, copied=copied, copied_bytes=copied_bytes)


def _routes_of(plan: LevelPlan, now: Routes, loads: OperatorLoads) -> Routes:
    return copy_smaller_inputs(Routes(BucketRoute(plan.bucket_map), plan.table), now, loads.join)


def _later_rows(loads: OperatorLoads, routes: Routes, key: int) -> float:
    """Return the rows that a split key sends more: its results, which meet, or its copies."""
    if loads.join is None:
        return loads.hot_rows.get(key, 0.0)
    copied = loads.join.copied_under(routes, key)
    return loads.join.rows_of(key)[copied] * (len(routes.table.owners(key)) - 1)


def _can_be_planned(routes: Routes) -> bool:
    """Say whether planners, which know of buckets and the routing table only, see all of these routes."""
    return isinstance(routes.base, BucketRoute) and routes.splitter is None


def _even_like(routes: Routes) -> BucketRoute:
    return BucketRoute.even(routes.slots, max(count_buckets(routes.base), routes.slots))


def _worth(routes: Routes, max_over_mean: float) -> float:
    """Return what a score is worth: parts of every key that any slot may have must meet again."""
    return max_over_mean * (1 + _extra(routes))


def _extra(routes: Routes) -> float:
    """Return what a batch takes longer by its routes, as a part of it."""
    return 0.0 if routes.splitter is None else _SHARING


def _keeps_whole(routes: Routes, loads: OperatorLoads) -> bool:
    """Return whether routes share no keys but those that an operator's slots may share."""
    if routes.splitter is not None:
        # A join copies all rows of one input under a splitter: only who names it gets that.
        return loads.splittable and loads.spreadable and loads.join is None
    return loads.splittable or not len(routes.table.split_keys())


def describe_plan(plan: LevelPlan, planner: str) -> str:
    """Return what a plan does, and what it cannot do."""
    moves = [count_of(len(plan.key_plan.moves), "part of a key", "parts of keys")]
    if plan.bucket_plan is not None and len(plan.bucket_plan.moves):
        moves.append(count_of(len(plan.bucket_plan.moves), "bucket", "buckets"))
    facts = [f"{planner} moves {' and '.join(moves)}"]
    split = len(plan.table.split_keys())
    if split:
        facts.append(count_of(split, "key is split", "keys are split"))
    if plan.shortfall:
        facts.append(plan.shortfall)
    return "; ".join(facts)


def count_of(number: int, one: str, several: str) -> str:
    """Return a number with the word for one or for several."""
    return f"{number} {one if number == 1 else several}"
