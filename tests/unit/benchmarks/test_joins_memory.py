"""The long interval joins of the joins bench: what they keep, and what is claimed of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from benchmarks.joins.memory.figures import (
    ALIGNED,
    FREE,
    LIVE,
    MEMORY,
    MemoryRun,
    MemorySample,
    compute_memory_figures,
    find_memory_growth,
    find_state_growth,
)
from benchmarks.joins.memory.measuring import MemoryMeasures, run_two_speeds
from benchmarks.joins.memory.picture import draw_memory
from benchmarks.joins.memory.report import print_memory
from benchmarks.joins.memory.streams import (
    AFTER_MS,
    BEFORE_MS,
    LENGTH_MS,
    LENGTHS,
    RESULTS_A_ROW,
    MemoryStreams,
    check_pairs,
    plan_memory,
    plan_two_speeds,
)
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.process import measure_memory
from benchmarks.shared.registry import BenchOptions
from benchmarks.shared.workload import WorkloadError

RIGHT = AnswerCheck(True, 10, "d")


def make_run(way: str, states: list[int], memory: list[dict[str, int]] | None = None) -> MemoryRun:
    """Return a run of ten window lengths with two batches in each."""
    told = memory or [{}] * len(states)
    samples = [MemorySample(100 * at, at / 2, state, told[at]) for at, state in enumerate(states)]
    return MemoryRun(way, 2_000, 10, RIGHT, samples, 1.0)


def test_the_longest_batch_is_that_of_the_last_part() -> None:
    samples = [MemorySample(at, float(at), 1, {}, seconds) for at, seconds in enumerate([9.0, 1.0, 2.0, 0.5, 0.7])]
    assert MemoryRun(LIVE, 4, 4, RIGHT, samples, 1.0).batch_seconds == 0.7
    assert MemoryRun(LIVE, 4, 10, RIGHT, samples, 1.0).batch_seconds == 9.0


# -- figures -----------------------------------------------------------------------------------------------------------


def test_growth_is_from_the_second_window_length_to_the_last_quarter() -> None:
    # Lengths 0, 0.5 | 1, 1.5 | 2 … 7 | 7.5 …: what is before and between does not count.
    run = make_run(LIVE, [1, 50, 90, 110, *[999] * 11, 100, 120])
    growth = find_state_growth(run)
    assert growth is not None
    assert (growth.then, growth.now) == (100, 110)
    assert growth.percent == pytest.approx(10.0)


def test_memory_grows_by_role_and_together() -> None:
    memory = [{"driver": 10, "jvm": 100}] * 10 + [{"driver": 20, "jvm": 100}] * 10
    run = make_run(LIVE, [100] * 20, memory)
    by_role = {role: find_memory_growth(run, role) for role in ("driver", "jvm")}
    assert {role: growth.percent for role, growth in by_role.items() if growth} == {"driver": 100.0, "jvm": 0.0}
    figures = compute_memory_figures([run])
    assert figures["state_growth_pct"] == 0.0
    assert figures["memory_growth_pct"] == pytest.approx(100 * 10 / 110)
    assert figures["python_memory_growth_pct"] == 100.0


def test_state_that_waits_is_held_against_state_that_does_not() -> None:
    figures = compute_memory_figures([make_run(ALIGNED, [20] * 20), make_run(FREE, [10, *[100] * 15, 10, 10, 10, 10])])
    assert figures == {"aligned_state_growth_pct": 0.0, "free_x_aligned_state": 5.0}


def test_a_run_that_is_too_short_claims_nothing_of_growth() -> None:
    assert compute_memory_figures([make_run(LIVE, [5, 7])]) == {"most_state_bytes": 7}


def test_memory_is_that_of_a_process_and_of_those_that_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        found = measure_memory(os.getpid())
        started.communicate(b"\n")
    assert found["driver"] > 10_000_000
    assert found["workers"] > 0


# -- runs --------------------------------------------------------------------------------------------------------------


def make_small(streams: MemoryStreams) -> MemoryStreams:
    return replace(streams, lengths=12)


@pytest.fixture(scope="module")
def two_speeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MemoryRun]:
    streams = replace(make_small(plan_two_speeds(9_600, 0.8, 7)), batches_a_length=5, ads_speed=5)
    waits = {ALIGNED: f"{LENGTH_MS}ms", FREE: None}
    return {way: run_two_speeds(streams, way, align, tmp_path_factory.mktemp(way), 2) for way, align in waits.items()}


def test_state_of_a_long_join_is_as_large_as_its_window(tmp_path: Path) -> None:
    streams = make_small(plan_memory(24_000, 0.8, 7))
    run = run_two_speeds(streams, LIVE, None, tmp_path, 2)
    assert run.answer.equal, run.answer.difference
    assert run.answer.rows == pytest.approx(RESULTS_A_ROW * run.rows, rel=0.3)
    growth = find_state_growth(run)
    assert growth is not None
    assert abs(growth.percent) < 15
    assert run.samples[-1].rows == run.rows
    assert len(run.samples) > 2 * streams.lengths


def test_one_side_that_is_far_faster_fills_state_only_if_it_need_not_wait(
    two_speeds: dict[str, MemoryRun],
) -> None:
    assert all(run.answer.equal for run in two_speeds.values())
    assert two_speeds[ALIGNED].answer == two_speeds[FREE].answer
    figures = compute_memory_figures(list(two_speeds.values()))
    assert figures["aligned_state_growth_pct"] < 25
    assert figures["free_x_aligned_state"] > 2.5


def test_the_oracle_finds_every_pair_once_however_rows_are_cut() -> None:
    streams = make_small(plan_memory(6_000, 0.8, 3))
    frames = {
        stream: pl.concat(one.frame for one in source.read({"from": 0, "to": source.total_rows}))
        for stream, source in streams.make_sources().items()
    }
    clicks = frames["clicks"].with_columns((pl.col("ad") + streams.ranks_between) % streams.keys)
    later = (pl.col("clicked") - pl.col("shown")).dt.total_microseconds()
    wanted = frames["ads"].join(clicks, on="ad").filter(later.is_between(-BEFORE_MS * 1_000, AFTER_MS * 1_000))
    found = pl.concat(streams.find_pairs())
    assert found.sort(pl.all()).equals(wanted.select(found.columns).sort(pl.all()))


@pytest.mark.parametrize("change", ["missing", "swapped"])
def test_pairs_that_differ_are_found(change: str, tmp_path: Path) -> None:
    streams = make_small(plan_memory(6_000, 0.8, 3))
    pairs = pl.concat(streams.find_pairs())
    changed = {"missing": pairs.tail(-1), "swapped": pairs.with_columns(pl.col("paid").reverse())}[change]
    pairs.write_parquet(tmp_path / "part-0.parquet")
    assert check_pairs(streams, tmp_path).equal
    changed.write_parquet(tmp_path / "part-0.parquet")
    assert not check_pairs(streams, tmp_path).equal


def test_a_run_lasts_dozens_of_window_lengths_and_too_few_rows_are_refused() -> None:
    streams = plan_memory(50_000_000, 0.8, 7)
    assert (streams.rows, streams.lengths) == (50_000_000, LENGTHS)
    assert LENGTHS >= 24
    with pytest.raises(WorkloadError, match="ask for 5000 or more"):
        plan_memory(4_999, 0.8, 7)


def test_the_table_and_the_picture_show_what_grew(two_speeds: dict[str, MemoryRun], tmp_path: Path) -> None:
    memory = [{"jvm": 500_000_000, "workers": 90_000_000}] * 20
    runs = [make_run(LIVE, [2_000_000] * 10 + [3_000_000] * 10, memory), *two_speeds.values()]
    measures = MemoryMeasures(BenchOptions(cache_dir=tmp_path), 10_000, Console(file=StringIO()))
    output = StringIO()
    print_memory(runs, {MEMORY: measures.describe()}, Console(file=output, width=140))
    shown = " ".join(output.getvalue().split())
    assert "committed state 2.0 3.0 +50.0 % 3.0" in shown
    assert "resident, jvm 500.0 500.0 +0.0 % 500.0" in shown
    assert "10,000 rows live" in shown
    assert [path.suffix for path in draw_memory(runs, tmp_path)] == [".png", ".svg"]
    assert draw_memory([], tmp_path) == []
