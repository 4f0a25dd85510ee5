"""The disorder bench: its input, its answers, its figures, its Flink job and its report."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from benchmarks.disorder.answers import (
    LastWords,
    Oracle,
    ask_oracle,
    check_last_words,
    check_lossy,
    count_flink_checkpoints,
    read_flink_words,
    read_our_words,
)
from benchmarks.disorder.bench import run
from benchmarks.disorder.figures import FLINK, PER_KEY, PER_SLOT, SPARK, DisorderRun, compute_figures, unite_rounds
from benchmarks.disorder.inputs import (
    DELAY_MS,
    LATENESS_MS,
    LEAST_LAG_MS,
    SOURCES,
    WINDOW_MS,
    DisorderInput,
    plan_input,
    write_input,
)
from benchmarks.disorder.peers import flink
from benchmarks.disorder.report import DisorderReport, draw_disorder, draw_keys, print_report
from benchmarks.shared.answers import ANSWER_SCHEMA, AnswerCheck
from benchmarks.shared.peers import flink_java
from benchmarks.shared.peers.flink_java import find_jdk
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.shared.report import write_json
from benchmarks.shared.workload import WorkloadError

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")


def make_input(late_pct: int) -> DisorderInput:
    return plan_input(60_000, late_pct, sensors=300, rows_per_event_second=200)


def read_all(given: DisorderInput) -> pl.DataFrame:
    return pl.concat([given.make_rows(index) for index in range(given.file_count)])


# -- input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_pct", [25, 50, 75])
def test_each_sensor_is_in_order_for_itself(late_pct: int) -> None:
    backwards = pl.col("ts").diff().over("sensor") < 0
    assert read_all(make_input(late_pct)).filter(backwards).is_empty()


@pytest.mark.parametrize("late_pct", [25, 50, 75])
def test_with_one_time_for_all_the_share_of_rows_is_late_that_was_asked_for(late_pct: int) -> None:
    rows = read_all(make_input(late_pct))
    closed_ms = np.maximum.accumulate(rows["ts"].to_numpy()) - DELAY_MS
    window_end_ms = rows["ts"].to_numpy() // WINDOW_MS * WINDOW_MS + WINDOW_MS
    assert 100 * (window_end_ms <= closed_ms).mean() == pytest.approx(late_pct, abs=0.1)
    assert (window_end_ms + LATENESS_MS > closed_ms).all(), "no row may be dropped"


def test_a_source_that_lags_at_25_percent_lags_as_far_at_75() -> None:
    few, many = make_input(25).find_lags_ms(), make_input(75).find_lags_ms()
    assert (few >= LEAST_LAG_MS).sum() == 25 and (many >= LEAST_LAG_MS).sum() == 75
    assert (many[few >= LEAST_LAG_MS] == few[few >= LEAST_LAG_MS]).all()
    assert len(make_input(25).list_punctual_sources()) == 75


def test_every_sensor_reports_once_a_round_also_across_files() -> None:
    sensors = read_all(make_input(50))["sensor"].to_numpy()
    assert make_input(50).rows_per_file % 300 == 0
    odd = plan_input(60_001, 50, sensors=300, rows_per_event_second=200)
    for given in (sensors, read_all(odd)["sensor"].to_numpy()):
        assert all(sorted(given[start : start + 300]) == list(range(300)) for start in range(0, 60_000, 300))


def test_shares_differ_in_event_times_only() -> None:
    few, many = make_input(25).make_rows(3), make_input(75).make_rows(3)
    assert few.drop("ts").equals(many.drop("ts")) and not few.equals(many)


def test_files_are_equal_and_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    given = plan_input(101, 50, sensors=100)
    folder = write_input(given, tmp_path)
    paths = sorted(folder.iterdir())
    assert given.rows == 110 and [pl.read_csv(path).height for path in paths] == [11] * 10
    assert [path.stat().st_mtime for path in paths] == sorted({path.stat().st_mtime for path in paths})


@pytest.mark.parametrize(("rows", "sensors", "word"), [(5, 100, "rows"), (100, 99, "keys")])
def test_inputs_that_are_too_small_are_refused(rows: int, sensors: int, word: str) -> None:
    with pytest.raises(WorkloadError, match=word):
        plan_input(rows, 50, sensors)


# -- answers -----------------------------------------------------------------------------------------------------------


def make_words(*rows: tuple[int, int, int, float]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=ANSWER_SCHEMA, orient="row")


def write_flink_file(path: Path, *rows: tuple[int, int, int, float]) -> None:
    kinds = [(name, "<f8" if name == "total" else "<i8") for name in ANSWER_SCHEMA]
    np.array(list(rows), dtype=kinds).tofile(path)


def test_the_last_emission_of_a_window_counts(tmp_path: Path) -> None:
    make_words((0, 1, 1, 1.0), (0, 1, 2, 2.0), (0, 2, 1, 1.0)).write_parquet(
        tmp_path / "part-000000000009-00000.parquet"
    )
    make_words((0, 1, 3, 3.0)).write_parquet(tmp_path / "part-000000000010-00001.parquet")
    words = read_our_words(tmp_path)
    assert words.rows.sort("sensor").rows() == [(0, 1, 3, 3.0), (0, 2, 1, 1.0)]
    assert (words.emissions, words.updates) == (4, 2)


def test_files_of_flink_follow_each_other_by_number(tmp_path: Path) -> None:
    write_flink_file(tmp_path / "part-1-a-b-9", (0, 1, 1, 0.25))
    write_flink_file(tmp_path / "part-1-a-b-10", (0, 1, 2, 0.5), (0, 7, 1, 1.0))
    (tmp_path / ".part-1-a-b-11.inprogress").write_bytes(b"not committed")
    words = read_flink_words(tmp_path)
    assert words.rows.sort("sensor").rows() == [(0, 1, 2, 0.5), (0, 7, 1, 1.0)]
    assert words.updates == 1
    assert count_flink_checkpoints(tmp_path) == 10


def test_no_output_is_an_answer_without_rows(tmp_path: Path) -> None:
    assert read_flink_words(tmp_path).rows.is_empty() and read_our_words(tmp_path).rows.is_empty()
    assert count_flink_checkpoints(tmp_path) == 0


def test_last_words_are_compared_with_the_oracle_row_for_row(tmp_path: Path) -> None:
    given = plan_input(2_000, 50, sensors=100, rows_per_event_second=50)
    oracle = ask_oracle(write_input(given, tmp_path))
    assert int(oracle.answer["readings"].sum()) == given.rows
    assert oracle.latest_ms == read_all(given)["ts"].max()
    assert check_last_words(LastWords(oracle.answer.reverse(), 0), oracle).equal
    lacking = check_last_words(LastWords(oracle.answer.tail(-1), 0), oracle)
    assert not lacking.equal and "1 rows missing" in lacking.difference


PUNCTUAL, LAGGING = 1, 2
LOSSY_ORACLE = Oracle(
    make_words((0, PUNCTUAL, 4, 4.0), (0, LAGGING, 4, 4.0), (WINDOW_MS, PUNCTUAL, 2, 2.0)),
    latest_ms=WINDOW_MS + DELAY_MS,
)


@pytest.mark.parametrize(
    ("said", "dropped_rows"),
    [
        ([(0, PUNCTUAL, 4, 4.0), (0, LAGGING, 4, 4.0)], 0),
        ([(0, PUNCTUAL, 4, 4.0), (0, LAGGING, 1, 1.0)], 3),
        ([(0, PUNCTUAL, 4, 4.0)], 4),
    ],
)
def test_a_system_that_drops_late_rows_may_lack_those_of_lagging_sources(
    tmp_path: Path, said: list[tuple[int, int, int, float]], dropped_rows: int
) -> None:
    make_words(*said).write_parquet(tmp_path / "a.parquet")
    judged = check_lossy(tmp_path, LOSSY_ORACLE, [PUNCTUAL])
    assert judged.check.equal and judged.dropped_rows == dropped_rows


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ([(0, PUNCTUAL, 3, 3.0), (0, LAGGING, 4, 4.0)], "do not lag"),
        ([(0, LAGGING, 4, 4.0)], "do not lag"),
        ([(0, PUNCTUAL, 4, 4.0), (0, LAGGING, 5, 5.0)], "more rows"),
        ([(0, PUNCTUAL, 4, 4.0), (0, LAGGING + SOURCES, 1, 1.0)], "more rows"),
    ],
)
def test_a_system_that_drops_late_rows_may_lack_no_others_and_add_none(
    tmp_path: Path, said: list[tuple[int, int, int, float]], word: str
) -> None:
    make_words(*said).write_parquet(tmp_path / "a.parquet")
    judged = check_lossy(tmp_path, LOSSY_ORACLE, [PUNCTUAL])
    assert not judged.check.equal and word in judged.check.difference


# -- figures -----------------------------------------------------------------------------------------------------------


def make_run(system: str, late_pct: int, rate: float, **changed: Any) -> DisorderRun:
    given: dict[str, Any] = {
        "rows": 1_000,
        "batch_seconds": 2.0,
        "run_seconds": 60.0,
        "answer": RIGHT,
        "emissions": 100,
        "updates": 50,
    }
    return DisorderRun(system, late_pct, rows_per_second=rate, **(given | changed))


RUNS = [
    make_run(PER_KEY, 25, 8e6, late_rows=0, slot_late_rows=240, batch_seconds=1.5),
    make_run(PER_KEY, 50, 8e6, late_rows=0, slot_late_rows=480),
    make_run(PER_KEY, 75, 7.6e6, late_rows=0, slot_late_rows=720),
    make_run(PER_SLOT, 50, 4e6, late_rows=480, slot_late_rows=480),
    make_run(FLINK, 25, 1.6e6, batch_seconds=3.0),
    make_run(FLINK, 50, 1.5e6, batch_seconds=3.0),
    make_run(FLINK, 75, 0.8e6, batch_seconds=3.0),
    make_run(SPARK, 50, 2e6, dropped_rows=300, updates=0),
]


def test_a_run_that_went_there_and_back_has_the_mean_of_both_rates_and_the_longer_batch() -> None:
    back = [make_run(PER_KEY, 75, 8e6, batch_seconds=2.5), make_run(PER_KEY, 25, 7e6, batch_seconds=1.0)]
    united = {(run.system, run.late_pct): run for run in unite_rounds(RUNS, back)}
    assert united[PER_KEY, 25].rows_per_second == pytest.approx(7.5e6)
    assert united[PER_KEY, 25].batch_seconds == 1.5
    assert united[PER_KEY, 75].rows_per_second == pytest.approx(7.8e6)
    assert united[PER_KEY, 75].batch_seconds == 2.5
    alone = [run for run in RUNS if (run.system, run.late_pct) not in {(PER_KEY, 25), (PER_KEY, 75)}]
    assert [run for run in united.values() if run in alone] == alone


@pytest.mark.parametrize("wrong_round", [0, 1])
def test_a_wrong_answer_in_either_round_is_a_wrong_answer(wrong_round: int) -> None:
    rounds = [[make_run(PER_KEY, 50, 8e6)], [make_run(PER_KEY, 50, 8e6)]]
    rounds[wrong_round] = [make_run(PER_KEY, 50, 8e6, answer=WRONG)]
    (united,) = unite_rounds(*rounds)
    assert not united.answer.equal


CURVES = [
    {
        "keys": keys,
        "rows": 10,
        "answers_equal": 1,
        "local_merge": local_merge,
        "rows_per_second": rate,
        "batch_seconds": 1.0,
        "state_bytes": keys * 100,
        "driver_bytes": 1,
        "jvm_bytes": 1,
        "workers_bytes": 1,
    }
    for keys, rate, local_merge in (
        (10_000, 8e6, True),
        (10_000_000, 5e6, True),
        (10_000, 6e6, False),
        (10_000_000, 4.8e6, False),
    )
]


def test_figures_compare_a_watermark_a_key_with_the_others() -> None:
    figures = compute_figures(RUNS, 1_000)
    assert figures["answers_equal"] == 1 and figures["rows"] == 1_000
    assert figures["batch_seconds"] == 2.0
    assert figures["per_key_x_flink_50"] == pytest.approx(8 / 1.5)
    assert figures["per_key_x_slot_50"] == 2.0
    assert figures["per_key_x_spark_50"] == 4.0
    assert figures["drop_25_to_75_pct"] == pytest.approx(5.0)
    assert figures["flink_drop_25_to_75_pct"] == pytest.approx(50.0)
    assert figures["spark_dropped_pct_50"] == 30.0
    assert (figures["late_pct_per_key_50"], figures["late_pct_per_slot_50"]) == (0.0, 48.0)


def test_figures_of_absent_peers_are_absent() -> None:
    figures = compute_figures([run for run in RUNS if run.system == PER_KEY], 1_000)
    assert "drop_25_to_75_pct" in figures
    assert not any("flink" in name or "spark" in name or "_x_" in name for name in figures)


def test_unequal_answers_leave_no_claim_about_speed() -> None:
    figures = compute_figures([*RUNS, make_run(FLINK, 50, 1.0, answer=WRONG)], 1_000, CURVES)
    assert figures == {"answers_equal": 0, "rows": 1_000, "batch_seconds": 2.0}


def test_curves_tell_how_flat_the_cost_is_and_how_large_the_state() -> None:
    figures = compute_figures(RUNS, 1_000, CURVES)
    assert figures["keys_flatness"] == pytest.approx(5 / 8)
    assert figures["keys_flatness_no_merge"] == pytest.approx(4.8 / 6)
    assert figures["keys_10m_state_gb"] == pytest.approx(1.0)


def test_a_wrong_answer_of_a_curve_counts_like_any_other() -> None:
    assert compute_figures(RUNS, 1_000, [{**CURVES[0], "answers_equal": 0}])["answers_equal"] == 0


# -- Flink's job -------------------------------------------------------------------------------------------------------


def test_the_sources_of_the_job_lie_beside_the_module_that_compiles_them() -> None:
    names = {path.name for path in Path(flink.__file__).parent.glob("Disorder*.java")}
    assert names == {"DisorderFiles.java", "DisorderJob.java", "DisorderTypes.java"}
    assert Path(flink_java.__file__).with_name("MeasuredJob.java").exists()


def test_java_lies_beside_the_compiler_that_is_found(tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "javac").touch(0o755)
    assert find_jdk({"JAVA_HOME": str(home)}) == (home / "bin" / "java", home / "bin" / "javac")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "javac").symlink_to(home / "bin" / "javac")
    assert find_jdk({"PATH": str(tmp_path / "links")})[0] == home / "bin" / "java"


@pytest.mark.parametrize(
    ("environment", "word"),
    [({"PATH": "/nowhere"}, "none on the path"), ({"JAVA_HOME": "/gone"}, "JAVA_HOME is /gone")],
)
def test_without_a_compiler_the_error_says_how_to_get_one(environment: dict[str, str], word: str) -> None:
    with pytest.raises(BenchError, match="openjdk-17-jdk-headless") as caught:
        find_jdk(environment)
    assert word in str(caught.value) and "--peers spark" in str(caught.value)


# -- report ------------------------------------------------------------------------------------------------------------


def make_report(runs: list[DisorderRun]) -> DisorderReport:
    figures = compute_figures(runs, 1_000, CURVES)
    return DisorderReport(workload={"name": "disorder"}, figures=figures, systems=runs, seed=7, curves=CURVES)


def print_text(report: DisorderReport) -> str:
    text = StringIO()
    print_report(report, Console(file=text, width=80))
    assert "…" not in text.getvalue(), "a table is cut at 80 columns"
    return " ".join(text.getvalue().split())


def test_the_report_shows_every_system_and_what_it_lost() -> None:
    text = print_text(make_report(RUNS))
    assert "Answers equal" in text and "Spark, which drops late rows" in text
    assert "8.00 M" in text and "5.33" in text and "30.0" in text and "48.0" in text
    assert "10,000,000" in text and "0.200" in text


def test_the_report_names_wrong_answers_and_busy_neighbours() -> None:
    text = print_text(make_report([*RUNS, make_run(FLINK, 75, 1.0, answer=WRONG, other_cpu_share=0.5)]))
    assert "Wrong answer" in text and "3 rows missing" in text and "Busy machine" in text and "50%" in text


def test_json_holds_figures_systems_and_curves(tmp_path: Path) -> None:
    write_json(make_report(RUNS), tmp_path / "figures.json")
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["figures"]["per_key_x_slot_50"] == 2.0
    assert [run["system"] for run in written["systems"]] == [run.system for run in RUNS]
    assert written["curves"][1]["keys"] == 10_000_000


def test_pictures_are_drawn_also_when_systems_are_missing(tmp_path: Path) -> None:
    assert all(path.stat().st_size for path in draw_disorder(RUNS, tmp_path) + draw_keys(CURVES, tmp_path))
    assert len(draw_disorder(RUNS[:1], tmp_path)) == 2


def test_an_unknown_peer_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="disorder knows flink, spark"):
        run(BenchOptions(peers=("storm",), cache_dir=tmp_path))


def test_the_bench_is_listed() -> None:
    assert "lag" in BENCHES["disorder"].summary
