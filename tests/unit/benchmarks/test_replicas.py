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
from benchmarks.replicas.cuts import Extent, compute_cut_figures, draw_cuts, judge, print_cuts
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
from benchmarks.replicas.recovery import LiveRuns, print_live
from benchmarks.shared.registry import BenchError, BenchOptions


def test_the_points_are_those_of_the_paper() -> None:
    settings = list(list_settings(("degrees", "nodes", "machines", "failures")))
    assert Counter(setting.part for setting in settings) == {"degrees": 15, "nodes": 33, "machines": 33, "failures": 9}
    machines = {setting.hosts: setting.failures for setting in settings if setting.part == "machines"}
    assert (machines[10], machines[13], machines[14], machines[20]) == (2, 2, 3, 3)
    assert {setting.degree for setting in settings if setting.part == "nodes"} == {2}
    assert {setting.failures for setting in settings if setting.part == FAILURES} == {3, 5, 8}


def test_live_runs_are_compared_in_pairs_and_a_wrong_answer_leaves_no_figure() -> None:
    def recovery(degree: int, seconds: float) -> dict[str, object]:
        told = {"detection_seconds": 0.2, "state_bytes": 6e8, "slots_lost": 1, "recovery_seconds": seconds}
        return {"kind": "recovery", "name": "r", "degree": degree, "is_right": True, **told}

    runs = [recovery(1, 16.0), recovery(2, 1.0), recovery(2, 2.0), recovery(1, 20.0)]
    runs += [
        {
            "kind": "cost",
            "name": "c",
            "degree": 1 + place % 2,
            "is_right": True,
            "rows_per_second": 100 - 8 * (place % 2),
        }
        for place in range(4)
    ]
    figures = LiveRuns(runs).compute_figures()
    assert figures["recovery_replica_over_store"] == pytest.approx((1 / 16 + 2 / 20) / 2)
    assert (figures["recovery_store_s"], figures["state_mb_a_slot"]) == (18.0, 200.0)
    assert figures["replication_cost_pct"] == pytest.approx(8.0)
    assert "recovery_native_s" not in figures
    native = {**recovery(1, 30.0), "kind": "native"}
    beside = LiveRuns([*runs, native]).compute_figures()
    assert (beside["recovery_native_s"], beside["recovery_replica_over_native"]) == (30.0, 1.5 / 30)
    assert beside["recovery_store_s"] == 18.0
    for shown, told in ((LiveRuns([*runs, native]), "ran once"), (LiveRuns(runs, without_native="no jars"), "no jars")):
        text = StringIO()
        print_live(shown, Console(file=text, width=200))
        assert told in text.getvalue() and "carries 100 Mbit/s" in text.getvalue()
    assert LiveRuns([*runs, {**runs[0], "is_right": False}]).compute_figures() == {"answers_equal": 0}


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


def seen_in_lab(cut: tuple[str, ...], sources: dict[str, list[str]]) -> dict[str, object]:
    """Return what a lab of four hosts reports: a slot on each of three, the replicas of all on the fourth."""
    slots = [
        {"slot": slot, "cpu_seconds_a_row": 1e-5, "state_bytes": 1_000_000, "changed_bytes_a_row": 20.0}
        for slot in range(3)
    ]
    return {
        "placement": "mrp",
        "cut": list(cut),
        "homes": {"0": "h1", "1": "h2", "2": "h3"},
        "replicas": {str(slot): ["h4"] for slot in range(3)},
        "slots": slots,
        "steady_seconds": 0.5,
        "sources": sources,
        "ran": dict.fromkeys(sources, "h2"),
        "commits": [[2.0 * number, 500] for number in range(1, 5)] + [[20.0 + 2 * number, 500] for number in range(4)],
        "cut_seconds": 8.3,
        "found_seconds": 18.5,
        "is_right": True,
    }


LAB_OF_FOUR = Extent(hosts=4, slots=3)


def test_a_cut_of_the_lab_is_simulated_from_what_was_seen_before_it() -> None:
    cut = judge(seen_in_lab(("h1",), {"0": ["replica"]}), LAB_OF_FOUR)
    assert (cut.has_copies, cut.enumerated_pct) == (True, 100.0)
    assert cut.simulated.sources == {"0": "replica"}
    assert cut.differences == []
    # Commits at 8 and 20 s; the simulator gives a host up ten seconds after it was cut off.
    assert (cut.lab.gap_seconds, cut.lab.later_commits) == (12.0, 4)
    assert 10 < cut.simulated.gap_seconds < 13
    figures = compute_cut_figures([cut])
    assert figures["sim_sources_as_lab_pct"] == figures["sim_goes_on_pct"] == figures["lab_goes_on_pct"] == 100
    assert figures["lab_detection_s"] == pytest.approx(10.2)


def test_slots_whose_copies_are_all_cut_off_go_on_from_the_store_in_both() -> None:
    cut = judge(seen_in_lab(("h1", "h4"), {"0": ["hot", "store"]}), LAB_OF_FOUR)
    assert not cut.has_copies
    # Of six pairs of hosts, three have the fourth host and a home.
    assert cut.enumerated_pct == pytest.approx(50)
    assert cut.lab.sources == cut.simulated.sources == {"0": "store"}
    assert compute_cut_figures([cut])["lab_mrp_availability_pct"] == 0
    assert cut.differences == []


def test_where_the_simulator_and_the_lab_differ_is_shown() -> None:
    cut = judge(seen_in_lab(("h1",), {"0": ["replica", "store"]}), LAB_OF_FOUR)
    where = "it ran on h2, its replicas are on h4"
    assert cut.differences == [
        f"slot 0: store in the lab, replica in the simulator ({where})",
        "every slot has a copy left",
    ]
    figures = compute_cut_figures([cut])
    assert (figures["sim_sources_as_lab_pct"], figures["sim_mrp_availability_pct"]) == (0, 100)
    text = StringIO()
    print_cuts([cut], Console(file=text, width=200))
    assert "mrp, h1 cut off: slot 0: store in the lab" in text.getvalue()
    wrong = replace(cut, is_right=False)
    assert compute_cut_figures([cut, wrong]) == {"answers_equal": 0}


def test_cuts_are_those_of_the_seed_and_none_comes_twice_before_all_have() -> None:
    cuts = draw_cuts(Extent(hosts=4, failures=2, cuts=8), 7)
    assert cuts == draw_cuts(Extent(hosts=4, failures=2, cuts=8), 7)
    assert len(set(cuts[:6])) == 6 and cuts[6:] == cuts[:2]
    assert all(len(set(cut)) == 2 for cut in cuts)
