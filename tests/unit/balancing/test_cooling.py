"""Split keys merge and moved keys return home once they have cooled, and not before."""

from __future__ import annotations

from anabranch.balancing import Goal, plan_cooling
from anabranch.model.moves import MoveEffect, MoveKind
from anabranch.model.routes import RoutingTable
from unit.balancing.cases import make_loads

FILL = {100: (40.0, 0), 101: (40.0, 1), 102: (40.0, 2)}


def test_a_cooled_split_key_merges_at_home() -> None:
    loads = make_loads({1: (1.0, 0)} | FILL)
    plan = plan_cooling(loads, RoutingTable.of({1: {0: 0.2, 1: 0.5, 2: 0.3}}), Goal(3))
    assert not len(plan.table)
    assert {move.kind for move in plan.moves} == {MoveKind.RETURN_HOME}
    assert {move.effect for move in plan.moves} == {MoveEffect.MERGE}
    assert plan.moves[0].reason.startswith("the key's load fell")


def test_a_hot_split_key_stays_split() -> None:
    loads = make_loads({1: (15.0, 0)} | FILL)
    table = RoutingTable.of({1: {0: 0.5, 1: 0.5}})
    assert plan_cooling(loads, table, Goal(3)).table == table


def test_between_hot_and_cool_nothing_changes() -> None:
    # The mean is about 46: 12 is not enough to be split for, and too much to be merged, although home has room.
    loads = make_loads({1: (12.0, 0), 100: (33.0, 0), 101: (46.0, 1), 102: (46.0, 2)})
    table = RoutingTable.of({1: {0: 0.9, 1: 0.1}})
    assert plan_cooling(loads, table, Goal(3)).table == table
    assert not len(plan_cooling(loads, table, Goal(3), cool_share=0.5).table.split_keys())


def test_where_home_has_no_room_the_key_merges_at_its_largest_part() -> None:
    loads = make_loads({1: (4.0, 0), 100: (48.0, 0), 101: (40.0, 1), 102: (40.0, 2)})
    plan = plan_cooling(loads, RoutingTable.of({1: {0: 0.2, 1: 0.5, 2: 0.3}}), Goal(3))
    assert plan.table == RoutingTable.of({1: {1: 1.0}})


def test_a_merge_leaves_half_the_tolerance_free() -> None:
    # 44 on average, so 46.2 is the limit: each slot would be between 45.1 and that.
    loads = make_loads({1: (6.0, 0), 100: (39.5, 0), 101: (42.0, 1), 102: (44.5, 2)})
    table = RoutingTable.of({1: {0: 0.5, 1: 0.5}})
    assert plan_cooling(loads, table, Goal(3)).table == table


def test_a_cooled_whole_key_returns_home_unless_told_to_stay() -> None:
    loads = make_loads({1: (1.0, 0)} | FILL)
    table = RoutingTable.of({1: {2: 1.0}})
    assert not len(plan_cooling(loads, table, Goal(3)).table)
    assert plan_cooling(loads, table, Goal(3), sends_home=False).table == table


def test_a_key_without_load_returns_home() -> None:
    loads = make_loads({1: (0.0, 0)} | FILL)
    assert not len(plan_cooling(loads, RoutingTable.of({1: {1: 0.5, 2: 0.5}}), Goal(3)).table)
