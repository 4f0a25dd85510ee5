"""Loads, goals and the registry: what is refused, and with which word."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.balancing import PLANNERS, Goal, find_planner, plan_mnrt, plan_qmmp, register_planner
from anabranch.balancing.planners.parts import locate_parts
from anabranch.model.loads import BucketLoads, KeyLoads, LoadError
from anabranch.model.moves import MoveKind, Moves
from anabranch.model.routes import BucketMap, RoutingTable
from unit.balancing.cases import make_loads


def test_keys_are_sorted_with_their_columns() -> None:
    loads = KeyLoads.of([3, 1, 2], [30, 10, 20], [0, 1, 2], [3, 1, 2], splittable=[False, True, True])
    assert loads.keys.tolist() == [1, 2, 3]
    assert loads.loads.tolist() == [10, 20, 30]
    assert loads.homes.tolist() == [1, 2, 0]
    assert loads.splittable is not None
    assert loads.splittable.tolist() == [True, True, False]


def test_parts_follow_the_table_and_the_base_route() -> None:
    loads = make_loads({1: (10.0, 0), 2: (20.0, 1), 3: (30.0, 2)})
    parts = locate_parts(loads, RoutingTable.of({1: {2: 1.0}, 2: {0: 0.25, 1: 0.75}}))
    assert parts.key_rows.tolist() == [0, 1, 1, 2]
    assert parts.slots.tolist() == [2, 0, 1, 2]
    assert parts.loads.tolist() == [10, 5, 15, 30]
    assert parts.listed.tolist() == [0, 1, 2]


def test_a_table_key_without_a_load_is_refused() -> None:
    loads = make_loads({1: (10.0, 0)})
    with pytest.raises(LoadError, match="names 1 keys without a load, among them 0000000000000009"):
        plan_mnrt(loads, RoutingTable.of({9: {1: 1.0}}), Goal(2))


def test_keys_are_included_without_load() -> None:
    loads = make_loads({1: (10.0, 0)}).including([9, 1, 9], [1, 1, 1])
    assert loads.keys.tolist() == [1, 9]
    assert loads.loads.tolist() == [10, 0]
    assert loads.homes.tolist() == [0, 1]
    assert loads.including([1], [0]) is loads


def test_included_keys_may_be_unsplittable() -> None:
    loads = make_loads({1: (10.0, 0)}).including([9], [1], next_homes=[0], splittable=False)
    assert loads.splittable is not None
    assert loads.splittable.tolist() == [True, False]
    assert loads.later_homes.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"loads": [1.0]}, "loads has 1 rows for 2 keys"),
        ({"loads": [1.0, -1.0]}, "loads holds"),
        ({"loads": [1.0, float("nan")]}, "loads holds"),
        ({"homes": [0, -1]}, "homes holds"),
        ({"keys": [2, 1]}, "not sorted"),
        ({"keys": [1, 1]}, "there twice"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, list[float]], word: str) -> None:
    good = {"keys": [1, 2], "loads": [1.0, 1.0], "state_bytes": [1.0, 1.0], "homes": [0, 0]}
    with pytest.raises(LoadError, match=word):
        KeyLoads(**{name: np.array(column) for name, column in (good | columns).items()})


def test_bucket_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LoadError, match="loads has 1 rows for 2 buckets"):
        BucketLoads(BucketMap(1, (0, 0)), np.ones(1))


@pytest.mark.parametrize(
    "wrong",
    [{"slots": 0}, {"slots": 2, "slots_after": 0}, {"slots": 2, "tolerance": -0.1}, {"slots": 2, "powers": (1,)}],
)
def test_senseless_goals_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(LoadError):
        Goal(**wrong)  # type: ignore[arg-type]


def test_homes_beyond_the_slots_are_refused() -> None:
    with pytest.raises(LoadError, match="homes name slot 5; there are slots 0 to 1"):
        plan_qmmp(make_loads({1: (1.0, 5)}), RoutingTable.empty(), Goal(2))


def test_slots_cannot_go_before_the_base_route_is_known() -> None:
    with pytest.raises(LoadError, match="give next_homes"):
        plan_qmmp(make_loads({1: (1.0, 1)}), RoutingTable.empty(), Goal(2, slots_after=1))


def test_unlisted_load_on_slots_that_go_is_refused() -> None:
    loads = make_loads({1: (1.0, 0)}, unlisted=[1.0, 1.0])
    with pytest.raises(LoadError, match="unlisted"):
        plan_qmmp(loads, RoutingTable.empty(), Goal(2, slots_after=1))


def test_means_follow_the_powers_and_leave_out_slots_that_go() -> None:
    assert Goal(3, slots_after=2, powers=(1, 3)).find_means(8).tolist() == [2, 6, 0]


def test_a_users_own_planner_is_found_by_name() -> None:
    @register_planner("lazy", "never moves anything", splits_keys=False)
    def plan_lazy(*arguments: object, **options: object) -> object:
        return None

    try:
        assert find_planner("lazy").plan is plan_lazy
        with pytest.raises(LoadError, match="already"):
            register_planner("lazy", "twice", splits_keys=False)(plan_lazy)  # type: ignore[arg-type]
    finally:
        del PLANNERS["lazy"]


def test_moves_read_as_sentences() -> None:
    plan = plan_mnrt(make_loads({1: (10.0, 0), 2: (10.0, 0)}), RoutingTable.empty(), Goal(2))
    (move,) = plan.moves
    assert move.reason == "slot 0 is above its limit"
    assert plan.moves.count(kind=MoveKind.MOVE_OUT) == 1
    assert not len(Moves.none())
