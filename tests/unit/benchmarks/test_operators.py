"""The operators bench: its input, what the oracle answers, how answers are compared, and its figures."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import anabranch as ab
from benchmarks.operators import bench as operators
from benchmarks.operators.answers import Expected, ask_oracle, check_answer, read_answer
from benchmarks.operators.bench import run
from benchmarks.operators.figures import OURS, OperatorRun, compute_figures
from benchmarks.operators.inputs import LARGEST_VALUE, SCHEMA, OperatorsInput, plan_input, write_input
from benchmarks.operators.peers.ours import build
from benchmarks.operators.plan import BEST, GAP_US, LEVEL, MINUTE_MS, OPERATORS, SLIDE_MS, WINDOW_MS
from benchmarks.operators.report import OperatorsReport, print_report
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchError, BenchOptions
from benchmarks.shared.workload import WorkloadError

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")


def make_input(seed: int = 7) -> OperatorsInput:
    # Thirty files of three seconds each: longer than the windows of the second hop.
    return OperatorsInput(rows=30 * 400, rows_per_file=400, users=300, seed=seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(make_input(), tmp_path_factory.mktemp("operators"))


def read_all(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(sorted(folder.glob("part-*")))


# -- input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_names_are_different_and_some_are_several_times_as_long_as_most(seed: int) -> None:
    names = plan_input(50_000, 2_000, seed).make_rows(0)["user"].unique()
    lengths = names.str.len_bytes()
    assert lengths.quantile(0.99) > 2 * lengths.median()
    assert names.str.len_chars().sum() < lengths.sum(), "some have letters of several bytes"


def test_each_seed_has_rows_and_a_shape_of_its_own() -> None:
    some, others = make_input(1), make_input(2)
    assert some.describe_names() != others.describe_names()
    assert not some.make_rows(0).equals(others.make_rows(0))
    assert some.make_rows(3).equals(make_input(1).make_rows(3))


def test_no_row_is_late_for_who_reads_the_files_in_order() -> None:
    given = make_input()
    latest = np.maximum.accumulate([given.make_rows(index)["ts"].max() for index in range(given.file_count)])
    earliest = [given.make_rows(index)["ts"].min() for index in range(given.file_count)]
    assert all(start > before - 2_000 for before, start in zip(latest, earliest[1:], strict=False))


def test_no_value_reaches_two_levels_at_once() -> None:
    assert make_input().make_rows(0)["value"].max() < LARGEST_VALUE < LEVEL


def test_files_are_written_once_and_hold_the_schema(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    assert write_input(make_input(), folder.parents[1]) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.glob("part-*")} == before
    assert len(before) == make_input().file_count
    assert dict(read_all(folder).schema) == SCHEMA


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(WorkloadError, match="ask for more rows"):
        plan_input(3, 10, seed=7)


# -- answers -----------------------------------------------------------------------------------------------------------


def answer_with_polars(operator: str, rows: pl.DataFrame, closed_ms: int) -> pl.DataFrame:
    """Return what the oracle must say, by other means."""
    totals = [pl.len().cast(pl.Int64).alias("readings"), pl.col("value").sum().alias("total")]
    window = (pl.col("ts") // WINDOW_MS * WINDOW_MS).alias("window_start")
    closed = pl.col("window_start") + WINDOW_MS <= closed_ms
    if operator == "sliding":
        panes = rows.group_by((pl.col("ts") // SLIDE_MS * SLIDE_MS).alias("pane"), "user").agg(totals)
        starts = [panes.with_columns(window_start=pl.col("pane") - back) for back in range(0, WINDOW_MS, SLIDE_MS)]
        sums = pl.concat(starts).group_by("window_start", "user").agg(pl.col("readings").sum(), pl.col("total").sum())
        return sums.filter(closed)
    if operator == "session":
        gap = timedelta(microseconds=GAP_US)
        timed = rows.sort("user", "ts").with_columns(at=pl.from_epoch("ts", "ms"))
        begins = (pl.col("at").diff() > gap).fill_null(True).over("user")
        sessions = timed.with_columns(session=begins.cum_sum().over("user")).group_by("user", "session")
        found = sessions.agg(pl.col("ts").min().alias("window_start"), pl.col("ts").max().alias("last"), *totals)
        return found.filter(pl.col("last") * 1_000 + GAP_US <= closed_ms * 1_000)
    if operator == "running":
        return rows.group_by("user").agg(totals)
    if operator == "distinct":
        return rows.select("user", "item").unique()
    if operator == "two-hops":
        hop = rows.group_by(window, "site", "user").agg(totals)
        minute = (pl.col("window_start") // MINUTE_MS * MINUTE_MS).alias("window_start")
        users = [pl.len().cast(pl.Int64).alias("users"), pl.col("readings").sum(), pl.col("total").sum()]
        return hop.group_by(minute, "site").agg(users).filter(pl.col("window_start") + MINUTE_MS <= closed_ms)
    if operator == "sketches":
        exact = [pl.col("user").n_unique().alias("users"), pl.col("value").quantile(0.99, "higher").alias("high")]
        return rows.group_by(window, "site").agg(*totals, *exact).filter(closed)
    if operator == "top-k":
        best = rows.group_by(window, "user").agg(pl.col("value").top_k(BEST).sort(descending=True)).filter(closed)
        ranked = best.with_columns(rank=pl.int_ranges(1, pl.col("value").list.len() + 1))
        return ranked.explode("value", "rank")
    levels = rows.group_by("user").agg((pl.col("value").sum() // LEVEL).cast(pl.Int64).alias("levels"))
    reached = levels.filter(pl.col("levels") > 0).with_columns(level=pl.int_ranges(1, pl.col("levels") + 1))
    return reached.explode("level")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_oracle_says_what_polars_says(operator: str, folder: Path) -> None:
    expected = ask_oracle(folder, operator)
    found = check_answer(operator, answer_with_polars(operator, read_all(folder), expected.closed_ms), expected)
    assert found.equal, found.difference
    assert found.rows > 0


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_row_too_few_or_too_many_is_found(operator: str, folder: Path) -> None:
    expected = ask_oracle(folder, operator)
    answer = answer_with_polars(operator, read_all(folder), expected.closed_ms)
    fewer = check_answer(operator, answer.tail(-1), expected)
    assert not fewer.equal and "1 rows missing, 0 extra" in fewer.difference
    twice = check_answer(operator, pl.concat([answer, answer.head(1)]), expected)
    # Of a running total that comes again, the last word is the same.
    assert twice.equal == (operator == "running")


@pytest.mark.parametrize(("column", "factor"), [("users", 1.5), ("high", 0.5)])
def test_an_estimate_that_is_far_off_is_found(column: str, factor: float, folder: Path) -> None:
    expected = ask_oracle(folder, "sketches")
    answer = answer_with_polars("sketches", read_all(folder), expected.closed_ms)
    largest = pl.col("readings") == pl.col("readings").max()
    off = answer.with_columns(pl.when(largest).then(pl.col(column) * factor).otherwise(column).alias(column))
    found = check_answer("sketches", off, expected)
    assert not found.equal and "estimates are off" in found.difference


def test_an_answer_without_its_columns_is_told_apart_from_one_without_rows(folder: Path, tmp_path: Path) -> None:
    expected = ask_oracle(folder, "running")
    assert "rows missing" in check_answer("running", read_answer(tmp_path, "running"), expected).difference
    named_otherwise = pl.DataFrame({"name": ["a"]})
    assert "columns user, readings, total are missing" in check_answer("running", named_otherwise, expected).difference


def test_unfinished_files_of_spark_do_not_count(folder: Path, tmp_path: Path) -> None:
    answer = answer_with_polars("distinct", read_all(folder), 0)
    (tmp_path / "batch-0" / "_temporary").mkdir(parents=True)
    answer.write_parquet(tmp_path / "batch-0" / "part-0.parquet")
    answer.head(1).write_parquet(tmp_path / "batch-0" / "_temporary" / "part-0.parquet")
    assert check_answer("distinct", read_answer(tmp_path, "distinct"), ask_oracle(folder, "distinct")).equal


@pytest.mark.parametrize("operator", OPERATORS)
def test_our_flow_of_each_operator_can_be_built(operator: str, folder: Path) -> None:
    flow = ab.Flow("operators")
    answer = build(operator, flow.read(ab.files(folder, format="parquet", schema=SCHEMA)))
    expected = ask_oracle(folder, operator)
    assert check_answer(operator, pl.DataFrame(schema=answer.schema), Expected(expected.answer.clear(), 0)).equal


# -- figures -----------------------------------------------------------------------------------------------------------


def make_run(operator: str, system: str, rate: float | None, answer: AnswerCheck = RIGHT) -> OperatorRun:
    return OperatorRun(operator, system, 1_000, rate, 1.5, 10.0, answer)


def test_medians_are_compared_with_the_faster_store_of_native_spark() -> None:
    runs = [make_run("two-hops", OURS, rate) for rate in (8.0, 9.0, 4.0)]
    runs += [make_run("two-hops", "spark-memory", rate) for rate in (2.0, 1.0, 7.0)]
    runs += [make_run("two-hops", "spark-rocksdb", 1.9)]
    figures = compute_figures(runs, 1_000)
    assert figures["two_hops_x_spark"] == 4.0
    assert figures["two_hops_rows_per_second"] == 8.0
    assert figures["batch_seconds"] == 1.5
    assert "sliding_x_spark" not in figures


def test_one_wrong_answer_leaves_no_claim() -> None:
    runs = [make_run("running", OURS, 8.0), make_run("running", "spark-memory", 2.0, WRONG)]
    assert compute_figures(runs, 1_000) == {"answers_equal": 0, "rows": 1_000, "batch_seconds": 1.5}


def test_runs_too_short_for_a_rate_are_not_compared() -> None:
    runs = [make_run("running", OURS, None), make_run("running", "spark-memory", 2.0)]
    assert compute_figures(runs, 1_000) == {"answers_equal": 1, "rows": 1_000, "batch_seconds": 1.5}


def test_the_table_says_who_is_how_fast_and_who_is_wrong() -> None:
    runs = [make_run("running", OURS, 8e6), make_run("running", OURS, 9e6), make_run("running", "spark-memory", 2e6)]
    runs += [make_run("top-k", OURS, 1e6, WRONG)]
    report = OperatorsReport(workload={}, figures=compute_figures(runs, 1), systems=runs, seed=7)
    output = StringIO()
    print_report(report, Console(file=output, width=120))
    shown = output.getvalue()
    assert "8.50 (8.00–9.00)" in shown and "4.25" in shown
    assert "Wrong answer: top-k on Anabranch: 3 rows missing" in shown


def test_an_unknown_operator_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="unknown operators joins; there are sliding, session"):
        run(BenchOptions(only=("joins",), cache_dir=tmp_path))


# -- the whole bench, with stand-ins that are fast to start ------------------------------------------------------------

STAND_IN = """
import argparse, json, pathlib
import polars as pl

