"""When to plan, and which plans are worth it."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.balancing import BalanceTrigger, Goal, Reading, TriggerState, decide_to_apply, decide_to_plan
from anabranch.model.balance import Balance
from anabranch.model.loads import LoadError

START = TriggerState(asked_seconds=0.0, asked_rows=0)


def _read(*loads: float, batch: int = 5, now: float = 10.0, rows: int = 1000) -> Reading:
    column = np.array(loads)
    return Reading(batch, now, rows, column, Goal(len(loads)).find_means(float(column.sum())))


def test_even_slots_ask_for_nothing() -> None:
    decision = decide_to_plan(BalanceTrigger(), START, _read(10, 10, 10))
    assert not decision.go
    assert decision.state == START


def test_a_busy_slot_asks_for_a_plan() -> None:
    decision = decide_to_plan(BalanceTrigger(imbalance_above=1.05), START, _read(10, 10, 12))
    assert decision.go
    assert decision.reason == "the busiest slot has 1.125 × its share, above 1.05"


def test_an_idle_slot_asks_for_a_plan_when_balance_is_watched() -> None:
    trigger = BalanceTrigger(balance_below=0.6)
    assert decide_to_plan(trigger, START, _read(10, 5)).go
    assert not decide_to_plan(trigger, START, _read(10, 7)).go


def test_strong_slots_may_be_busier() -> None:
    column = np.array([30.0, 10.0])
    reading = Reading(1, 0.0, 0, column, Goal(2, powers=(3, 1)).find_means(40))
    assert reading.balance == 1
    assert not decide_to_plan(BalanceTrigger(), START, reading).go


def test_time_asks_for_a_plan_again_and_again() -> None:
    trigger = BalanceTrigger(every_seconds=5)
    first = decide_to_plan(trigger, START, _read(1, 1, now=5.0))
    assert first.go
    assert not decide_to_plan(trigger, first.state, _read(1, 1, now=9.0)).go
    assert decide_to_plan(trigger, first.state, _read(1, 1, now=10.0)).go


def test_rows_ask_for_a_plan_again_and_again() -> None:
    trigger = BalanceTrigger(every_rows=100)
    first = decide_to_plan(trigger, START, _read(1, 1, rows=150))
    assert first.go
    assert "every 100" in first.reason
    assert not decide_to_plan(trigger, first.state, _read(1, 1, rows=249)).go
    assert decide_to_plan(trigger, first.state, _read(1, 1, rows=250)).go


def test_after_a_plan_the_loads_are_looked_at_first() -> None:
    trigger = BalanceTrigger(imbalance_above=1.05, cool_down_batches=2)
    settled = decide_to_apply(trigger, START, _read(10, 20, batch=5), 1.3, 1.0).state
    assert not decide_to_plan(trigger, settled, _read(10, 20, batch=6)).go
    assert not decide_to_plan(trigger, settled, _read(10, 20, batch=7)).go
    assert decide_to_plan(trigger, settled, _read(10, 20, batch=8)).go


def test_the_cool_down_may_be_a_time() -> None:
    trigger = BalanceTrigger(imbalance_above=1.05, cool_down_batches=0, cool_down_seconds=30)
    settled = decide_to_apply(trigger, START, _read(10, 20, now=10), 1.3, 1.0).state
    waiting = decide_to_plan(trigger, settled, _read(10, 20, now=25))
    assert (waiting.go, waiting.reason) == (False, "cooling down: 15.0 s are left")
    assert decide_to_plan(trigger, settled, _read(10, 20, now=40)).go


def test_a_plan_that_improves_too_little_is_refused_and_not_made_again_at_once() -> None:
    trigger = BalanceTrigger(smallest_improvement=0.05)
    refused = decide_to_apply(trigger, START, _read(10, 20, batch=5), 1.33, 1.30)
    assert not refused.go
    assert "less than 0.05 is not worth it" in refused.reason
    assert not decide_to_plan(trigger, refused.state, _read(10, 20, batch=6)).go


def test_a_plan_that_improves_enough_is_carried_out() -> None:
    accepted = decide_to_apply(BalanceTrigger(smallest_improvement=0.05), START, _read(10, 20), 1.33, 1.05)
    assert accepted.go
    assert accepted.reason == "the plan takes the busiest slot from 1.330 to 1.050 × its share"


def test_no_improvement_is_never_enough() -> None:
    assert not decide_to_apply(BalanceTrigger(smallest_improvement=0), START, _read(1, 1), 1.0, 1.0).go


@pytest.mark.parametrize(
    ("trigger", "due"),
    [
        (BalanceTrigger(every_seconds=20), [False, False, False, True]),
        (BalanceTrigger(every_rows=500), [False, False, True, True]),
        (BalanceTrigger(balance_below=0.6), [False, True, False, False]),
        (BalanceTrigger(imbalance_above=1.2), [False, True, False, False]),
        (BalanceTrigger(every_seconds=20, imbalance_above=1.2), [False, True, False, True]),
    ],
    ids=["periodic", "by rows", "balance", "imbalance", "any of two"],
)
def test_a_trigger_goes_by_what_it_was_given_and_by_nothing_else(trigger: BalanceTrigger, due: list[bool]) -> None:
    even, uneven = (10, 10), (5, 15)
    readings = [
        _read(*even, rows=400),
        _read(*uneven, rows=400),
        _read(*even, rows=600),
        _read(*even, rows=600, now=21.0),
    ]
    planning = Balance(trigger=trigger).planning
    assert [decide_to_plan(planning, START, reading).go for reading in readings] == due


@pytest.mark.parametrize("trigger", [None, BalanceTrigger(), BalanceTrigger(cool_down_batches=3)])
def test_a_trigger_without_a_condition_goes_by_the_tolerance(trigger: BalanceTrigger | None) -> None:
    planning = Balance(tolerance=0.3, trigger=trigger).planning
    assert not decide_to_plan(planning, START, _read(10, 15)).go
    assert decide_to_plan(planning, START, _read(5, 15)).go
    assert planning.cool_down_batches == (trigger or BalanceTrigger()).cool_down_batches


@pytest.mark.parametrize(
    "wrong",
    [
        {"every_seconds": 0},
        {"every_rows": -1},
        {"every_seconds": float("nan")},
        {"imbalance_above": float("nan")},
        {"cool_down_seconds": float("nan")},
        {"imbalance_above": 0.9},
        {"balance_below": 1.5},
        {"smallest_improvement": -1},
        {"cool_down_batches": -1},
    ],
)
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LoadError, match=next(iter(wrong))):
        BalanceTrigger(**wrong)  # type: ignore[arg-type]


def test_no_load_is_even() -> None:
    reading = _read(0, 0)
    assert (reading.balance, reading.imbalance) == (1, 1)
