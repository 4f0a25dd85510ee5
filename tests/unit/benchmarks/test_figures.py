"""The figures: from samples to rates, from rates to claims, and no claim without equal answers."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import (
    SystemRun,
    compute_figures,
    compute_small_batch_ms,
    compute_steady_rate,
    find_longest_steady_batch,
)


def _run(system: str, file_format: str, rate: float | None, equal: bool = True, **others: Any) -> SystemRun:
    return SystemRun(
        system=system,
        file_format=file_format,
        rows=100,
        rows_per_second=rate,
        batch_seconds=others.get("batch_seconds"),
        run_seconds=1.0,
        answer=AnswerCheck(equal=equal, rows=1, digest="d"),
        peak_memory_bytes=1,
        peak_memory_bytes_by_role={"driver": 1},
        other_cpu_share=0.0,
    )


ALL = [
    _run("anabranch", "json", 4e6, batch_seconds=1.5),
    _run("anabranch", "csv", 9e6, batch_seconds=0.7),
    _run("anabranch", "parquet", 8e6, batch_seconds=0.8),
    _run("spark-memory", "json", 1e6, batch_seconds=5.0),
    _run("spark-rocksdb", "json", 0.5e6, batch_seconds=9.0),
    _run("spark-memory", "parquet", 0.5e6),
    _run("spark-rocksdb", "parquet", 2e6),
    _run("flink", "json", 0.8e6, batch_seconds=3.0),
    _run("flink", "csv", 1e6),
    _run("two-polars", "json", 5e6),
    _run("anabranch", "mixed-json", 3e6),
    _run("spark-memory", "mixed-json", 0.5e6),
    _run("spark-rocksdb", "mixed-json", 0.6e6),
    _run("flink", "mixed-json", 0.75e6),
    _run("two-duckdb", "mixed-json", 4e6),
]


def test_figures_compare_ours_with_each_peer() -> None:
    figures = compute_figures(ALL, rows=100, small_batch_ms=350.0)
    assert figures["answers_equal"] == 1
    assert figures["rows"] == 100
    assert figures["json_x_spark"] == pytest.approx(4.0)
    assert figures["json_x_flink"] == pytest.approx(5.0)
    assert figures["csv_x_flink"] == pytest.approx(9.0)
    assert figures["json_x_two_polars"] == pytest.approx(0.8)
    assert figures["mixed_json_x_spark"] == pytest.approx(5.0)
    assert figures["mixed_json_x_flink"] == pytest.approx(4.0)
    assert figures["mixed_json_x_two_duckdb"] == pytest.approx(0.75)
    assert figures["json_rows_per_second"] == 4e6
    assert figures["small_batch_ms"] == 350.0


def test_native_spark_counts_with_its_faster_state_store() -> None:
    assert compute_figures(ALL, 100, None)["parquet_x_spark"] == pytest.approx(4.0)


def test_batch_seconds_is_the_longest_of_our_batches() -> None:
    assert compute_figures(ALL, 100, None)["batch_seconds"] == 1.5


def test_absent_peers_are_absent_from_the_figures() -> None:
    figures = compute_figures([run for run in ALL if run.system in {"anabranch", "two-polars"}], 100, None)
    assert "json_x_two_polars" in figures
    assert not {"json_x_spark", "json_x_flink", "csv_x_flink", "parquet_x_spark", "small_batch_ms"} & set(figures)


def test_one_wrong_answer_takes_every_claim_away() -> None:
    figures = compute_figures([*ALL, _run("flink", "json", 1e6, equal=False)], 100, 350.0)
    assert figures == {"answers_equal": 0, "rows": 100, "batch_seconds": 1.5}


def _point(rate: float, equal: bool = True) -> dict[str, Any]:
    return {"curve": "rows", "rows_per_second": rate, "answers_equal": int(equal)}


def test_flatness_is_the_slowest_over_the_fastest() -> None:
    figures = compute_figures(ALL, 100, None, [_point(4e6), _point(5e6), _point(4.5e6)])
    assert figures["rows_flatness"] == pytest.approx(0.8)


def test_wrong_answer_on_a_curve_takes_every_claim_away() -> None:
    figures = compute_figures(ALL, 100, None, [_point(4e6), _point(5e6, equal=False)])
    assert figures == {"answers_equal": 0, "rows": 100, "batch_seconds": 1.5}


def test_no_runs_are_no_equal_answers() -> None:
    assert compute_figures([], 100, None)["answers_equal"] == 0


def test_run_too_short_for_a_rate_gives_no_ratio() -> None:
    figures = compute_figures([_run("anabranch", "json", 4e6), _run("flink", "json", None)], 100, None)
    assert "json_x_flink" not in figures


def test_steady_rate_leaves_the_first_half_of_the_rows_out() -> None:
    slow_start = [(10.0, 50), (11.0, 75), (12.0, 100)]
    assert compute_steady_rate(slow_start, warm_up_rows=50) == pytest.approx(25.0)


def test_steady_rate_counts_the_gaps_between_batches() -> None:
    assert compute_steady_rate([(1.0, 50), (6.0, 100)], warm_up_rows=50) == pytest.approx(10.0)


@pytest.mark.parametrize("samples", [[], [(1.0, 100)], [(1.0, 10), (2.0, 100)], [(1.0, 100), (2.0, 100)]])
def test_too_few_samples_give_no_rate(samples: list[tuple[float, int]]) -> None:
    assert compute_steady_rate(samples, warm_up_rows=50) is None


def test_longest_batch_leaves_warm_up_and_empty_batches_out() -> None:
    batches = [
        {"rows": 50, "seconds": 9.0},
        {"rows": 25, "seconds": 1.0},
        {"rows": 25, "seconds": 2.0},
        {"rows": 0, "seconds": 5.0},
    ]
    assert find_longest_steady_batch(batches, warm_up_rows=50) == 2.0


def test_small_batches_are_measured_from_commit_to_commit_when_warm() -> None:
    cold = [(float(index), index) for index in range(10)]
    warm = [(9.0 + 0.25 * index, 10 + index) for index in range(1, 31)]
    assert compute_small_batch_ms(cold + warm) == pytest.approx(250.0)


def test_too_few_small_batches_give_no_figure() -> None:
    assert compute_small_batch_ms([(0.0, 1), (1.0, 2)]) is None
