"""What every planner promises, on random problems."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given

from anabranch.balancing import Goal, PlanKeys, plan_cooling, plan_mnrt, plan_qmmp, plan_readj
from anabranch.balancing.planners.outcome import Clock
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MoveEffect, MoveKind, MovePlan
from anabranch.model.routes import RoutingTable
from property_tests import tries
from unit.balancing.cases import (
    Case,
    add_up,
    assert_same_places,
    carry_out,
    cases,
    find_limits,
    find_places,
    find_worst,
)


def _plan_alone(loads: KeyLoads, table: RoutingTable, goal: Goal, *, clock: Clock | None = None) -> MovePlan:
    return plan_mnrt(loads, table, replace(goal, oversized="alone"), clock=clock)


SPLITTING: dict[str, PlanKeys] = {
    "mnrt": plan_mnrt,
    "mnrt alone": _plan_alone,
    "mnrt without whole keys instead of splits": partial(plan_mnrt, whole_keys_a_split=0),
    "qmmp": plan_qmmp,
}
EVERY: dict[str, PlanKeys] = SPLITTING | {"readj": plan_readj, "cooling": plan_cooling}

every_planner = pytest.mark.parametrize("plan_keys", EVERY.values(), ids=EVERY.keys())
splitting_planners = pytest.mark.parametrize("plan_keys", SPLITTING.values(), ids=SPLITTING.keys())
many = tries(75)


@every_planner
@given(case=cases())
@many
def test_moves_lead_from_the_old_places_to_those_of_the_new_table(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    before = find_places(case.loads, case.table, later=False)
    after = find_places(case.loads, plan.table, later=True)
    assert_same_places(carry_out(plan, before), after)


@every_planner
@given(case=cases(splittable=False, unlisted=True))
@many
def test_load_is_conserved(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    after = add_up(case.loads, find_places(case.loads, plan.table, later=True), case.goal.slots_in_all)
    assert sum(after) == pytest.approx(plan.loads_before.sum())
    assert plan.loads_after.tolist() == pytest.approx(after, abs=1e-6)


@splitting_planners
@given(case=cases())
@many
def test_every_slot_is_within_its_limit_when_keys_may_be_split(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    after = add_up(case.loads, find_places(case.loads, plan.table, later=True), case.goal.slots_in_all)
    limits = find_limits(case)
    scale = max(limits)
    assert all(load <= limit + 1e-7 * scale for load, limit in zip(after, limits, strict=True))
    assert plan.meets_limits


@every_planner
@given(case=cases(splittable=False, unlisted=True, growing=False))
@many
def test_a_plan_that_misses_the_limits_makes_no_slot_busier_than_the_busiest(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    limits = find_limits(case)
    count = case.goal.slots_in_all
    before = add_up(case.loads, find_places(case.loads, case.table, later=False), count)
    after = add_up(case.loads, find_places(case.loads, plan.table, later=True), count)
    assert find_worst(after, limits) <= max(find_worst(before, limits), 1.0) * (1 + 1e-7)


@every_planner
@given(case=cases(splittable=False))
@many
def test_table_names_exactly_the_keys_away_from_home(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    homes = dict(zip(case.loads.keys.tolist(), case.loads.later_homes.tolist(), strict=True))
    named = {key: plan.table.owners(key) for key in plan.table.keys.tolist()}
    for key, owners in named.items():
        assert len(owners) > 1 or owners[0].slot != homes[key]
    # Keys without a row are at home: the first test of this file makes the moves and finds them there.
    assert plan.costs.table_rows == len(plan.table.keys)


@every_planner
@given(case=cases(splittable=False, unlisted=True))
@many
def test_equal_inputs_give_equal_plans(plan_keys: PlanKeys, case: Case) -> None:
    assert plan_keys(case.loads, case.table, case.goal) == plan_keys(case.loads, case.table, case.goal)


@every_planner
@given(case=cases(splittable=False))
@many
def test_removed_slots_are_empty_afterwards(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    places = find_places(case.loads, plan.table, later=True)
    if plan_keys is plan_cooling:
        # It undoes what is not needed any more, and nothing else.
        return
    assert all(slot < case.goal.slots_later for shares in places.values() for slot in shares)


@every_planner
@given(case=cases(splittable=False))
@many
def test_keys_that_may_not_be_split_stay_whole(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    assert case.loads.splittable is not None
    fixed = set(case.loads.keys[~case.loads.splittable].tolist())
    assert not fixed & set(plan.table.split_keys().tolist())


@every_planner
@given(case=cases(splittable=False, unlisted=True))
@many
def test_plan_says_when_a_limit_is_not_met(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    limits = find_limits(case)
    after = add_up(case.loads, find_places(case.loads, plan.table, later=True), case.goal.slots_in_all)
    # Between the two is rounding, where either word is right.
    if any(load > limit + 1e-6 * max(limits) for load, limit in zip(after, limits, strict=True)):
        assert plan.shortfall
    if all(load <= limit - 1e-6 * max(limits) for load, limit in zip(after, limits, strict=True)):
        assert not plan.shortfall


@every_planner
@given(case=cases())
@many
def test_kinds_and_effects_are_what_the_moves_do(plan_keys: PlanKeys, case: Case) -> None:
    plan = plan_keys(case.loads, case.table, case.goal)
    homes = dict(zip(case.loads.keys.tolist(), case.loads.later_homes.tolist(), strict=True))
    before = find_places(case.loads, case.table, later=False)
    after = find_places(case.loads, plan.table, later=True)
    for move in plan.moves:
        home = homes[move.subject]
        assert move.source != move.target
        assert (move.kind is MoveKind.RETURN_HOME) == (move.target == home)
        assert (move.kind is MoveKind.MOVE_OUT) == (move.source == home)
        if move.effect is MoveEffect.SPLIT:
            stays = move.source in after[move.subject]
            assert stays or sum(m.subject == move.subject and m.source == move.source for m in plan.moves) > 1
        else:
            assert move.source not in after[move.subject]
            meets = move.target in before[move.subject] or (
                sum(m.subject == move.subject and m.target == move.target for m in plan.moves) > 1
            )
            assert (move.effect is MoveEffect.MERGE) == meets
