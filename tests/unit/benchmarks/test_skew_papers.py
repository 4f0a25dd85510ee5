"""Parts of the skew bench after tables and figures of the papers: their streams, answers, figures and tables."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from benchmarks.shared.answers import AnswerCheck, Expected
from benchmarks.skew.answers import ask_busy_oracle, check_top_answer
from benchmarks.skew.figures import BusyRun, compute_figures, evaluate_busy
from benchmarks.skew.paper.figures import (
    CASES,
    HARDEST_CASE,
    TOPICS,
    SpreadRun,
    StreamRate,
    compute_paper_figures,
    list_answers,
)
from benchmarks.skew.paper.parts import SPREAD_COMPETITORS, SPREAD_SLOTS, TOPIC_COMPETITORS
from benchmarks.skew.paper.picture import draw_paper_parts
from benchmarks.skew.paper.report import print_paper_parts
from benchmarks.skew.streams import make_rising_stream, make_topic_stream, read_topic_stream, write_stream

RIGHT = AnswerCheck(True, 10, "d")
WRONG = AnswerCheck(False, 10, "e", "3 rows missing")
FLINKS = tuple([2] * 52 + [3] * 8)
"""Of 128 groups of keys, sixty subtasks get two or three each."""


# -- streams -----------------------------------------------------------------------------------------------------------


def test_rising_ids_come_once_each_in_their_order() -> None:
    stream = make_rising_stream(1_000, 3, seed=7)
    ids = pl.concat([stream.make_rows(batch) for batch in range(3)])["sensor"]
    assert ids.to_list() == list(range(3_000))


@pytest.mark.parametrize("seed", range(4))
def test_made_up_topics_have_a_heavy_tail_under_every_seed(seed: int) -> None:
    weights = make_topic_stream(1_000, 1, seed).phases[0].weights
    shares = np.sort(weights / weights.sum())[::-1]
    assert 0.02 < shares[0] < 0.7
    assert shares[:100].sum() > 0.3
    assert (shares > 0).all() and len(shares) == 100_000


def test_made_up_topics_vary_with_the_seed() -> None:
    one, other = (make_topic_stream(1_000, 1, seed).make_rows(0) for seed in (1, 2))
    assert not one.equals(other)


def test_real_topics_count_as_often_as_they_were_written_about(tmp_path: Path) -> None:
    rows = [("2024-05-01", hour, "a", 100 * hour) for hour in range(4)]
    rows += [("2024-05-02", 1, "b", 0), ("2024-05-02", 2, "b", 900), ("2024-05-02", 3, "silent", 5)]
    frame = pl.DataFrame(rows, schema=["day", "hour", "title", "discussCount"], orient="row")
    frame.write_parquet(tmp_path / "topics.parquet")
    stream = read_topic_stream(tmp_path / "topics.parquet", 4_000, 1, seed=7)
    assert stream is not None
    assert stream.phases[0].weights.tolist() == [300.0, 900.0]
    assert stream.make_rows(0)["sensor"].mean() == pytest.approx(0.75, abs=0.03)
    assert read_topic_stream(tmp_path / "none.parquet", 100, 1, seed=7) is None


# -- answers -----------------------------------------------------------------------------------------------------------


def take_top(counted: pl.DataFrame, count: int) -> pl.DataFrame:
    ranked = counted.sort("readings", descending=True).group_by("window_start", maintain_order=True)
    return ranked.head(count)


def test_the_top_of_a_window_is_compared_with_the_oracles(tmp_path: Path) -> None:
    expected = ask_busy_oracle(write_stream(make_topic_stream(3_000, 6, 7, topics=500), "parquet", tmp_path), 3)
    top = take_top(expected.answer, 10)
    assert top["window_start"].n_unique() > 1
    assert check_top_answer(top.reverse(), expected, 10).equal
    assert not check_top_answer(top.head(9), expected, 10).equal
    assert not check_top_answer(take_top(expected.answer, 11), expected, 10).equal
    wrong = top.with_columns(total=pl.col("total") + 1)
    assert "10 with other values" in check_top_answer(wrong.head(10), expected, 10).difference
    assert not check_top_answer(wrong, expected, 10).equal


def test_of_keys_that_come_equally_often_any_may_be_the_last() -> None:
    counted = pl.DataFrame(
        [(0, 1, 9, 1.0), (0, 2, 5, 2.0), (0, 3, 5, 3.0), (0, 4, 1, 4.0)],
        schema={"window_start": pl.Int64, "sensor": pl.Int64, "readings": pl.Int64, "total": pl.Float64},
        orient="row",
    )
    expected = Expected(counted, 20_000)
    for chosen, equal in (([1, 2], True), ([1, 3], True), ([1, 4], False), ([2, 3], False), ([1, 1], False)):
        found = pl.concat([counted.filter(pl.col("sensor") == sensor) for sensor in chosen])
        assert check_top_answer(found, expected, 2).equal is equal, chosen


# -- figures -----------------------------------------------------------------------------------------------------------


def test_subtasks_with_two_or_three_groups_are_what_the_paper_counted() -> None:
    spread = SpreadRun("flink", FLINKS, RIGHT)
    assert len(FLINKS) == SPREAD_SLOTS
    assert spread.count_by_band() == [52, 0, 0, 8, 0]
    assert spread.balance == pytest.approx(2 / 3) and spread.extra_time == pytest.approx(3 / (128 / 60) - 1)


def make_rate(part: str, stream: str, system: str, rate: float, answer: AnswerCheck = RIGHT) -> StreamRate:
    return StreamRate(part, stream, BusyRun(system, rate, 1.0, 1.2, answer))


RATES = [
    make_rate(CASES, HARDEST_CASE, "hash", 10.0),
    make_rate(CASES, HARDEST_CASE, "least-count-history", 25.0),
    *(make_rate(TOPICS, "made-up topics", each.name, 10.0 + n) for n, each in enumerate(TOPIC_COMPETITORS)),
    make_rate(TOPICS, "Weibo topics, all days", "readj", 7.0),
    make_rate(TOPICS, "Weibo topics, all days", "mnrt", 14.0),
]


def test_figures_compare_with_hash_and_with_other_planners() -> None:
    figures = compute_paper_figures([SpreadRun("flink", FLINKS, RIGHT)], RATES)
    assert figures["x_hash_least_count_history"] == 2.5
    assert figures["topk_made_up_x_hash"] == 1.4 and figures["topk_weibo_x_readj"] == 2.0
    assert "topk_weibo_x_hash" not in figures
    assert figures["balance_rising_flink"] == pytest.approx(2 / 3)


def test_a_wrong_answer_of_a_part_leaves_no_claim_of_the_bench() -> None:
    spreads = [SpreadRun("hash", FLINKS, WRONG)]
    assert compute_paper_figures(spreads, RATES) == {}
    assert compute_figures([], [], [], 10, list_answers(spreads, RATES)) == {"answers_equal": 0, "rows": 10}
    assert compute_figures([], [], [], 10, list_answers([], RATES))["answers_equal"] == 1


def test_rates_are_of_batches_that_the_decision_holds_for() -> None:
    batches = [{"rows": 10, "committed_at": float(at), "slot_rows": [5, 5]} for at in (0, 9, 18, 27, 28, 29)]
    assert evaluate_busy("hash", batches, (0,), RIGHT, settling_batches=4).rows_per_second == 10.0
    assert evaluate_busy("hash", batches, (0,), RIGHT, settling_batches=3).rows_per_second == pytest.approx(30 / 11)


def test_every_competitor_has_a_name_of_its_own() -> None:
    for competitors in (SPREAD_COMPETITORS, TOPIC_COMPETITORS):
        assert len({competitor.name for competitor in competitors}) == len(competitors)


# -- report ------------------------------------------------------------------------------------------------------------


def test_tables_and_the_picture_show_all_parts(tmp_path: Path) -> None:
    text = StringIO()
    spreads = [SpreadRun("flink", FLINKS, RIGHT), SpreadRun("hash", FLINKS, WRONG)]
    print_paper_parts(spreads, RATES, Console(file=text, width=140))
    for word in ("1.27–1.57 %", "52", "0.667", "wrong", "3 rows missing", "mnrt", "2.50", "lab"):
        assert word in text.getvalue()
    assert all(path.stat().st_size for path in draw_paper_parts(spreads, RATES, tmp_path))
    assert draw_paper_parts([], [], tmp_path) == []
