"""The skew bench: its streams, its answers, its figures and its report."""

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

from anabranch.routing.strategies.by_name import strategy_names
from benchmarks.shared.answers import AnswerCheck, ask_oracle, check_answer
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions, choose_names
from benchmarks.shared.report import write_json
from benchmarks.skew.answers import ask_busy_oracle
from benchmarks.skew.bench import PARTS, pair_up, run
from benchmarks.skew.competitors import BALANCED, HASH, STRATEGIES, Competitor, list_papers_strategies
from benchmarks.skew.figures import BusyRun, OverheadPair, compute_figures, evaluate_busy
from benchmarks.skew.loads import LoadRun, evaluate_loads
from benchmarks.skew.peers.lehmer import LehmerSum, take_steps
from benchmarks.skew.picture import draw_moving, draw_strategies
from benchmarks.skew.report import SkewReport, print_report
from benchmarks.skew.streams import (
    make_four_cases,
    make_moving_mean,
    make_narrowing,
    make_zipf_stream,
    read_weibo_stream,
    write_stream,
)
from benchmarks.skew.switching.table import CHANGES_A_MINUTE, TRIGGERS, SwitchingRun

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")


# -- streams -----------------------------------------------------------------------------------------------------------


def test_rows_depend_on_the_seed_and_the_batch_alone() -> None:
    stream, again = (make_zipf_stream(1.5, 1_000, 3, 2, seed=7, keys=50) for _ in range(2))
    assert stream.make_rows(4).equals(again.make_rows(4))
    assert not stream.make_rows(4).equals(stream.make_rows(5))


def test_with_each_phase_other_keys_are_hot() -> None:
    stream = make_zipf_stream(2.0, 5_000, 3, 2, seed=7, keys=1_000)
    assert stream.first_batches == (0, 3)
    hottest = [stream.make_rows(batch)["sensor"].value_counts(sort=True)["sensor"][0] for batch in range(6)]
    assert len(set(hottest[:3])) == len(set(hottest[3:])) == 1
    assert hottest[0] != hottest[3]


def test_the_hottest_of_zipf_keys_has_its_share() -> None:
    rows = make_zipf_stream(1.5, 50_000, 1, 1, seed=7).make_rows(0)
    share = rows["sensor"].value_counts(sort=True)["count"][0] / rows.height
    assert share == pytest.approx(1 / np.sum(np.arange(1, 10_001) ** -1.5), rel=0.03)


def test_phone_numbers_move_and_narrow() -> None:
    moving, narrowing = make_moving_mean(4_000, 2, seed=1), make_narrowing(4_000, 2, seed=1)
    means = [moving.make_rows(first)["sensor"].mean() for first in moving.first_batches]
    assert means == pytest.approx([5_000, 2_000, 8_000, 2_000, 8_000], rel=0.03)
    deviations = [narrowing.make_rows(first)["sensor"].std() for first in narrowing.first_batches]
    assert deviations == pytest.approx([100, 75, 50, 25, 100, 25], rel=0.06)


def test_in_the_four_cases_no_key_exceeds_a_slot() -> None:
    for stream in make_four_cases(20_000, 2, seed=1):
        (phase,) = stream.phases
        assert phase.weights.max() / phase.weights.sum() < 1 / 16
        assert len(np.unique(stream.keys)) == len(stream.keys) == 12_000


def test_topics_are_drawn_as_they_were_written_about_on_the_busiest_days(tmp_path: Path) -> None:
    rows = [(f"2024-05-0{day}", hour, "a", 100 * day * hour) for day in range(1, 5) for hour in (1, 2)]
    rows += [("2024-05-04", 1, "b", 0), ("2024-05-04", 2, "b", 10_000)]
    frame = pl.DataFrame(rows, schema=["day", "hour", "title", "discussCount"], orient="row")
    frame.write_parquet(tmp_path / "topics.parquet")
    stream = read_weibo_stream(tmp_path / "topics.parquet", 100, 2, seed=1)
    assert stream is not None
    assert [phase.name for phase in stream.phases] == ["2024-05-02", "2024-05-03", "2024-05-04"]
    assert stream.make_rows(0)["sensor"].unique().to_list() == [0]
    assert stream.make_rows(4)["sensor"].mean() > 0.9
    assert read_weibo_stream(tmp_path / "none.parquet", 100, 2, seed=1) is None


def test_files_are_written_once_and_can_be_asked_about(tmp_path: Path) -> None:
    stream = make_zipf_stream(1.5, 500, 3, 2, seed=7, keys=20)
    folder = write_stream(stream, "parquet", tmp_path)
    assert write_stream(stream, "parquet", tmp_path) == folder
    assert len(list(folder.iterdir())) == stream.batches == 6
    assert ask_oracle(folder, "parquet").answer["readings"].sum() > 0


# -- answers -----------------------------------------------------------------------------------------------------------


