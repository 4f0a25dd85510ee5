"""The elastic bench: its stream, its answers, its figures and its report."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from benchmarks.elastic import bench
from benchmarks.elastic.load_figures import compute_load_figures, evaluate_load
from benchmarks.elastic.parts import PartOutcome
from benchmarks.elastic.peers import rescaling
from benchmarks.elastic.peers.flink_rescale import SOURCES, read_results
from benchmarks.elastic.rescale import compare_gaps, compute_rescale_figures, evaluate_rescale
from benchmarks.elastic.stream import Feeder, Readings, compare_answers, compute_answer, find_closed, keep_closed
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchError, BenchOptions
from benchmarks.skew.peers.lehmer import take_steps

READINGS = Readings(rows=40, sensors=5, seed=7)
RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")
UP_AT, DOWN_AT = 12.0, 40.0


# -- stream and answers ------------------------------------------------------------------------------------------------


def test_a_file_has_the_same_rows_whenever_it_is_made_and_others_than_the_next() -> None:
    assert READINGS.make(3).equals(READINGS.make(3))
    assert READINGS.make(3)["ts"].min() - READINGS.make(2)["ts"].min() == 500
    assert not READINGS.make(3)["value"].equals(READINGS.make(2)["value"])


def test_the_oracle_takes_all_steps_of_a_row_at_once() -> None:
    answer = compute_answer(READINGS, range(2), 1_000, steps=17)
    rows = pl.concat([READINGS.make(number) for number in range(2)])
    expected = sum(take_steps(value, 17) for value in rows.filter(pl.col("sensor") == 2)["value"])
    assert answer.filter(pl.col("sensor") == 2)["total"].to_list() == [expected]


def test_answers_with_a_row_too_many_too_few_or_twice_are_wrong() -> None:
    answer = compute_answer(READINGS, range(4), 1_000)
    assert compare_answers(answer.reverse(), answer).equal
    assert not compare_answers(pl.concat([answer, answer[:1]]), answer).equal
    fewer = compare_answers(answer[1:], answer)
    assert not fewer.equal and "1 are missing" in fewer.difference


def test_windows_that_may_be_open_somewhere_are_not_compared() -> None:
    answer = compute_answer(READINGS, range(20), 1_000)
    closed = keep_closed(answer, find_closed(20, 4_000), 1_000)
    assert 0 < closed.height < answer.height


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_feeder_writes_as_many_files_at_once_as_the_load_is_high(tmp_path: Path, suffix: str) -> None:
    feeder = Feeder(READINGS, tmp_path / "watched", suffix)
    feeder.load = 3
    feeder.start()
    while feeder.files < 3:
        pass
    assert feeder.stop() % 3 == 0
    first = tmp_path / "watched" / f"part-000000.{suffix}"
    assert (pl.read_csv(first) if suffix == "csv" else pl.read_parquet(first)).equals(READINGS.make(0))


def test_what_flink_wrote_is_read_in_its_own_order(tmp_path: Path) -> None:
    import numpy as np

    rows = np.array([(1_000, 2, 3, 4.5)], [("a", "<i8"), ("b", "<i8"), ("c", "<i8"), ("d", "<f8")])
    (tmp_path / "part-0-0").write_bytes(rows.tobytes())
    (tmp_path / ".part-1.inprogress").write_bytes(b"half a row")
    assert read_results(tmp_path).rows() == [(1_000, 2, 3, 4.5)]
    assert all(path.exists() for path in SOURCES)


# -- figures -----------------------------------------------------------------------------------------------------------


def make_batch(number: int, **changed: Any) -> dict[str, Any]:
    batch = {"batch": number, "rows": 100, "seconds": 2.0, "committed_at": 2.0 * number + 2.0, "waiting_rows": 0}
    batch |= {"busy_seconds": 0.7, "replayed": False}
    return {**batch, "elasticity": {"utilisation": 0.55}, "executors": 1, "homes": 1, **changed}


def make_report() -> dict[str, Any]:
    batches = [make_batch(number) for number in range(6)]
    for number in range(6, 20):
        has_come = number >= 12
        batches.append(
            make_batch(
                number,
                rows=400,
                seconds=5.0 if number == 8 else 2.0,
                committed_at=2.0 * number + 2.0 + (3.0 if number == 8 else 0.0),
                elasticity={"utilisation": 0.62 if has_come else 2.5},
                executors=4 if number >= 10 else 1,
                homes=4 if has_come else 1,
            )
        )
    batches += [make_batch(number, waiting_rows=500 if number < 22 else 0, executors=4) for number in range(20, 26)]
    batches += [make_batch(number) for number in range(26, 32)]
    # What is left when no more comes.
    batches.append(make_batch(32, rows=1, elasticity={"utilisation": 0.01}))
    decisions = [("provision", 8), ("offload", 24), ("release", 25), ("home", 9)]
    return {
        "batches": batches,
        "calibrated_at": 6.0,
        "changed_up_at": UP_AT,
        "changed_down_at": DOWN_AT,
        "ended_at": 63.5,
        "runs": 1,
        "decisions": [{"action": action, "batch": batch} for action, batch in decisions],
    }


def test_changes_are_counted_from_the_first_batch_that_began_under_the_new_load() -> None:
    run = evaluate_load(make_report(), target=0.6, cores=0.5)
    assert (run.decided_up_batches, run.up_changes, run.down_changes) == (3, 1, 1)
    assert run.decided_down_batches == 3, "what had to be caught up with before does not count"
    assert run.grown_seconds == pytest.approx(26.0 - UP_AT)


def test_the_slowest_batch_is_compared_with_those_of_the_same_load_and_changes_count() -> None:
    run = evaluate_load(make_report(), target=0.6, cores=0.5)
    assert [phase.slowest_over_median for phase in run.phases] == [1.0, 2.5, 1.0]
    figures = compute_load_figures(run)
    assert figures["slowest_over_median"] == 2.5
    assert figures["utilisation_error_points"] == pytest.approx(5.0)
    # Of 2 s on half a core: the JVM counts as well.
    assert run.phases[-1].used == pytest.approx(0.7)
    assert figures["used_error_points"] == pytest.approx(100 * (0.6 - 0.7 / 4))


def test_the_longest_time_between_commits_is_that_since_the_load_changed() -> None:
    report = make_report()
    report["batches"][2]["committed_at"] += 0.5
    run = evaluate_load(report, target=0.6, cores=0.5)
    # The slow batch came three seconds late, and the one behind it was on time.
    assert (run.usual_gap_seconds, run.longest_gap_seconds) == (2.0, 5.0)
    figures = compute_load_figures(run)
    assert (figures["load_longest_gap_seconds"], figures["load_without_results_seconds"]) == (5.0, 3.0)


@pytest.mark.parametrize(("runs", "replayed", "why"), [(2, 0, "started 2 times"), (1, 1, "1 batches were published a")])
def test_a_load_with_a_restart_or_a_batch_twice_proves_nothing(runs: int, replayed: int, why: str) -> None:
    report = {**make_report(), "runs": runs}
    for batch in report["batches"][5 : 5 + replayed]:
        batch["replayed"] = True
    run = evaluate_load(report, target=0.6, cores=0.5)
    (breach,) = run.breaches
    assert why in breach
    assert compute_load_figures(run) == {"restarts_count": runs - 1, "replayed_batches": replayed}
    assert evaluate_load(make_report(), target=0.6, cores=0.5).breaches == ()


def test_batches_that_are_too_short_to_show_what_a_change_costs_are_told() -> None:
    report = make_report()
    assert evaluate_load(report, target=0.6, cores=0.5).doubts == ()
    for batch in report["batches"][20:]:
        batch["seconds"] = 1.5
    (doubt,) = evaluate_load(report, target=0.6, cores=0.5).doubts
    assert "×1 again took 1.50 s" in doubt


def test_a_result_that_is_deleted_while_one_looks_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    def fail_once(watch: rescaling.ResultsWatch) -> None:
        looked.append(watch)
        if len(looked) == 1:
            raise FileNotFoundError

    monkeypatch.setattr(rescaling.ResultsWatch, "look", fail_once)
    watch = rescaling.ResultsWatch(tmp_path, "*.parquet")
    until = time.monotonic() + 10
    while len(looked) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    # A thread that goes on would see what later tests of this process do to time.
    watch.stop()
    assert len(looked) >= 2


def make_moments(longest: float) -> dict[str, Any]:
    before = [float(moment) for moment in range(20)]
    after = [before[-1] + longest + moment for moment in range(14)]
    return {"moments": before + after, "changed_at": 19.2, "change_seconds": 0.5, "files": 9}


def test_files_of_one_commit_are_one_result() -> None:
    told = make_moments(4.0)
    twice = {**told, "moments": sorted([*told["moments"], *(moment + 0.05 for moment in told["moments"])])}
    once, other = (evaluate_rescale("spark", reported, RIGHT) for reported in (told, twice))
    assert other == once and once.usual_seconds == pytest.approx(1.0)


def test_seconds_without_results_are_those_beyond_the_usual_gap_and_never_less_than_noise() -> None:
    ours, flink = (
        evaluate_rescale(system, make_moments(longest), RIGHT)
        for system, longest in (("anabranch", 1.5), ("flink", 4.0))
    )
    assert (ours.without_results_seconds, flink.without_results_seconds) == (pytest.approx(0.5), pytest.approx(3.0))
    assert compute_rescale_figures([ours, flink])["rescale_x_flink"] == pytest.approx(6.0)
    slow = evaluate_rescale("flink", make_moments(9.0), RIGHT)
    assert compute_rescale_figures([ours, flink, ours, slow, ours, flink])["rescale_x_flink"] == pytest.approx(6.0)
    calm = evaluate_rescale("anabranch", make_moments(0.9), RIGHT)
    assert calm.without_results_seconds == max(calm.noise_seconds, 0.1)


# -- the whole ---------------------------------------------------------------------------------------------------------


def run_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: AnswerCheck, **options: Any) -> Any:
    def part(options: BenchOptions, peers: Any, console: Console) -> PartOutcome:
        return PartOutcome({"a run": answer}, {"some_points": 1.5}, {"rows": 9}, [{"system": "anabranch"}])

    monkeypatch.setattr(bench, "PARTS", {"load": part, "rescale": part})
    console = Console(file=StringIO(), width=120)
    return bench.run(BenchOptions(cache_dir=tmp_path, json_path=tmp_path / "out.json", **options), console)


def test_parts_put_their_figures_and_runs_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = run_bench(monkeypatch, tmp_path, RIGHT, only=("load",))
    assert report.figures == {"answers_equal": 1, "some_points": 1.5}
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["systems"] == [{"part": "load", "system": "anabranch"}]
    assert written["workload"] == {"name": "elastic", "load": {"rows": 9}}


def test_gaps_of_the_lab_stand_beside_those_of_systems_that_rescale() -> None:
    load = asdict(evaluate_load(make_report(), target=0.6, cores=0.5))
    load |= {"part": "load", "system": "anabranch", "without_results_seconds": 3.0, "answer": {"equal": True}}
    others = []
    for system, longest in (("anabranch", 1.5), ("flink", 4.0), ("flink", 6.0)):
        run = evaluate_rescale(system, make_moments(longest), RIGHT)
        told = asdict(run) | {"part": "rescale", "without_results_seconds": run.without_results_seconds}
        others.append(told)
    assert compare_gaps(others) is None and compare_gaps([load]) is None
    table = compare_gaps([load, *others])
    assert table is not None
    console = Console(file=StringIO(), width=160)
    console.print(table)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    told = [line for line in lines if " s" in line and "." in line]
    assert [line.split()[-6:] for line in told] == [
        ["3.00", "s", "2.00", "s", "5.00", "s"],
        ["0.50", "s", "1.00", "s", "1.50", "s"],
        ["4.00", "s", "1.00", "s", "5.00", "s"],
    ]


def test_wrong_answers_leave_no_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = run_bench(monkeypatch, tmp_path, WRONG)
    assert report.figures == {"answers_equal": 0} and not report.answers_equal


def test_a_part_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="unknown parts loda; there are load, rescale"):
        bench.run(BenchOptions(only=("loda",), cache_dir=tmp_path))
