"""Joins whose rows have places of their own: what the balancer makes of them, and what people may tell them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.control.decide.balancer import Balancer
from anabranch.control.decide.moved_state import estimate_moved_bytes
from anabranch.control.facts import OperatorFacts, find_operators
from anabranch.control.manual_overrides import CommandRefused, note_for_all
from anabranch.control.observe.join_loads import JoinLoads
from anabranch.control.observe.loads import OperatorLoads
from anabranch.control.operator_status import describe_operator
from anabranch.control.operators import ControlledOperator
from anabranch.model.balance import Balance, Routing
from anabranch.operators import make_kernel
from anabranch.query.plan import make_plan
from anabranch.routing import BipartiteRoute, GridRoute, Routes
from anabranch.routing.phases import PhasedRoutes

EAGER = Routing("matrix", Balance(fewest_rows_a_slot=1))
MATRIX = Routes(GridRoute(8, 2, 4, doubles=True), by="matrix")


def loads(left: float, right: float, batch: int = 1, base: Any = MATRIX.base) -> OperatorLoads:
    return OperatorLoads(
        batch=batch,
        now_seconds=float(batch),
        rows_in_all=batch * 1_000,
        slot_rows=base.slot_rows((left, right)),
        bucket_rows=np.zeros(512),
        hot_rows={},
        sample=None,
        state_bytes=1e6,
        splittable=True,
        join=JoinLoads(copied=1, swaps=True, sides=(left, right)),
    )


def test_the_matrix_follows_the_sizes_of_both_sides_and_says_why() -> None:
    balancer = Balancer(EAGER)
    assert balancer.consider(loads(1_000, 1_000), MATRIX) is None
    assert "1,000 left and 1,000 right rows, the grid of 2 × 4 slots is the best or nearly" in balancer.last_reason
    proposal = balancer.consider(loads(9_000, 1_000, batch=2), MATRIX)
    assert proposal is not None
    assert proposal.routes == replace(MATRIX, base=GridRoute(8, 8, 1, doubles=True))
    assert "the grid of 2 × 4 slots becomes a grid of 8 × 1 slots: slots get" in proposal.reason
    assert proposal.moved_bytes > 0


def test_a_matrix_keeps_its_shape_for_a_while() -> None:
    balancer = Balancer(EAGER)
    proposal = balancer.consider(loads(9_000, 100), MATRIX)
    assert proposal is not None
    assert balancer.consider(loads(1, 90_000, batch=2, base=proposal.routes.base), proposal.routes) is None
    assert "may again later" in balancer.last_reason
    assert balancer.consider(loads(1, 90_000, batch=3, base=proposal.routes.base), proposal.routes) is not None


def test_two_halves_have_one_shape() -> None:
    halves = Routes(BipartiteRoute(6, 6), by="bi6")
    balancer = Balancer(replace(EAGER, strategy="bi6"))
    assert balancer.consider(loads(9_000, 10, base=halves.base), halves) is None
    assert not balancer.wants_sample


@pytest.mark.parametrize("slots", [1, 3, 9, 16])
def test_slots_come_and_go(slots: int) -> None:
    proposal = Balancer(EAGER).resize(loads(10, 10), MATRIX, slots)
    assert isinstance(proposal.routes.base, GridRoute)
    assert (proposal.routes.slots, proposal.routes.by, proposal.routes.base.doubles) == (slots, "matrix", True)


def test_state_that_stays_where_it_is_is_not_counted_as_moved() -> None:
    assert estimate_moved_bytes(loads(1, 1), MATRIX, MATRIX) == 0
    # Rows of the left side are on two cells of four, columns become one of two.
    wider = Routes(GridRoute(8, 4, 2, doubles=True))
    assert 0 < estimate_moved_bytes(loads(1, 1), MATRIX, wider) < 1e6
    assert estimate_moved_bytes(loads(1, 1), MATRIX, Routes.even(8)) == 1e6


def operator_of(routing: str, routes: Routes) -> ControlledOperator:
    flow = ab.Flow("joins")
    frame = pl.DataFrame(schema={"key": pl.Int64, "ts": pl.Datetime("us")})
    left, right = (flow.read(ab.memory(frame)).watermark("ts") for _ in range(2))
    left.join(right, on="key", within="1s", routing=routing).write(ab.to_memory())
    plan = make_plan(left.graph, 8)
    (node,) = plan.stateful
    (facts,) = find_operators(plan, {node.id: make_kernel(node.operation.spec)})  # type: ignore[union-attr]
    assert isinstance(facts, OperatorFacts)
    return ControlledOperator(facts, Balancer(facts.routing), phases=PhasedRoutes(routes))


def tell(operator: ControlledOperator, action: Any, **given: Any) -> str:
    command = Command("1", action, None, given)
    return note_for_all([operator], command, seen_batch=1, begun_batch=1)[0]


def test_people_change_slots_and_strategies_and_are_shown_what_slots_form() -> None:
    operator = operator_of("matrix", MATRIX)
    assert describe_operator(operator)["shape"] == "grid of 2 × 4 slots"
    assert "8 slots become 4" in tell(operator, "slots", count=4)
    assert operator.overrides[-1].routes.base == GridRoute(4, 2, 2, doubles=True)
    tell(operator, "strategy", name="bi")
    assert operator.overrides[-1].routes.base == BipartiteRoute(4)
    tell(operator, "strategy", name="hash")
    assert operator.overrides[-1].routes == replace(Routes.even(4), by="hash")


def test_what_has_no_place_by_key_is_not_moved_by_key() -> None:
    with pytest.raises(
        CommandRefused, match="deals its rows to a grid of 2 × 4 slots, whatever their keys; there is no key"
    ):
        tell(operator_of("matrix", MATRIX), "move", key="1", slot=1)


def test_rows_without_a_drawn_number_cannot_be_dealt() -> None:
    with pytest.raises(CommandRefused, match="join has no numbers drawn for its rows, by which bi places them"):
        tell(operator_of("hash", Routes.even(8)), "strategy", name="bi")