def test_the_costly_aggregate_gives_the_oracles_answer(tmp_path: Path) -> None:
    folder = write_stream(make_zipf_stream(1.2, 800, 4, 1, seed=7, keys=30), "parquet", tmp_path)
    aggregate = LehmerSum("value", 5)
    rows = pl.read_parquet(folder / "part-*.parquet").with_columns(
        window_start=pl.col("ts") - pl.col("ts") % 10_000, **aggregate.inputs()
    )
    grouped = rows.group_by("window_start", "sensor").agg(readings=pl.len(), **aggregate.partial(pl.col))
    answer = grouped.select("window_start", "sensor", "readings", total=aggregate.finish(pl.col))
    expected = ask_busy_oracle(folder, 5)
    assert expected.answer.height > 30
    assert check_answer(answer, expected).equal
    assert not check_answer(answer, ask_busy_oracle(folder, 6)).equal


def test_parts_of_the_costly_aggregate_add_up() -> None:
    aggregate = LehmerSum("value", 3)
    seeds = pl.DataFrame({"value": [0.0, 0.25, 249.75]}).select(**aggregate.inputs())
    parts = seeds.select(**aggregate.partial(pl.col))
    assert parts["sum"].item() == sum(take_steps(value, 3) for value in (0.0, 0.25, 249.75))
    merged = pl.concat([parts, parts]).select(**aggregate.merge(pl.col))
    assert merged["sum"].item() == 2 * parts["sum"].item()


# -- figures -----------------------------------------------------------------------------------------------------------


def evaluate(slot_rows: list[list[int]], first_batches: list[int]) -> LoadRun:
    return evaluate_loads("auto", "zipf 1.5", slot_rows, first_batches, changes=1, moved_bytes=5, answer=RIGHT)


def test_batches_right_after_a_change_may_be_uneven() -> None:
    run = evaluate([[90, 10], [90, 10], [52, 48], [50, 50], [10, 90], [10, 90], [50, 50], [51, 49]], [0, 4])
    assert run.settled_max_over_mean == pytest.approx(1.02)
    assert run.balance == pytest.approx(49 / 51)
    assert run.extra_time == pytest.approx(0.02)
    assert run.batches_until_even == 2


def test_a_phase_that_is_never_even_counts() -> None:
    run = evaluate([[90, 10]] * 4 + [[50, 50]] * 4, [0, 4])
    assert run.settled_max_over_mean == pytest.approx(1.8)
    assert run.batches_until_even is None


def busy_batches(seconds: list[float]) -> list[dict[str, Any]]:
    moments = np.cumsum(seconds)
    return [{"rows": 100, "committed_at": float(moment), "slot_rows": [75, 25]} for moment in moments] + [
        {"rows": 0, "committed_at": float(moments[-1] + 9), "slot_rows": []}
    ]


def test_speed_is_that_of_settled_batches() -> None:
    run = evaluate_busy("hash", busy_batches([9, 9, 9, 2, 2, 9, 9, 9, 2, 4]), [0, 5], RIGHT)
    assert run.rows_per_second == pytest.approx(400 / 10)
    assert run.batch_seconds == 2
    assert run.max_over_mean == 1.5


def load_run(system: str, stream: str, worst: float, balance: float = 0.99, answer: AnswerCheck = RIGHT) -> LoadRun:
    return LoadRun(system, stream, 16, (6.0, worst), worst, balance, worst - 1, 2, 1, 1_000, answer)


LOADS = [
    load_run("hash", "zipf 1.5", 6.5),
    load_run("auto", "zipf 1.5", 1.03),
    load_run("auto", "zipf 2", 1.04),
    load_run("hash", "moving mean", 1.4),
    load_run("auto", "moving mean", 1.02),
    load_run("auto", "narrowing", 1.045),
    load_run("least-count-history", "even keys, even data", 1.01, 0.98),
    load_run("least-count-history", "other keys, other data", 1.02, 0.97),
]
BUSY = [BusyRun("hash", 1e6, 1.0, 6.5, RIGHT), BusyRun("auto", 1.5e6, 0.7, 1.02, RIGHT)]
PAIRS = [OverheadPair(102, 100), OverheadPair(110, 100), OverheadPair(101, 100)]


def test_figures_are_the_worst_and_the_overhead_is_the_median() -> None:
    figures = compute_figures(LOADS, BUSY, PAIRS, rows=5)
    assert figures["max_over_mean_z1_5"] == 1.03
    assert figures["max_over_mean_z2"] == 1.04
    assert figures["max_over_mean_moving_normal"] == 1.045
    assert figures["balance_least_count"] == 0.97
    assert figures["x_hash_z1_5"] == 1.5
    assert figures["overhead_no_skew_pct"] == pytest.approx(2)
    assert figures["answers_equal"] == 1


