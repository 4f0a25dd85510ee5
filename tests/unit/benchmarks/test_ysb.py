"""The Yahoo Streaming Benchmark's parts: events, answers, latency and figures."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BENCHES, BenchError, BenchOptions
from benchmarks.ysb import bench as ysb
from benchmarks.ysb.answers import Latency, check_windows, measure_latency
from benchmarks.ysb.events import (
    ADS_PER_CAMPAIGN,
    CAMPAIGNS,
    CHUNK_ROWS,
    WINDOW_MS,
    Ads,
    EventMaker,
    chunk_times_ms,
    merge_answers,
    plan_rows,
    to_messages,
)
from benchmarks.ysb.figures import CATCH_UP, FLINK, OURS, SECURED, SPARK, SUSTAINED, YsbRun, compute_figures
from benchmarks.ysb.peers import flink
from benchmarks.ysb.report import YsbReport, print_report


def test_events_have_the_originals_fields_as_text() -> None:
    events = EventMaker(7).make(0, chunk_times_ms(0)[:1_000])
    message = json.loads(to_messages(events)[17])
    assert list(message) == ["user_id", "page_id", "ad_id", "ad_type", "event_type", "event_time", "ip_address"]
    assert all(isinstance(value, str) for value in message.values())
    assert message["ad_id"] in Ads(7).ads
    assert int(message["event_time"]) == events["event_time"][17]


def test_equal_seeds_give_equal_events_and_ads() -> None:
    times = chunk_times_ms(3)[:100]
    assert to_messages(EventMaker(1).make(3, times)).equals(to_messages(EventMaker(1).make(3, times)))
    assert not to_messages(EventMaker(1).make(3, times)).equals(to_messages(EventMaker(2).make(3, times)))
    assert Ads(1).to_frame().equals(Ads(1).to_frame())
    assert Ads(1).to_frame().get_column("ad_id").n_unique() == CAMPAIGNS * ADS_PER_CAMPAIGN


def test_the_oracle_counts_views_by_campaign_and_window() -> None:
    maker, times = EventMaker(7), np.arange(1_000_000, 1_020_000, dtype=np.int64)
    events = maker.make(0, times)
    counted = merge_answers([maker.count_views(events[:7_000]), maker.count_views(events[7_000:])])
    plain = (
        events.filter(pl.col("event_type") == "view")
        .join(Ads(7).to_frame(), on="ad_id")
        .group_by("campaign_id", window_start=pl.col("event_time") // WINDOW_MS * WINDOW_MS)
        .agg(seen_count=pl.len().cast(pl.Int64))
        .sort("campaign_id", "window_start")
    )
    assert counted.equals(plain)


def test_rows_are_whole_chunks_and_times_go_on_where_the_last_chunk_ended() -> None:
    assert plan_rows(1) == CHUNK_ROWS
    assert plan_rows(CHUNK_ROWS + 1) == 2 * CHUNK_ROWS
    assert chunk_times_ms(1)[0] - chunk_times_ms(0)[-1] <= 1


WANTED = pl.DataFrame({"campaign_id": ["a", "b"], "window_start": [0, 10_000], "seen_count": [3, 4]})


def test_windows_that_may_be_open_still_are_not_asked_for() -> None:
    assert check_windows(WANTED.head(1), WANTED, closed_until_ms=15_000).equal
    assert not check_windows(WANTED.head(1), WANTED, closed_until_ms=20_000).equal


def test_wrong_and_additional_windows_are_found() -> None:
    wrong = check_windows(WANTED.with_columns(seen_count=pl.lit(3)), WANTED, 30_000)
    assert "1 of 2 windows" in wrong.difference
    assert "'campaign_id': 'b'" in wrong.difference
    assert not check_windows(pl.concat([WANTED, WANTED.head(1)]), WANTED, 30_000).equal


def test_latency_counts_from_the_end_of_a_window() -> None:
    found = WANTED.with_columns(time_updated=pl.col("window_start") + WINDOW_MS + pl.Series([100, 900]))
    assert measure_latency(found, 0, 30_000) == Latency(500.0, 892.0, 900.0, 2)
    assert measure_latency(found, 10_000, 30_000) == Latency(900.0, 900.0, 900.0, 1)
    assert measure_latency(found, 50_000, 60_000) is None


def run_of(
    system: str, mode: str, rate: float | None = None, equal: bool = True, p50_ms: float | None = 10.0
) -> YsbRun:
    latency = Latency(p50_ms, 2 * p50_ms, 30.0, 100) if mode == SUSTAINED and p50_ms is not None else None
    return YsbRun(system, mode, 1_000, AnswerCheck(equal, 1, "d"), rate, 1.5, latency, peak_memory_bytes=10**9)


def test_figures_compare_with_each_peer_and_show_latencies() -> None:
    rates = {OURS: 6e5, FLINK: 2e5, SPARK: 3e5}
    runs = [run_of(system, CATCH_UP, rate) for system, rate in rates.items()]
    runs += [run_of(system, SUSTAINED) for system in rates]
    figures = compute_figures(runs, 1_000)
    assert figures["x_flink"] == pytest.approx(3.0)
    assert figures["x_spark"] == pytest.approx(2.0)
    assert (figures["p50_ms"], figures["p99_ms"], figures["flink_p99_ms"]) == (10.0, 20.0, 20.0)
    assert figures["ysb_p50_over_flink"] == 1.0
    text = StringIO()
    report = YsbReport(workload={}, figures=figures, runs=runs, seed=7)
    print_report(report, Console(file=text, width=80))
    assert "Answers equal" in text.getvalue() and "…" not in text.getvalue()
    assert "3.00" in text.getvalue()


def test_systems_that_took_turns_are_compared_turn_by_turn() -> None:
    rates = [(6e5, 2e5), (9e5, 4.5e5), (4e5, 1e5)]
    runs = [run_of(OURS, SECURED, ours) for ours, _ in rates] + [run_of(FLINK, SECURED, flink) for _, flink in rates]
    figures = compute_figures(runs, 1_000)
    assert (figures["secured_x_flink_lowest"], figures["secured_x_flink"], figures["secured_x_flink_highest"]) == (
        pytest.approx(2.0),
        pytest.approx(3.0),
        pytest.approx(4.0),
    )
    assert (figures["secured_rows_per_second"], figures["secured_flink_rows_per_second"]) == (6e5, 2e5)
    assert "x_flink" not in figures


def test_sustained_runs_are_compared_turn_by_turn() -> None:
    # In the last turn no window of Flink's was looked at: ours is compared with nothing.
    turns = [(1_200.0, 1_000.0), (900.0, 1_200.0), (1_300.0, 1_250.0), (1_000.0, None)]
    pairs = [(run_of(OURS, SUSTAINED, p50_ms=ours), run_of(FLINK, SUSTAINED, p50_ms=flink)) for ours, flink in turns]
    runs = [run for pair in pairs for run in pair]
    figures = compute_figures(runs, 1_000)
    assert [figures[f"ysb_p50_over_flink{end}"] for end in ("_lowest", "", "_highest")] == [
        pytest.approx(0.75),
        pytest.approx(1.04),
        pytest.approx(1.2),
    ]
    assert (figures["p50_ms"], figures["p99_ms"], figures["flink_p50_ms"]) == (1_100.0, 2_200.0, 1_200.0)
    text = StringIO()
    print_report(YsbReport(workload={}, figures=figures, runs=runs, seed=7), Console(file=text, width=80))
    assert "1,100" in text.getvalue() and "2,200" in text.getvalue()


def test_systems_take_as_many_turns_as_rounds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(ysb.BROKER), "fetch", lambda _: Path())
    asked = BenchOptions(peers=(), rows=CHUNK_ROWS)
    benches = [ysb._Ysb(options, Console()) for options in (asked, replace(asked, rounds=4), BenchOptions(peers=()))]
    assert [bench.turns for bench in benches] == [1, 4, 3]
    chosen = ysb._Ysb(replace(asked, only=("sustained", "catch-up")), Console())
    assert chosen.modes == [CATCH_UP, SUSTAINED]
    with pytest.raises(BenchError, match="unknown parts late; there are catch-up, secured, sustained"):
        ysb._Ysb(replace(asked, only=("late",)), Console())


def test_a_wrong_answer_leaves_no_claim() -> None:
    runs = [run_of(OURS, CATCH_UP, 6e5), run_of(FLINK, CATCH_UP, 2e5, equal=False)]
    assert compute_figures(runs, 1_000) == {"answers_equal": 0, "rows": 1_000, "batch_seconds": 1.5}


def test_absent_peers_have_no_figures() -> None:
    figures = compute_figures([run_of(OURS, CATCH_UP, 6e5)], 1_000)
    assert set(figures) == {"answers_equal", "rows", "batch_seconds", "rows_per_second"}


def test_the_bench_is_listed_and_knows_its_peers() -> None:
    with pytest.raises(BenchError, match="unknown peers polars; ysb knows flink, spark"):
        BENCHES["ysb"].run(BenchOptions(peers=("polars",)))


def test_the_sources_of_the_job_lie_beside_the_module_that_compiles_them() -> None:
    names = {path.name for path in Path(flink.__file__).parent.glob("Ysb*.java")}
    assert names == {"YsbJob.java", "YsbRedis.java", "YsbTypes.java"}
