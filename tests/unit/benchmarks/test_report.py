"""Reports, pictures, processes and the registry."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.keyed_window.launch import FORMATS_BY_SYSTEM, count_files_per_batch, list_systems
from benchmarks.keyed_window.picture import draw_comparison, draw_curves
from benchmarks.keyed_window.report import KeyedWindowReport, print_report
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import SystemRun, compute_figures
from benchmarks.shared.process import run_measured
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.shared.report import write_json
from benchmarks.shared.workload import plan_workload


def _run(system: str, rate: float, equal: bool = True, other_cpu_share: float = 0.0) -> SystemRun:
    return SystemRun(
        system=system,
        file_format="json",
        rows=1_000_000,
        rows_per_second=rate,
        batch_seconds=1.0,
        run_seconds=1.0,
        answer=AnswerCheck(equal, 10, "d", "" if equal else "3 rows missing"),
        peak_memory_bytes=2**30,
        peak_memory_bytes_by_role={"driver": 2**29, "workers": 2**29},
        other_cpu_share=other_cpu_share,
    )


def _report(runs: list[SystemRun]) -> KeyedWindowReport:
    figures = compute_figures(runs, 1_000_000, None)
    return KeyedWindowReport(workload={"name": "keyed-window"}, figures=figures, systems=runs, seed=7)


def _print(report: KeyedWindowReport) -> str:
    text = StringIO()
    print_report(report, Console(file=text, width=80))
    return text.getvalue()


def test_table_shows_the_ratio_to_ours() -> None:
    text = _print(_report([_run("anabranch", 4e6), _run("flink", 1e6)]))
    assert "Answers equal" in text
    assert "4.00 M" in text
    assert "4.00" in text.split("Flink SQL")[1]


def test_wrong_answer_is_shown_instead_of_a_speed() -> None:
    text = _print(_report([_run("anabranch", 4e6), _run("flink", 1e6, equal=False)]))
    assert "Answers equal" not in text
    assert "3 rows missing" in text
    assert "1.00 M" not in text


def test_busy_machine_is_reported() -> None:
    text = _print(_report([_run("anabranch", 4e6, other_cpu_share=0.4), _run("flink", 1e6)]))
    assert "other programs took 40% of it during Anabranch on json" in text
    assert "during Flink" not in text


def test_json_holds_what_programs_need(tmp_path: Path) -> None:
    write_json(_report([_run("anabranch", 4e6)]), tmp_path / "deep" / "report.json")
    written = json.loads((tmp_path / "deep" / "report.json").read_text())
    assert written["figures"]["answers_equal"] == 1
    assert written["systems"][0]["system"] == "anabranch"
    assert {"workload", "figures", "systems", "seed", "commit", "machine"} <= set(written)


def test_comparison_is_drawn_as_png_and_svg(tmp_path: Path) -> None:
    paths = draw_comparison([_run("anabranch", 4e6), _run("two-polars", 5e6)], 1_000_000, tmp_path)
    assert [path.suffix for path in paths] == [".png", ".svg"]
    assert "Anabranch at 80%" in paths[1].read_text()


def test_curves_are_drawn(tmp_path: Path) -> None:
    memory = {"driver_bytes": 1, "jvm_bytes": 1, "workers_bytes": 1}
    points = [
        {"curve": curve, "rows": 10**size, "keys": 10**size, "rows_per_second": 1e6, **memory}
        for curve in ("rows", "keys")
        for size in (5, 6)
    ]
    assert all(path.exists() for path in draw_curves(points, tmp_path))


def test_unknown_peer_names_the_known_ones() -> None:
    with pytest.raises(BenchError, match="spark, flink, polars"):
        list_systems(("storm",))


def test_ours_runs_first_and_spark_with_both_stores() -> None:
    assert list_systems(("polars", "spark")) == ["anabranch", "spark-memory", "spark-rocksdb", "two-polars"]


def test_every_run_has_batches_enough_for_a_steady_half() -> None:
    for rows in (1_000, 200_000, 24_000_000, 36_000_000, 100_000_000):
        workload = plan_workload(rows)
        for system in FORMATS_BY_SYSTEM:
            assert workload.file_count // count_files_per_batch(workload, system) >= 4


def test_registry_holds_the_keyed_window() -> None:
    assert BENCHES["keyed-window"].summary
    assert BenchOptions().peers is None


def test_process_memory_is_measured_by_role(tmp_path: Path) -> None:
    script = "import time; block = bytearray(80_000_000); time.sleep(0.6)"
    outcome = run_measured("sleeper", [sys.executable, "-c", script], {}, tmp_path / "log", timeout_seconds=60)
    assert outcome.peak_bytes_by_role["driver"] > 80_000_000


def test_failed_process_shows_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="no such thing"):
        run_measured("broken", [sys.executable, "-c", "raise SystemExit('no such thing')"], {}, tmp_path / "log", 60)


def test_process_that_hangs_is_ended(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="ran longer"):
        run_measured("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], {}, tmp_path / "log", 0.3)
