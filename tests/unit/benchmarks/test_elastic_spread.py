"""From batches, as scripts tell them, to the figures of the elastic bench's parts that spread a flow."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.elastic.drift import DriftRun, average_by_phase, compute_drift_figures
from benchmarks.elastic.measuring import WITH, WITHOUT, find_cost_pct, pair_up
from benchmarks.elastic.spread_figures import (
    OPERATOR,
    OPERATOR_SET,
    QUERY,
    CpuShares,
    CpuSpread,
    SpreadRun,
    compute_strategy_figures,
    evaluate_strategy,
    find_max_over_mean,
    find_shares,
    find_spreads,
    select_steady,
)
from benchmarks.shared.answers import AnswerCheck

EQUAL = AnswerCheck(True, 1, "")


def make_batch(number: int, **more: Any) -> dict[str, Any]:
    """A batch of 10 s, in which two hosts with half a core each use 2 s and 4 s."""
    return {
        "rows": 1_000,
        "committed_at": 10.0 * number,
        "task_seconds": 3.0,
        "exchange_seconds": 1.0,
        "cpu_seconds": 5.0,
        "measuring_seconds": 0.05,
        "exchanged_bytes": 8_000,
        "tasks": 6,
        "busy_seconds": {"0": 2.0, "1": 3.0},
        "slot_seconds": {"0": 1.0, "1": 1.0},
        "hosts": {
            "h1": {"cpu_seconds": 2.0 * number, "sent_bytes": 5_000 * number},
            "h2": {"cpu_seconds": 4.0 * number, "sent_bytes": 7_000 * number},
        },
        **more,
    }


def make_flow(batches: int = 4, **more: Any) -> dict[str, Any]:
    drained = {"rows": 0, "committed_at": 1_000.0}
    return {
        "name": "flow",
        "began": make_batch(0),
        "batches": [*(make_batch(number, **more) for number in range(1, batches + 1)), drained],
    }


def test_batches_of_the_warm_up_and_those_without_rows_do_not_count() -> None:
    steady = select_steady(make_flow(), 2)
    assert [batch["committed_at"] for batch in steady] == [20.0, 30.0, 40.0]


def test_what_hosts_use_and_operators_do_not_is_communication() -> None:
    # Of 10 s a batch, 6 s are used, of which tasks work 2 s for steps and operators.
    shares = find_shares(select_steady(make_flow(), 1), cores=1.0)
    assert (shares.processing, shares.communication, shares.idle) == pytest.approx((0.2, 0.4, 0.4))


def test_without_hosts_what_tasks_and_executors_tell_is_what_was_used() -> None:
    flow = make_flow()
    for batch in [flow["began"], *flow["batches"]]:
        batch.pop("hosts", None)
    shares = find_shares(select_steady(flow, 1), cores=1.0)
    assert (shares.processing, shares.communication, shares.idle) == pytest.approx((0.2, 0.3, 0.5))
    run = evaluate_strategy(flow, 1, 1.0, EQUAL, strategy=QUERY, instances=12, hops=2, fan_out=24)
    assert run.wire_bytes_per_row is None


def test_shares_are_never_negative_though_clocks_differ() -> None:
    shares = find_shares(select_steady(make_flow(task_seconds=40.0), 1), cores=1.0)
    assert (shares.processing, shares.communication, shares.idle) == (1.0, 0.0, 0.0)


def test_executors_spread_is_what_each_used_of_its_own_cores() -> None:
    spreads = find_spreads(make_flow(), cores=1.0)
    assert [spread.batch for spread in spreads] == [1, 2, 3]
    assert spreads[0].mean == pytest.approx(0.6) and spreads[0].deviation == pytest.approx(0.2)


def test_how_executors_differ_is_that_of_the_worst_phase_once_it_has_settled() -> None:
    # Batches that are uneven while keys have just moved, and the first ones, do not count.
    deviations = [0.3, 0.3, 0.1, 0.2, 0.4, 0.4, 0.05, 0.07]
    spreads = tuple(CpuSpread(batch, 0.5, deviation) for batch, deviation in enumerate(deviations))
    runs = [
        DriftRun("moving mean 2", "auto", ((0, "uniform"), (4, "μ 2000")), spreads, EQUAL),
        DriftRun("narrowing", "hash", ((0, "σ 100"),), spreads, EQUAL),
    ]
    assert average_by_phase(runs[0], 4) == [
        ("uniform", 0.5, pytest.approx(0.2)),
        ("μ 2000", 0.5, pytest.approx(0.07)),
    ]
    assert compute_drift_figures(runs, 4) == {
        "moving_deviation_points": pytest.approx(20.0),
        "narrowing_hash_deviation_points": pytest.approx(20.0),
    }


def test_the_busiest_executor_is_compared_with_the_mean_over_all_batches() -> None:
    batches = [make_batch(1, busy_seconds={"0": 3.0, "1": 1.0}), make_batch(2, busy_seconds={"0": 1.0, "1": 1.0})]
    assert find_max_over_mean(batches) == pytest.approx(4 / 3)
    assert find_max_over_mean(batches, "slot_seconds") == 1.0


def test_a_strategy_s_rows_and_bytes_are_those_behind_the_warm_up() -> None:
    run = evaluate_strategy(make_flow(), 2, 1.0, EQUAL, strategy=OPERATOR, instances=12, hops=5, fan_out=10)
    assert (run.rows, run.rows_per_second, run.batch_seconds) == (2_000, 100.0, 10.0)
    assert run.cpu_us_per_row == pytest.approx(6_000)
    assert (run.exchanged_bytes_per_row, run.wire_bytes_per_row, run.tasks_per_batch) == (8.0, 12.0, 6)


def test_figures_compare_strategies_on_as_many_instances() -> None:
    def make_run(strategy: str, rate: float, communication: float, instances: int = 12) -> SpreadRun:
        shares = CpuShares(0.5, communication, 0.5 - communication)
        return SpreadRun(strategy, instances, 2, 8, 1, EQUAL, rate, shares, 1.0, None, 1.0, 1.0, 1.0)

    runs = [
        make_run(OPERATOR_SET, 200.0, 0.1),
        make_run(OPERATOR_SET, 400.0, 0.2),
        make_run(QUERY, 100.0, 0.4),
        make_run(QUERY, 900.0, 0.4, instances=6),
    ]
    figures = compute_strategy_figures(runs, 12)
    assert figures["operator_set_communication_pct"] == pytest.approx(15.0)
    assert figures["operator_set_x_query"] == pytest.approx(3.0)
    assert "operator_set_x_operator" not in figures
    assert compute_strategy_figures(runs[2:], 12) == {}


def test_first_batches_are_no_part_of_what_measuring_costs() -> None:
    flow = make_flow(3)
    flow["batches"][0]["measuring_seconds"] = 100.0
    assert find_cost_pct([flow]) == pytest.approx(1.0)


def test_pairs_are_one_run_with_and_one_without_in_either_order() -> None:
    flows = [{"name": name, "processor_seconds": seconds} for name, seconds in ((WITHOUT, 10.0), (WITH, 10.1))]
    assert [pair.overhead_pct for pair in pair_up([*flows, *flows[::-1]])] == pytest.approx([1.0, 1.0])
