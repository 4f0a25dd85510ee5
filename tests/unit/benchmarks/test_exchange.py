"""The exchange bench: its input in two layouts, its answers, its figures and its report."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from benchmarks.exchange import bench as exchange
from benchmarks.exchange.answers import ask_oracle, check_way
from benchmarks.exchange.bench import run
from benchmarks.exchange.figures import (
    AHEAD,
    GLOBAL,
    HELD,
    LOCAL,
    PLAIN,
    WAYS,
    ExchangeRun,
    compute_figures,
    pool_rates,
)
from benchmarks.exchange.inputs import (
    BATCH_ROWS,
    DELAY_MS,
    MIXED,
    PARTITIONED,
    PARTITIONS,
    READINGS_PER_SECOND,
    WINDOW_MS,
    ExchangeInput,
    plan_input,
    write_input,
)
from benchmarks.exchange.peers.ours import build_flow
from benchmarks.exchange.report import ExchangeReport, draw_curves, draw_ways, print_report
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.shared.report import write_json
from benchmarks.shared.workload import WorkloadError

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")


# -- input -------------------------------------------------------------------------------------------------------------


def test_a_batch_of_2000_sensors_is_100_seconds_long() -> None:
    given = plan_input(24_000_000, 2_000)
    assert (given.batches, given.batch_rows) == (12, BATCH_ROWS)
    assert given.span_seconds == 12 * 100


def test_every_sensor_reports_once_a_round_also_across_batches() -> None:
    given = plan_input(12 * 80, sensors=30)
    sensors = pl.concat([given.make_rows(batch) for batch in range(given.batches)])["sensor"].to_list()
    assert all(sorted(sensors[start : start + 30]) == list(range(30)) for start in range(0, 960, 30))


def test_no_row_is_behind_the_latest_by_more_than_the_watermarks_delay() -> None:
    given = plan_input(120_000, sensors=40)
    rows = pl.concat([given.make_rows(batch) for batch in range(given.batches)])
    assert rows.select((pl.col("ts").cum_max() - pl.col("ts")).max()).item() < DELAY_MS
    seconds = rows.select((pl.col("ts").max() - pl.col("ts").min()) / 1_000).item()
    assert seconds == pytest.approx(120_000 / (40 * READINGS_PER_SECOND), abs=2 * DELAY_MS / 1_000)


def test_both_layouts_hold_the_same_rows_and_partitions_hold_whole_keys(tmp_path: Path) -> None:
    folder = write_input(plan_input(12_000, sensors=50), tmp_path)
    mixed = pl.concat([pl.read_parquet(path) for path in (folder / MIXED).iterdir()])
    parts = {
        partition: pl.concat([pl.read_parquet(path) for path in (folder / PARTITIONED / f"p-{partition}").iterdir()])
        for partition in range(PARTITIONS)
    }
    columns = ["ts", "sensor", "value"]
    assert pl.concat(list(parts.values())).sort(columns).equals(mixed.sort(columns))
    homes = [set(part["sensor"].to_list()) for part in parts.values()]
    assert sum(map(len, homes)) == len(set.union(*homes)) == 50


def test_files_of_a_batch_have_one_time_and_a_second_call_writes_nothing(tmp_path: Path) -> None:
    given = plan_input(1_200, sensors=50)
    folder = write_input(given, tmp_path)
    stamps = sorted(path.stat().st_mtime for path in (folder / MIXED).iterdir())
    assert len(stamps) == given.batches * PARTITIONS and len(set(stamps)) == given.batches
    marks = {path: path.stat().st_ino for path in folder.rglob("*.parquet")}
    assert write_input(given, tmp_path) == folder
    assert marks == {path: path.stat().st_ino for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize(("rows", "sensors", "word"), [(50, 100, "rows"), (1_000, 3, "keys")])
def test_inputs_that_are_too_small_are_refused(rows: int, sensors: int, word: str) -> None:
    with pytest.raises(WorkloadError, match=word):
        plan_input(rows, sensors)


# -- flows and answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (PLAIN, "rows go to their key's slot as they are"),
        (LOCAL, "one row a key and window leaves each reader"),
        (HELD, "sent when windows end"),
        (GLOBAL, "meet in the store"),
        (AHEAD, "the source's partitions are the slots"),
    ],
)
def test_each_way_is_the_same_flow_with_another_exchange(tmp_path: Path, way: str, words: str) -> None:
    folder = write_input(plan_input(1_200, sensors=50), tmp_path)
    assert words in build_flow(way, folder, tmp_path / "out").explain()


def test_answers_are_all_windows_from_files_or_from_the_store(tmp_path: Path) -> None:
    given = plan_input(120_000, sensors=20)
    expected = ask_oracle(write_input(given, tmp_path))
    assert int(expected.answer["readings"].sum()) == given.rows
    assert expected.answer["window_start"].n_unique() > 1
    assert (expected.answer["window_start"] % WINDOW_MS == 0).all()
    (tmp_path / "out").mkdir()
    expected.answer.reverse().write_parquet(tmp_path / "out" / "part-0.parquet")
    assert check_way(LOCAL, tmp_path / "out", expected).equal
    expected.answer.tail(-1).write_parquet(tmp_path / "out" / "part-0.parquet")
    assert "1 rows missing" in check_way(PLAIN, tmp_path / "out", expected).difference
    empty = check_way(GLOBAL, tmp_path / "empty.sqlite", expected)
    assert f"{expected.answer.height} rows missing" in empty.difference


# -- figures -----------------------------------------------------------------------------------------------------------


def make_run(way: str, sent: int, rate: float | None, **changed: Any) -> ExchangeRun:
    given: dict[str, Any] = {"sensors": 2_000, "rows": 1_000, "answer": RIGHT, "batch_seconds": 0.5, "shuffle_bytes": 9}
    return ExchangeRun(way, rows_per_second=rate, exchanged_bytes=sent, **(given | changed))


RUNS = [
    make_run(PLAIN, 20_000, 2e6, batch_seconds=1.5),
    make_run(LOCAL, 250, 3e6),
    make_run(HELD, 100, 2.5e6),
    make_run(GLOBAL, 0, 4e6),
    make_run(AHEAD, 0, 5e6),
]
LIMITED = [
    make_run(run.way, run.exchanged_bytes, rate, limit_mbit=limit, wire_bytes=12_345_678, driver_bytes=77)
    for limit, plain_rate in ((100.0, 0.5e6), (25.0, 0.1e6))
    for run, rate in zip(RUNS, (plain_rate, 2e6, 2e6, 2e6, 2e6), strict=True)
]


def test_figures_are_bytes_and_speed_beside_the_plain_exchange() -> None:
    figures = compute_figures(RUNS, LIMITED, 100.0)
    assert figures["answers_equal"] == 1 and figures["rows"] == 1_000 and figures["batch_seconds"] == 1.5
    assert figures["local_merge_bytes_pct"] == 1.25 and figures["held_merge_bytes_pct"] == 0.5
    assert figures["global_merge_bytes_pct"] == figures["ahead_bytes_pct"] == 0
    assert figures["plain_bytes_per_row"] == 20
    assert (figures["local_merge_x_plain"], figures["global_merge_x_plain"], figures["ahead_x_plain"]) == (1.5, 2, 2.5)
    assert (
        figures["limited_local_x_plain"] == figures["limited_ahead_x_plain"] == figures["limited_global_x_plain"] == 4
    )


def test_without_hosts_there_are_no_figures_of_limits() -> None:
    assert not [name for name in compute_figures(RUNS, [], 100.0) if name.startswith("limited")]


def test_a_wrong_answer_anywhere_leaves_no_claim() -> None:
    wrong = [make_run(AHEAD, 0, 5e6, answer=WRONG)]
    for given in ((RUNS + wrong, [], []), (RUNS, wrong, []), (RUNS, [], wrong)):
        figures = compute_figures(given[0], given[1], 100.0, given[2])
        assert figures == {"answers_equal": 0, "rows": 1_000, "batch_seconds": 1.5}


def test_ways_that_did_not_run_have_no_figures() -> None:
    figures = compute_figures(RUNS[1:], [], 100.0)
    assert not [name for name in figures if name.endswith(("_pct", "_x_plain"))]


def test_rounds_are_pooled_by_their_time() -> None:
    assert pool_rates([1.0, 3.0]) == pytest.approx(1.5)
    assert pool_rates([1.0, None]) is None and pool_rates([]) is None


# -- report ------------------------------------------------------------------------------------------------------------


def make_report(runs: list[ExchangeRun], notes: tuple[str, ...] = ()) -> ExchangeReport:
    workload = {"name": "exchange", "sensors": 2_000, "batch_rows": 2_000_000}
    figures = compute_figures(RUNS, runs, 100.0, RUNS)
    return ExchangeReport(workload=workload, figures=figures, systems=runs, seed=7, curves=RUNS, notes=notes)


def print_text(report: ExchangeReport) -> str:
    text = StringIO()
    print_report(report, Console(file=text, width=80))
    return text.getvalue()


def test_the_report_shows_every_way_under_every_limit_in_80_columns() -> None:
    text = print_text(make_report([*RUNS, *LIMITED], ("no wires",)))
    assert "Answers equal" in text and "no wires" in text and "…" not in text
    for word in ("Local Merge, held", "Ahead KeyBy", "100 Mbit", "25 Mbit", "12.3", "1.25", "20.00"):
        assert word in text


def test_the_report_names_wrong_answers() -> None:
    text = print_text(make_report([*RUNS, make_run(GLOBAL, 0, 1.0, answer=WRONG)]))
    assert "Wrong answer" in text and "3 rows missing" in text


def test_json_holds_figures_ways_and_curves(tmp_path: Path) -> None:
    write_json(make_report([*RUNS, *LIMITED]), tmp_path / "figures.json")
    written = json.loads((tmp_path / "figures.json").read_text())
    assert written["figures"]["ahead_x_plain"] == 2.5
    assert [entry["way"] for entry in written["systems"][: len(WAYS)]] == list(WAYS)
    assert written["systems"][5]["limit_mbit"] == 100 and written["curves"][1]["exchanged_bytes"] == 250


def test_pictures_are_drawn_with_and_without_hosts(tmp_path: Path) -> None:
    drawn = [*draw_ways(RUNS, LIMITED[:5], tmp_path / "a"), *draw_ways(RUNS, [], tmp_path / "b")]
    drawn += draw_curves([*RUNS, *(make_run(run.way, 9, 1e6, sensors=200) for run in RUNS)], tmp_path)
    assert len(drawn) == 6 and all(path.stat().st_size > 1_000 for path in drawn)


def test_the_bench_is_listed_and_knows_no_peers(tmp_path: Path) -> None:
    assert "exchange" in BENCHES
    with pytest.raises(BenchError, match="no peers"):
        run(BenchOptions(peers=("flink",), cache_dir=tmp_path), Console(file=StringIO()))


def test_curves_take_more_sensors_and_wires_of_other_widths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_freely(_: object, given: ExchangeInput, rounds: int) -> list[ExchangeRun]:
        rate = 1e6 * rounds
        return [make_run(way, 100, rate, sensors=given.sensors, rows=given.rows) for way in WAYS]

    def run_limited(_: object, given: ExchangeInput, limits_mbit: tuple[float, ...]) -> list[ExchangeRun]:
        return [make_run(way, 100, limit, limit_mbit=limit) for limit in limits_mbit for way in WAYS]

    monkeypatch.setattr(exchange._Exchange, "run_freely", run_freely)
    monkeypatch.setattr(exchange._Exchange, "run_limited", run_limited)
    options = BenchOptions(rows=24_000_000, curves=True, cache_dir=tmp_path, out_dir=tmp_path)
    report = run(options, Console(file=StringIO()))
    assert [entry.sensors for entry in report.curves[:: len(WAYS)]] == [200, 2_000, 20_000, 200_000]
    assert {entry.rows for entry in report.curves} == {12_000_000}
    assert {entry.limit_mbit for entry in report.systems} == {None, 1_000.0, 100.0, 25.0}
    assert report.answers_equal and report.figures["limited_ahead_x_plain"] == 1
    assert {path.name for path in report.pictures} >= {"exchange.svg", "exchange-curves.svg"}
