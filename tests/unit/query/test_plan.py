"""A flow is cut where rows must meet, and nowhere else."""

from __future__ import annotations

import pytest

from anabranch.errors import FlowError
from anabranch.operators.aggregates.functions import count
from anabranch.query import PARALLELISMS, FlowGraph, Parallelism, Plan, make_plan
from unit.query.fakes import FakeSink, read_readings, timed_readings


def paper_flow() -> FlowGraph:
    """Return six operators in a row: map and filter, two stateful ones, each with a stateless one behind it.

    The paper's example has a join and an aggregate; two aggregates have the same shape.
    """
    flow = FlowGraph("figure-1")
    (
        read_readings(flow)
        .with_columns(kilovolts="volts / 1000")
        .filter("volts > 0")
        .key_by("sensor", "region")
        .agg(readings=count())
        .with_columns(doubled="readings * 2")
        .key_by("region")
        .agg(updates=count())
        .filter("updates > 3")
        .write(FakeSink())
    )
    return flow


def branching_flow() -> FlowGraph:
    """Return a flow whose readings go to two aggregates, and from one of them to a third."""
    flow = FlowGraph("branches")
    readings = timed_readings(flow).filter("volts > 0")
    by_sensor = readings.window("10s").agg(rows=count())
    by_sensor.write(FakeSink("a"))
    readings.key_by("region").window("30s").agg(rows=count()).write(FakeSink("b"))
    by_sensor.key_by("sensor").window("1m").agg(windows=count()).write(FakeSink("c"))
    readings.write(FakeSink("d"))
    return flow


def labels(plan: Plan, members: tuple[int, ...]) -> list[str]:
    return [plan.nodes[member].label.split(" ")[0] for member in members]


def test_operator_set_has_two_hops_and_fan_out_60_on_90_nodes() -> None:
    plan = make_plan(paper_flow(), slots=30)
    assert (len(plan.operators), len(plan.stateful)) == (6, 2)
    assert len(plan.subqueries) == 3
    assert (plan.hops, plan.slots, plan.fan_out) == (2, (30, 30), 60)


def test_operator_parallelism_has_five_hops_and_fan_out_75_on_90_nodes() -> None:
    plan = make_plan(paper_flow(), slots=30, parallelism="operator")
    assert len(plan.subqueries) == 6
    assert (plan.hops, plan.slots, plan.fan_out) == (5, (15,) * 5, 75)


def test_query_parallelism_sends_every_exchange_to_all_90_nodes() -> None:
    plan = make_plan(paper_flow(), slots=30, parallelism="query")
    assert (plan.hops, plan.slots, plan.fan_out) == (2, (90, 90), 180)


def test_a_subquery_is_a_stateful_operator_with_the_stateless_ones_behind_it() -> None:
    plan = make_plan(paper_flow(), slots=4)
    assert [labels(plan, subquery.members) for subquery in plan.subqueries] == [
        ["files", "with_columns", "filter"],
        ["agg", "with_columns"],
        ["agg", "filter", "parquet"],
    ]


def test_a_leading_stateless_operator_runs_where_its_spring_is_read() -> None:
    plan = make_plan(paper_flow(), slots=4, parallelism="operator")
    assert labels(plan, plan.subqueries[0].members) == ["files", "with_columns"]


def test_reading_is_a_level_even_where_a_stateful_operator_comes_first() -> None:
    flow = FlowGraph("no-leading-part")
    read_readings(flow).distinct("sensor").write(FakeSink())
    for parallelism in PARALLELISMS:
        assert make_plan(flow, 4, parallelism).hops == 1  # type: ignore[arg-type]


def test_unions_and_watermarks_are_no_operators() -> None:
    flow = FlowGraph("united")
    timed_readings(flow).union(timed_readings(flow)).window("10s").agg(rows=count()).write(FakeSink())
    plan = make_plan(flow, 4, "operator")
    assert [node.label.split(" ")[0] for node in plan.operators] == ["agg"]
    assert plan.hops == 1


def test_stateful_operators_side_by_side_share_a_level() -> None:
    plan = make_plan(branching_flow(), slots=4)
    assert [len(heads) for heads in plan.levels] == [2, 1]
    assert plan.fan_out == 8
    assert [plan.level_of(head) for level in plan.levels for head in level] == [1, 1, 2]
    assert plan.level_of(plan.sources[0].id) == 0


def test_every_edge_of_the_flow_is_within_a_subquery_or_an_exchange() -> None:
    graph = branching_flow()
    for parallelism in PARALLELISMS:
        plan = make_plan(graph, 4, parallelism)  # type: ignore[arg-type]
        heads = {head for level in plan.levels for head in level}
        for node in graph.nodes.values():
            for source in node.inputs:
                together = [s for s in plan.subqueries if {source, node.id} <= set(s.members)]
                assert bool(together) != (node.id in heads)


def test_a_union_of_levels_runs_in_each_of_them() -> None:
    flow = FlowGraph("levels")
    readings = read_readings(flow)
    readings.union(readings.distinct("sensor")).filter("volts > 0").write(FakeSink())
    plan = make_plan(flow, slots=4)
    assert [labels(plan, subquery.members)[-3:] for subquery in plan.subqueries] == [["union", "filter", "parquet"]] * 2


def test_a_stateless_flow_has_no_hops() -> None:
    flow = FlowGraph("stateless")
    read_readings(flow).filter("volts > 0").write(FakeSink())
    for parallelism in PARALLELISMS:
        plan = make_plan(flow, 4, parallelism)  # type: ignore[arg-type]
        assert (plan.hops, plan.fan_out, len(plan.subqueries)) == (0, 0, 1)


def test_operators_follow_the_nearest_watermarks_above_them() -> None:
    flow = FlowGraph("two-watermarks")
    united = timed_readings(flow).union(timed_readings(flow)).window("10s").agg(rows=count())
    plan = make_plan(flow, slots=4)
    watermarks = [node.id for node in flow.nodes.values() if node.label.startswith("watermark")]
    assert plan.watermarks[united.node.id] == tuple(watermarks)


def test_a_window_fed_by_windows_lags() -> None:
    plan = make_plan(branching_flow(), slots=4)
    assert plan.lagging == frozenset(plan.levels[1])


def test_the_same_plan_under_another_strategy_shares_out_the_same_total() -> None:
    plan = make_plan(paper_flow(), slots=30)
    strategies: list[Parallelism] = ["operator", "query", "operator-set"]
    for parallelism in strategies:
        assert plan.under(parallelism) == make_plan(_same(plan), 30, parallelism)


def test_operator_parallelism_never_has_fewer_than_one_slot() -> None:
    assert make_plan(paper_flow(), slots=1, parallelism="operator").slots == (1,) * 5


def test_unknown_strategy_names_the_known_ones() -> None:
    with pytest.raises(FlowError, match="unknown parallelism 'fastest'; there are operator-set, operator, query"):
        make_plan(paper_flow(), 4, "fastest")  # type: ignore[arg-type]


def test_no_slots_are_refused() -> None:
    with pytest.raises(FlowError, match="at least one slot, got 0"):
        make_plan(paper_flow(), 0)


def _same(plan: Plan) -> FlowGraph:
    """Return a graph with the very nodes of a plan: expressions compare by identity."""
    flow = FlowGraph(plan.flow)
    flow.nodes = dict(plan.nodes)
    return flow
