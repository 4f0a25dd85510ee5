"""The replicas bench: its experiments, its checks and its figures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks.replicas.bench import compute_figures, run
from benchmarks.replicas.experiments import (
    AGAIN,
    FAILURES,
    LIMITS,
    MRP,
    RANDOM,
    WHOLE,
    Point,
    Setting,
    find_fault,
    list_settings,
    make_cluster,
    measure_point,
)
from benchmarks.replicas.planning import measure_planning
from benchmarks.shared.registry import BenchError, BenchOptions


def test_the_points_are_those_of_the_paper() -> None:
    settings = list(list_settings(("degrees", "nodes", "machines", "failures")))
    assert Counter(setting.part for setting in settings) == {"degrees": 15, "nodes": 33, "machines": 33, "failures": 9}
    machines = {setting.hosts: setting.failures for setting in settings if setting.part == "machines"}
    assert (machines[10], machines[13], machines[14], machines[20]) == (2, 2, 3, 3)
    assert {setting.degree for setting in settings if setting.part == "nodes"} == {2}
    assert {setting.failures for setting in settings if setting.part == FAILURES} == {3, 5, 8}


def test_at_eight_failures_the_enumerated_availability_is_the_known_one() -> None:
    point = measure_point(Setting(FAILURES, MRP, 8, waves=(8,)), runs=20, seed=7)
    assert point.wrong == ""
    assert point.enumerated_pct == pytest.approx(85.29, abs=0.005)
    assert point.simulated_pct == pytest.approx(85.29, abs=25)
    whole = measure_point(Setting(FAILURES, WHOLE, 8, waves=(8,)), runs=1, seed=7)
    assert whole.enumerated_pct == pytest.approx(point.enumerated_pct)


def test_where_limits_bind_more_hosts_are_used_and_less_survives() -> None:
    free = measure_point(Setting(FAILURES, MRP, 8, waves=(8,)), runs=1, seed=7)
    bound = measure_point(Setting(LIMITS, MRP, 8, waves=(8,), has_limits=True), runs=1, seed=7)
    assert bound.replica_hosts > free.replica_hosts
    assert bound.enumerated_pct is not None and free.enumerated_pct is not None
    assert bound.enumerated_pct < free.enumerated_pct


def test_waves_smaller_than_the_degree_lose_nothing_if_replicas_are_placed_again() -> None:
    point = measure_point(Setting(AGAIN, MRP, 4, waves=(2, 2, 2, 2)), runs=10, seed=7)
    assert point.simulated_pct == 100
    assert point.enumerated_pct is None


def test_a_plan_that_breaks_a_rule_is_found() -> None:
    cluster = make_cluster(Setting(LIMITS, MRP, 8, has_limits=True), 7)
    plan = cluster.place()
    assert find_fault(cluster.problem, plan) == ""
    first = next(iter(plan.replicas))
    twice = replace(plan, replicas={**plan.replicas, first: ("h10", "h10")})
    assert "and should have 3 apart" in find_fault(cluster.problem, twice)
    crowded = replace(plan, replicas={slot: ("h18", "h19") for slot in plan.replicas})
    assert find_fault(cluster.problem, crowded) == "['h18', 'h19'] hold more than they can"


def test_latencies_are_those_of_the_seed() -> None:
    one, other, third = (make_cluster(Setting(FAILURES, MRP, 8), seed) for seed in (7, 7, 8))
    latency = one.problem.network.latency_seconds
    assert np.array_equal(latency, other.problem.network.latency_seconds)
    assert not np.array_equal(latency, third.problem.network.latency_seconds)
    assert np.array_equal(latency, latency.T)


def _point(part: str, placement: str, x: float, pct: float, **changes: object) -> Point:
    made = Point(part, placement, x, 100, pct + 1, 3.0, pct, 2.0, 12.0, 1.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_figures_are_enumerated_where_they_can_be_and_named() -> None:
    points = [
        _point(FAILURES, MRP, 8, 85.0),
        _point(FAILURES, WHOLE, 8, 85.5),
        _point(FAILURES, RANDOM, 8, 60.0),
        _point(LIMITS, MRP, 8, 70.0),
        _point(AGAIN, MRP, 4, 0.0, enumerated_pct=None, simulated_pct=100.0),
    ]
    figures = compute_figures(points, None)
    assert figures["mrp_availability_8_pct"] == 85.0
    assert figures["mrp_runs_8_pct"] == 86.0
    assert figures["random_availability_8_pct"] == 60.0
    assert figures["mrp_limits_availability_8_pct"] == 70.0
    assert figures["mrp_below_whole_cluster_points"] == 0.5
    assert figures["mrp_waves_of_2_availability_8_pct"] == 100.0
    assert "plan_1000x10000_s" not in figures


def test_a_run_that_disagrees_with_its_copies_leaves_no_figure() -> None:
    points = [_point(FAILURES, MRP, 8, 85.0, wrong="run 3 does not end as its copies say")]
    assert compute_figures(points, None) == {"answers_equal": 0}


def test_planning_copies_what_was_lost_and_no_more() -> None:
    planning = measure_planning(7, hosts=60, slots=300)
    assert planning.wrong == ""
    assert planning.moved_replicas == planning.lost_copies > 0


def test_the_bench_writes_json_and_pictures_and_says_that_it_is_simulated(tmp_path: Path) -> None:
    text = StringIO()
    options = BenchOptions(
        only=("limits", "again"), rounds=2, json_path=tmp_path / "found.json", out_dir=tmp_path, cache_dir=tmp_path
    )
    report = run(options, Console(file=text, width=160))
    assert report.answers_equal
    found = json.loads((tmp_path / "found.json").read_text())
    assert {system["kind"] for system in found["systems"]} == {"simulated"}
    assert found["planning"] is None
    assert {path.name for path in report.pictures} == {"replicas.png", "replicas.svg"}
    assert "4 with limits: 4 copies fit on a host (simulated, %)" in text.getvalue()
    assert "whole-cluster cannot be placed" in text.getvalue()


def test_parts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BenchError, match=r"unknown parts storage; there are degrees, nodes, machines, failures, limits"
    ):
        run(BenchOptions(only=("storage",), cache_dir=tmp_path))
