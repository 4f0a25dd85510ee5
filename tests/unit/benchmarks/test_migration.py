"""The migration bench: its input, its script, its answers, its figures and its report."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from anabranch.routing.bases.base_routes import BucketRoute
from anabranch.routing.routes import Routes
from benchmarks.migration.answers import ask_oracle, check_answer
from benchmarks.migration.bench import run
from benchmarks.migration.figures import (
    MoveRun,
    MoveStep,
    RestartRun,
    compute_figures,
    evaluate_moves,
    evaluate_restart,
)
from benchmarks.migration.inputs import WINDOW_MS, MigrationInput, hand_out, write_input
from benchmarks.migration.report import MigrationReport, draw_moves, print_report
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.peers.steerings import Step, take_step
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.shared.report import write_json

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")
GIVEN = MigrationInput(keys=200, batches=3, rows_per_batch=50, seed=7)


# -- input and answers -------------------------------------------------------------------------------------------------


def test_the_first_batch_has_every_key_once_and_the_last_ends_the_window() -> None:
    assert sorted(GIVEN.make_rows(0)["sensor"].to_list()) == list(range(200))
    assert [GIVEN.make_rows(index).height for index in range(GIVEN.files)] == [200, 50, 50, 50, 1]
    windows = [set((GIVEN.make_rows(index)["ts"] // WINDOW_MS).to_list()) for index in range(GIVEN.files)]
    assert windows[0] == windows[3] and len(windows[0]) == 1
    assert min(windows[4]) - min(windows[0]) == 2
    assert GIVEN.rows == 351


def test_files_are_handed_out_in_parts(tmp_path: Path) -> None:
    folder = write_input(GIVEN, tmp_path)
    hand_out(folder, tmp_path / "watched", 0, 2)
    hand_out(folder, tmp_path / "watched", 2, GIVEN.files)
    assert len(list((tmp_path / "watched").iterdir())) == GIVEN.files


def make_answer(folder: Path) -> pl.DataFrame:
    rows = pl.read_parquet(folder / "part-*.parquet").with_columns(window_start=pl.col("ts") - pl.col("ts") % WINDOW_MS)
    value = pl.col("value")
    return rows.group_by("window_start", "sensor").agg(
        readings=pl.len(), total=value.sum(), low=value.min(), high=value.max()
    )


def test_a_right_answer_passes_whether_the_last_window_closed_or_not(tmp_path: Path) -> None:
    folder = write_input(GIVEN, tmp_path)
    expected, answer = ask_oracle(folder, WINDOW_MS), make_answer(folder)
    (tmp_path / "out").mkdir()
    answer.write_parquet(tmp_path / "out" / "a.parquet")
    assert check_answer(tmp_path / "out", expected).equal
    answer.filter(pl.col("window_start") == pl.col("window_start").min()).write_parquet(tmp_path / "out" / "a.parquet")
    assert check_answer(tmp_path / "out", expected).equal


def test_a_missing_row_and_a_repeated_row_are_found(tmp_path: Path) -> None:
    folder = write_input(GIVEN, tmp_path)
    expected, answer = ask_oracle(folder, WINDOW_MS), make_answer(folder)
    (tmp_path / "out").mkdir()
    answer.filter(pl.col("sensor") != 5).write_parquet(tmp_path / "out" / "a.parquet")
    assert "1 rows missing" in check_answer(tmp_path / "out", expected).difference
    pl.concat([answer, answer.filter(pl.col("sensor") == 5)]).write_parquet(tmp_path / "out" / "a.parquet")
    assert "1 repeated" in check_answer(tmp_path / "out", expected).difference
    assert "no rows" in check_answer(tmp_path / "nowhere", expected).difference


# -- the script --------------------------------------------------------------------------------------------------------


def slots_of(routes: Routes) -> np.ndarray:
    assert isinstance(routes.base, BucketRoute)
    return np.asarray(routes.base.bucket_map.slot_of)


def test_moving_buckets_keeps_slots_even() -> None:
    before = Routes.even(16, 512)
    after = take_step(before, Step(buckets_a_slot=4))
    assert np.bincount(slots_of(after)).tolist() == [32] * 16
    assert np.mean(slots_of(before) != slots_of(after)) == 4 / 32


def test_new_slots_get_an_even_part_from_all_and_give_it_back() -> None:
    before = Routes.even(16, 512)
    grown = take_step(before, Step(slots=20))
    assert grown.slots == 20
    counts = np.bincount(slots_of(grown))
    assert counts.max() - counts.min() <= 2
    kept = slots_of(grown) < 16
    assert np.array_equal(slots_of(grown)[kept], slots_of(before)[kept])
    shrunk = take_step(grown, Step(slots=16))
    assert shrunk.slots == 16
    assert np.bincount(slots_of(shrunk)).tolist() == [32] * 16


# -- figures -----------------------------------------------------------------------------------------------------------


def make_batches(seconds: list[float], slots: dict[int, int] | None = None) -> list[dict[str, Any]]:
    moments = np.cumsum(seconds)
    batches = [
        {
            "batch": number,
            "rows": 500 if number else 4_000,
            "seconds": seconds[number],
            "committed_at": float(moments[number]),
            "moved_bytes": 0,
            "state_bytes": 1_000,
            "slots": (slots or {}).get(number, 16),
        }
        for number in range(len(seconds))
    ]
    return [*batches, {**batches[-1], "batch": len(seconds), "rows": 1, "committed_at": float(moments[-1] + 9)}]


def test_a_move_is_what_its_two_batches_took_beyond_the_median() -> None:
    batches = make_batches([9, 3, 3, 3, 1, 1, 1.2, 1.4, 1, 1, 1.5, 1], {8: 20, 9: 20, 10: 20, 11: 20})
    batches[6]["moved_bytes"] = 150
    run = evaluate_moves("anabranch", batches, {6: 15.0}, {6: ("buckets move", "state")}, RIGHT)
    (step,) = run.steps
    assert run.median_seconds == 1
    assert step.slowest_over_median == pytest.approx(1.4)
    assert step.lost_seconds == pytest.approx(0.6)
    assert step.moved_bytes_pct == pytest.approx(15)
    assert run.slowest_other_over_median == pytest.approx(1.5)


def test_a_restart_costs_until_the_old_rate_is_back() -> None:
    batches = make_batches([9, 1, 1, 1, 4, 2, 1, 1])
    run = evaluate_restart("spark-rocksdb", batches, batches[3]["committed_at"], {"stop": 0.1}, RIGHT)
    # The third batch after the stop is the first to be as fast as before: seven seconds instead of three.
    assert run.lost_seconds == pytest.approx(4)


def make_step(change: str, slots_after: int, lost: float) -> MoveStep:
    return MoveStep(change, 10, "state", 16, slots_after, 15.0, 30, 240, 1.3, lost)


MOVES = [
    MoveRun(
        "anabranch",
        1.0,
        0.05,
        1.6,
        (make_step("buckets move", 16, 0.3), make_step("16 → 20 slots", 20, 0.4)),
        (1.0, 1.1, 1.4, 1.0),
        RIGHT,
    ),
    MoveRun("anabranch-window", 0.8, 0.05, 1.1, (make_step("buckets move", 16, -0.1),), (0.8, 0.8), RIGHT),
]
RESTARTS = [
    RestartRun("anabranch-restart", 1.0, 2.0, {"stop": 0.1}, 240, RIGHT),
    RestartRun("spark-rocksdb", 5.0, 40.0, {"stop": 0.1, "repartition": 30.0}, 600, RIGHT),
]


def test_figures_compare_a_restart_with_what_a_move_adds() -> None:
    figures = compute_figures(MOVES, RESTARTS, rows=5)
    assert figures["x_stop_restart"] == pytest.approx(100)
    assert figures["x_own_restart"] == pytest.approx(5)
    assert figures["slowest_over_median"] == 1.3
    assert figures["moved_bytes_pct"] == pytest.approx(12.5)
    assert figures["batch_seconds"] == 1.0


def test_a_move_that_cannot_be_told_from_noise_adds_the_noise() -> None:
    steps = (MOVES[0].steps[0], make_step("16 → 20 slots", 20, -0.2))
    figures = compute_figures([replace(MOVES[0], steps=steps)], RESTARTS, rows=5)
    assert figures["move_adds_seconds"] == 0.05


def test_a_wrong_answer_leaves_no_claim() -> None:
    figures = compute_figures([replace(MOVES[0], answer=WRONG)], RESTARTS, rows=5)
    assert figures == {"answers_equal": 0, "rows": 5, "batch_seconds": 1.0}


# -- report ------------------------------------------------------------------------------------------------------------


def make_report(moves: list[MoveRun], **others: Any) -> MigrationReport:
    figures = compute_figures(moves, RESTARTS, 5)
    workload = {"name": "migration"}
    return MigrationReport(workload=workload, figures=figures, moves=moves, restarts=RESTARTS, seed=7, **others)


def test_report_says_it_in_tables_in_json_and_in_a_picture(tmp_path: Path) -> None:
    text = StringIO()
    pictures = draw_moves(MOVES, RESTARTS, tmp_path)
    report = make_report(MOVES, notes=["busy"], pictures=pictures)
    print_report(report, Console(file=text, width=80))
    assert "Answers equal" in text.getvalue()
    assert "repartition 30.0" in text.getvalue()
    assert "…" not in text.getvalue()
    write_json(report, tmp_path / "migration.json")
    written = json.loads((tmp_path / "migration.json").read_text())
    assert {"workload", "figures", "systems", "seed", "commit", "machine"} <= set(written)
    assert {path.suffix for path in pictures} == {".png", ".svg"}


def test_a_wrong_answer_is_shown_instead_of_a_speed() -> None:
    text = StringIO()
    moves = [replace(MOVES[0], answer=WRONG)]
    report = make_report(moves)
    print_report(report, Console(file=text, width=80))
    assert "3 rows missing" in text.getvalue()


def test_unknown_peers_are_refused() -> None:
    with pytest.raises(BenchError, match="unknown peers storm"):
        run(BenchOptions(peers=("storm",)))


def test_registry_holds_the_bench() -> None:
    assert "moves while a stream runs" in BENCHES["migration"].summary