parser = argparse.ArgumentParser()
for name in ("input", "operator", "files-per-batch", "memory", "output", "checkpoint", "result"):
    parser.add_argument(f"--{name}", required=True)
parser.add_argument("--slots")
parser.add_argument("--state-store")
given = parser.parse_args()
assert given.operator == "running"
rows = pl.read_parquet(sorted(pathlib.Path(given.input).glob("part-*")))
answer = rows.group_by("user").agg(pl.len().alias("readings"), pl.col("value").sum().alias("total"))
pathlib.Path(given.output).mkdir()
answer.write_parquet(pathlib.Path(given.output) / "part.parquet")
seconds = {None: 1.0, "memory": 4.0, "rocksdb": 2.0}[given.state_store]
samples = [(seconds * done / 4, rows.height * done // 4) for done in range(1, 5)]
batches = [{"rows": rows.height // 4, "seconds": seconds / 4, "state_bytes": 7}] * 4
pathlib.Path(given.result).write_text(json.dumps({"samples": samples, "batches": batches, "settings": {}}))
"""


def test_systems_take_turns_and_native_spark_keeps_to_its_faster_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr(operators, "our_script", lambda module: [sys.executable, str(stand_in)])
    options = BenchOptions(
        rows=24_000, only=("running",), cache_dir=tmp_path / "cache", keys=500, json_path=tmp_path / "report.json"
    )
    output = StringIO()
    report = run(options, Console(file=output, width=120), rounds=3)
    turns = [OURS, "spark-memory", "spark-rocksdb", OURS, "spark-rocksdb", OURS, "spark-rocksdb"]
    assert [run.system for run in report.systems] == turns
    assert report.answers_equal
    assert report.figures["running_x_spark"] == pytest.approx(2.0)
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["figures"] == report.figures
    assert written["workload"]["operators"]["running"]["spark"] == "groupBy() in update mode"
    assert "running on Anabranch: 0.02 M rows/s, answers equal" in output.getvalue()
