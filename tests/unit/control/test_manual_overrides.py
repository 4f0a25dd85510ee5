"""People's overrides: checked against the routes and settings that there are."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from anabranch.control.manual_overrides import CommandRefused, change_setting, list_settings, place_key
from anabranch.errors import FlowError
from anabranch.model import RoutingTable
from anabranch.model.balance import Balance, BalanceTrigger, Routing
from anabranch.routing import KeyBatch, ModuloRoute, Routes

EVEN = Routes.even(4, 64)
KEY = 2**63 + 12345
HOME = int(EVEN.home_slots(KeyBatch(np.array([KEY], np.uint64)))[0])
AWAY = (HOME + 1) % 4


def owners(routes: Routes) -> dict[int, float]:
    return {share.slot: share.share for share in routes.table.owners(KEY)}


def test_a_key_moves_to_one_slot() -> None:
    proposal = place_key(EVEN, KEY, "seven", [AWAY])
    assert owners(proposal.routes) == {AWAY: 1.0}
    assert proposal.reason == f"key seven goes to slot {AWAY}"


def test_a_split_key_has_equal_shares() -> None:
    proposal = place_key(EVEN, KEY, "seven", [3, 0, 1])
    assert owners(proposal.routes) == pytest.approx({0: 1 / 3, 1: 1 / 3, 3: 1 / 3})
    assert proposal.reason == "key seven goes to slots 3, 0, 1"


def test_a_key_that_is_sent_home_needs_no_entry() -> None:
    moved = place_key(EVEN, KEY, "seven", [AWAY]).routes
    for slots in ([HOME], []):
        assert owners(place_key(moved, KEY, "seven", slots).routes) == {}


def test_other_keys_stay_where_they_are() -> None:
    table = RoutingTable.of({5: {2: 1.0}, KEY: {0: 0.5, 1: 0.5}})
    placed = place_key(EVEN.with_table(table), KEY, "seven", [AWAY]).routes
    assert [share.slot for share in placed.table.owners(5)] == [2]


def test_routes_by_value_take_every_placement() -> None:
    by_value = Routes(ModuloRoute(4))
    assert owners(place_key(by_value, KEY, "seven", [2]).routes) == {2: 1.0}


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([4], "there is no slot 4; there are 4, from 0 to 3"),
        ([1, 1], r"the slots \[1, 1\] name one of them twice"),
        ([], "key seven is neither moved nor split"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(slots: list[int], words: str) -> None:
    with pytest.raises(CommandRefused, match=words):
        place_key(EVEN, KEY, "seven", slots)


def test_settings_change_and_the_others_stay() -> None:
    given = Routing("auto", Balance(tolerance=0.2, planner="qmmp"))
    changed = change_setting(given, {"tolerance": "0.1", "fewest_rows_a_slot": 50})
    assert changed == Routing("auto", Balance(tolerance=0.1, planner="qmmp", fewest_rows_a_slot=50))


@pytest.mark.parametrize("planner", ["mnrt", "qmmp", "readj", "balance-load"])
def test_every_planner_can_be_chosen(planner: str) -> None:
    balance = change_setting(Routing(), {"planner": planner}).balance
    assert balance is not None and balance.planner == planner


TRIGGER_FIELDS = {
    "every_seconds": 20.0,
    "every_rows": 1_000,
    "imbalance_above": 1.2,
    "balance_below": 0.6,
    "smallest_improvement": 0.1,
    "cool_down_seconds": 3.0,
    "cool_down_batches": 4,
}


@pytest.mark.parametrize("name", TRIGGER_FIELDS)
def test_every_field_of_the_trigger_can_be_set_and_is_shown(name: str) -> None:
    assert set(TRIGGER_FIELDS) == {field.name for field in fields(BalanceTrigger)}
    balance = change_setting(Routing(), {name: str(TRIGGER_FIELDS[name])}).balance
    assert balance is not None
    assert balance.trigger == BalanceTrigger(**{name: TRIGGER_FIELDS[name]})  # type: ignore[arg-type]
    assert list_settings(balance)[name] == TRIGGER_FIELDS[name]


def test_a_mode_of_the_trigger_takes_the_place_of_the_tolerance_until_it_is_lifted() -> None:
    assert list_settings(Balance())["imbalance_above"] == 1.05
    periodic = change_setting(Routing(), {"every_seconds": 20})
    assert "imbalance_above" not in list_settings(periodic.balance)
    both = change_setting(periodic, {"imbalance_above": 1.5})
    assert both.balance is not None and set(both.balance.planning.conditions) == {"every_seconds", "imbalance_above"}
    lifted = change_setting(both, {"every_seconds": "none", "imbalance_above": None})
    assert list_settings(lifted.balance) == list_settings(Balance())


def test_planning_can_be_put_off_for_good() -> None:
    never = change_setting(Routing(), {"imbalance_above": "never"})
    assert never.balance is not None and never.balance.planning.imbalance_above == math.inf
    assert list_settings(never.balance)["imbalance_above"] == "never"


def test_balance_goes_off_and_on() -> None:
    off = change_setting(Routing(), {"balance": "off"})
    assert off.balance is None
    assert change_setting(off, {"balance": "ON"}).balance == Balance()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"speed": 1}, "there is no setting 'speed'; there are balance, tolerance, planner, protocol"),
        ({"balance": "maybe"}, "balance is 'maybe'; it can be on or off"),
        ({"tolerance": None}, "tolerance is None, which is no number"),
        ({"tolerance": "wide"}, "tolerance is 'wide', which is no number"),
        ({"tolerance": "nan"}, "tolerance is nan"),
        ({"fewest_rows_a_slot": "2.5"}, "which is no whole number"),
        ({"every_rows": 2.5}, "every_rows is 2.5, which is no whole number"),
        ({"every_rows": True}, "every_rows is True, which is no whole number"),
        ({"every_rows": "inf"}, "every_rows is 'inf', which is no whole number"),
        ({"every_seconds": 0}, "every_seconds is 0.0; give a number above 0"),
        ({"every_seconds": "soon"}, "every_seconds is 'soon', which is no number"),
        ({"balance_below": 2}, "balance_below is 2.0"),
        ({"cool_down_batches": None}, "cool_down_batches is None, which is no whole number"),
        ({"every_second": 5}, "there is no setting 'every_second'; did you mean 'every_seconds'"),
        ({"planner": "luck"}, "unknown planner 'luck'; there are mnrt, qmmp, readj, balance-load"),
        ({"protocol": "magic"}, "there are auto, state, window"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FlowError, match=words):
        change_setting(Routing(), given)