def test_a_wrong_answer_leaves_no_claim() -> None:
    wrong = [replace(LOADS[0], answer=WRONG), *LOADS[1:]]
    assert compute_figures(wrong, BUSY, PAIRS, 5) == {"answers_equal": 0, "rows": 5, "batch_seconds": 0.7}


def test_pairs_do_not_depend_on_who_was_first() -> None:
    runs = [{"name": name, "processor_seconds": seconds} for name, seconds in (("off", 10), ("auto", 11))]
    assert pair_up([*runs, *runs[::-1]]) == [OverheadPair(11, 10)] * 2


# -- competitors and report --------------------------------------------------------------------------------------------


def test_every_strategy_but_those_of_values_and_powers_competes() -> None:
    competing = {competitor.routing for competitor in STRATEGIES} - {"auto"}
    assert set(strategy_names()) - competing == {"ranges", "weight-hash"}


def test_competitors_come_back_from_json() -> None:
    for competitor in STRATEGIES:
        assert Competitor(**json.loads(json.dumps(competitor.to_json()))) == competitor
    assert HASH.balance is None
    assert BALANCED.balance is not None and BALANCED.balance.planner == "mnrt"


def test_the_papers_strategies_decide_by_the_number_of_rows_alone() -> None:
    hashed, *deciding = list_papers_strategies(every_rows=400)
    assert hashed == HASH
    triggers = [competitor.balance.planning for competitor in deciding if competitor.balance is not None]
    assert [(trigger.every_rows, trigger.imbalance_above) for trigger in triggers] == [(400, None)] * 4


def make_report(**others: Any) -> SkewReport:
    figures = compute_figures(LOADS, BUSY, PAIRS, 5)
    report = SkewReport(workload={"name": "skew"}, figures=figures, loads=LOADS, busy=BUSY, pairs=PAIRS, seed=7)
    return replace(report, **others)


def test_report_says_it_in_tables_and_in_json(tmp_path: Path) -> None:
    text = StringIO()
    report = make_report(notes=["busy machine"])
    print_report(report, Console(file=text, width=80))
    assert "Answers equal" in text.getvalue()
    assert "busy machine" in text.getvalue()
    assert "6.500" in text.getvalue()
    assert "…" not in text.getvalue()
    write_json(report, tmp_path / "skew.json")
    written = json.loads((tmp_path / "skew.json").read_text())
    assert {"workload", "figures", "systems", "seed", "commit", "machine"} <= set(written)
    assert {system["part"] for system in written["systems"]} == {"loads", "busy"}


def test_a_wrong_answer_is_shown_instead_of_a_figure() -> None:
    text = StringIO()
    loads = [replace(LOADS[0], answer=WRONG)]
    report = make_report(loads=loads, figures=compute_figures(loads, [], [], 5))
    print_report(report, Console(file=text, width=80))
    assert "3 rows missing" in text.getvalue()
    assert "6.500" not in text.getvalue()


def test_pictures_are_drawn(tmp_path: Path) -> None:
    paths = draw_strategies(LOADS, BUSY, tmp_path)
    paths += draw_moving(LOADS, {"moving mean": [(0, "uniform"), (1, "μ 2000")]}, tmp_path)
    assert {path.name for path in paths} == {"skew.png", "skew.svg", "skew-moving.png", "skew-moving.svg"}
    assert all(path.stat().st_size for path in paths)


def test_batches_too_small_to_balance_are_refused() -> None:
    with pytest.raises(BenchError, match="ask for at least 320,000 rows"):
        run(BenchOptions(rows=100_000))


def test_unknown_peers_are_refused() -> None:
    with pytest.raises(BenchError, match="unknown peers storm"):
        run(BenchOptions(peers=("storm",)))


def test_parts_run_in_the_order_of_the_bench_and_strangers_are_refused() -> None:
    assert choose_names("parts", ("paper", "loads"), PARTS) == ("loads", "paper")
    assert choose_names("parts", None, PARTS) == PARTS
    with pytest.raises(BenchError, match="unknown parts fast; there are loads, busy, overhead"):
        run(BenchOptions(only=("fast",)))


def test_a_part_that_runs_alone_leaves_the_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = [
        SwitchingRun(name, name == "least-count", rate, 1e6, 1e6, 1, 0.0)
        for rate in CHANGES_A_MINUTE
        for name in (*TRIGGERS, "least-count")
    ]
    monkeypatch.setattr("benchmarks.skew.bench.run_table", lambda seed: made_up)
    report = run(BenchOptions(only=("switching",), cache_dir=tmp_path), Console(file=StringIO()))
    assert report.switching and not report.loads and not report.pairs
    assert report.figures["switching_over_best_fixed_1"] == 1
    assert "max_over_mean_z1_5" not in report.figures


def test_registry_holds_the_bench() -> None:
    assert "every strategy" in BENCHES["skew"].summary
