"""The planners bench: its inputs, its checks of plans, its figures and its report."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from anabranch.balancing import Goal, balance_buckets, plan_mnrt, plan_readj
from anabranch.cli.app import app
from anabranch.model.loads import BucketLoads
from anabranch.model.moves import Moves
from anabranch.model.routes import BucketMap, RoutingTable
from benchmarks.planners.bench import PlannerRun, compute_figures, run, shorten
from benchmarks.planners.checks import check_bucket_plan, check_key_plan
from benchmarks.planners.inputs import make_zipf, read_weibo
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions

SLOTS = 8
GIVEN = make_zipf(2_000, 1.2, SLOTS, seed=1)
LIMIT = 1.05 * float(GIVEN.loads.loads.sum()) / SLOTS
EMPTY = RoutingTable.empty()


def test_zipf_loads_depend_on_the_seed_alone() -> None:
    again = make_zipf(2_000, 1.2, SLOTS, seed=1)
    assert np.array_equal(again.loads.loads, GIVEN.loads.loads)
    assert np.array_equal(again.loads.homes, GIVEN.loads.homes)
    assert np.sort(GIVEN.loads.loads)[-1] / np.sort(GIVEN.loads.loads)[-2] == pytest.approx(2**1.2)


def test_a_right_plan_passes() -> None:
    plan = plan_mnrt(GIVEN.loads, EMPTY, Goal(SLOTS))
    assert check_key_plan(GIVEN.loads, EMPTY, plan, SLOTS, LIMIT) == ""


def test_a_plan_above_the_limit_is_found() -> None:
    plan = plan_readj(GIVEN.loads, EMPTY, Goal(SLOTS))
    assert check_key_plan(GIVEN.loads, EMPTY, plan, SLOTS, None) == ""
    assert "above the limit" in check_key_plan(GIVEN.loads, EMPTY, plan, SLOTS, LIMIT)


def test_moves_that_lead_elsewhere_are_found() -> None:
    plan = replace(plan_mnrt(GIVEN.loads, EMPTY, Goal(SLOTS)), moves=Moves.none())
    assert "moves do not lead" in check_key_plan(GIVEN.loads, EMPTY, plan, SLOTS, LIMIT)


def test_loads_that_are_not_those_of_the_table_are_found() -> None:
    plan = replace(plan_mnrt(GIVEN.loads, EMPTY, Goal(SLOTS)), table=EMPTY)
    assert "not those of its routing table" in check_key_plan(GIVEN.loads, EMPTY, plan, SLOTS, LIMIT)


def test_a_key_at_home_in_the_table_is_found() -> None:
    plan = plan_mnrt(GIVEN.loads, EMPTY, Goal(SLOTS))
    stays = next(key for key in GIVEN.loads.keys.tolist() if key not in set(plan.table.keys.tolist()))
    home = int(GIVEN.loads.homes[np.searchsorted(GIVEN.loads.keys, np.uint64(stays))])
    table = plan.table.overlaid(RoutingTable.of({stays: {home: 1.0}}))
    wrong = check_key_plan(GIVEN.loads, EMPTY, replace(plan, table=table), SLOTS, LIMIT)
    assert wrong == "1 keys at home are in the routing table"


def test_a_bucket_plan_is_checked_against_its_map() -> None:
    loads = BucketLoads(BucketMap(2, (0, 0, 1)), np.array([2.0, 3.0, 1.0]))
    plan = balance_buckets(loads, Goal(2))
    assert check_bucket_plan(loads, plan, 2) == ""
    swapped = replace(plan, bucket_map=BucketMap(2, (0, 0, 0)))
    assert "not those of its bucket map" in check_bucket_plan(loads, swapped, 2)


def test_topics_are_read_with_their_hourly_posts(tmp_path: Path) -> None:
    rows = [
        ("2024-05-01", 1, "a", 10),
        ("2024-05-01", 3, "a", 25),
        ("2024-05-01", 2, "a", 20),
        ("2024-05-01", 1, "b", 7),
        ("2024-05-01", 2, "b", None),
        ("2024-05-01", 1, "c", 5),
        ("2024-05-01", 2, "c", 6),
    ]
    frame = pl.DataFrame(rows, schema=["day", "hour", "title", "discussCount"], orient="row")
    frame.write_parquet(tmp_path / "weibo_hot_hourly.parquet")
    given = read_weibo(tmp_path, 4)
    assert given is not None
    assert sorted(given.loads.loads.tolist()) == [1, 15]


def test_a_folder_without_topics_is_no_mistake(tmp_path: Path) -> None:
    assert read_weibo(tmp_path, 4) is None


@pytest.mark.parametrize(("count", "spoken"), [(1_000_000, "1m"), (10_000_000, "10m"), (200_000, "200k"), (12, "12")])
def test_numbers_of_keys_are_spoken_in_the_names_of_figures(count: int, spoken: str) -> None:
    assert shorten(count) == spoken


def _run(system: str, keys: int, seconds: float, wrong: str = "") -> PlannerRun:
    return PlannerRun(system, "zipf 1", keys, 8, 8, 0.05, seconds, 5, 1, 5, 1.0, 1.0, 2.0, 1.05, wrong, "")


def test_figures_are_the_slowest_plans() -> None:
    runs = [_run("mnrt", 1_000, 0.1), _run("mnrt", 1_000, 0.3), _run("qmmp", 1_000, 0.2), _run("mnrt", 10_000, 2.0)]
    figures = compute_figures(runs, [], 1_000)
    assert figures["mnrt_1k_s"] == figures["batch_seconds"] == 0.3
    assert figures["mnrt_10k_s"] == 2.0
    assert (figures["answers_equal"], figures["rows"]) == (1, 1_000)


def test_broken_promises_leave_no_claim() -> None:
    figures = compute_figures([_run("mnrt", 1_000, 0.1)], [_run("qmmp", 1_000, 0.1, wrong="lost load")], 1_000)
    assert figures == {"answers_equal": 0, "rows": 1_000}


def test_the_bench_reports_in_a_table_in_json_and_in_pictures(tmp_path: Path) -> None:
    text = StringIO()
    options = BenchOptions(
        keys=3_000, slots=6, exponents=(0.8, 1.5), json_path=tmp_path / "planners.json", out_dir=tmp_path / "out"
    )
    report = run(options, Console(file=text, width=80))
    assert report.answers_equal
    assert "Promises kept" in text.getvalue()
    assert "…" not in text.getvalue()
    written = json.loads((tmp_path / "planners.json").read_text())
    assert {"workload", "figures", "systems", "seed", "commit", "machine"} <= set(written)
    assert {"mnrt_3k_s", "qmmp_3k_s", "readj_3k_s", "mnrt_30k_s", "answers_equal", "rows", "batch_seconds"} <= set(
        written["figures"]
    )
    assert {path.suffix for path in report.pictures} == {".png", ".svg"}
    assert all(path.exists() for path in report.pictures)


def test_fewer_keys_than_slots_are_refused() -> None:
    with pytest.raises(BenchError, match="a key for each"):
        run(BenchOptions(keys=3, slots=6))


def test_registry_holds_the_planners() -> None:
    assert "routing table" in BENCHES["planners"].summary


@pytest.mark.parametrize("text", ["hot", "", "0.8,-1"])
def test_senseless_exponents_are_refused(text: str) -> None:
    outcome = CliRunner().invoke(app, ["bench", "planners", "--z", text])
    assert outcome.exit_code == 2
    assert "are no exponents" in outcome.output
