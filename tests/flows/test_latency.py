"""A target for the latency of batches: their sizes follow it, and answers stay as they are."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import FlowError
from flows.running import FlowBench, Outcome

SECONDS_A_ROW = 10e-6
TARGET = 0.2


def _take_time(frame: pl.DataFrame) -> pl.DataFrame:
    time.sleep(SECONDS_A_ROW * frame.height)
    return frame


def _run_slow_flow(bench: FlowBench, sources: list[Any], **settings: Any) -> Outcome:
    """Run a flow whose rows take their time, one after the other, to the end."""
    flow, sink = ab.Flow("slow"), ab.to_memory()
    streams = [flow.read(source, name=f"source-{number}") for number, source in enumerate(sources)]
    rows = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    rows.map_batches(_take_time).key_by("key").watermark("ts", delay="2s").window("1m").agg(rows=ab.count()).write(sink)
    return bench.run_flow(flow, [sink], read_tasks=1, slots=2, drain=True, **settings)


def _generate(rows: int, seed: int = 0, max_rows: int | None = None) -> Any:
    return ab.generate(None, total_rows=rows, keys=20, event_rows_per_second=1_000, seed=seed, max_rows=max_rows)


def _answers(outcome: Outcome) -> pl.DataFrame:
    return pl.concat(frame for _, frame in outcome.batches).sort(pl.all())


def _sizes(outcome: Outcome) -> list[int]:
    return [one.rows_in for one in outcome.progress if one.rows_in]


def test_batches_grow_and_stay_at_the_size_that_the_target_allows(bench: FlowBench) -> None:
    free = _run_slow_flow(bench, [_generate(150_000)])
    held = _run_slow_flow(bench, [_generate(150_000)], latency="200ms")
    assert _answers(held).equals(_answers(free))
    assert _sizes(free) == [150_000]
    assert _sizes(held)[0] == 10_000
    settled = [one for one in held.progress if one.rows_in][3:-1]
    assert 0.5 * TARGET < median(one.batch_seconds for one in settled) < 1.2 * TARGET
    assert median(one.rows_in for one in settled) < TARGET / SECONDS_A_ROW


def test_progress_says_what_was_admitted_and_what_was_expected(bench: FlowBench) -> None:
    held = _run_slow_flow(bench, [_generate(100_000)], latency="200ms")
    with_rows = [one for one in held.progress if one.rows_in]
    assert with_rows[0].admitted is not None
    assert with_rows[0].admitted.expected_seconds is None
    assert with_rows[0].waiting_rows == 90_000
    for one in with_rows:
        assert one.admitted is not None
        assert one.rows_in <= one.admitted.rows
        assert one.admitted.target_seconds == TARGET
    later = with_rows[4].admitted
    assert later is not None
    assert later.expected_seconds is not None
    assert "µs a row" in later.reason
    read = type(with_rows[4]).from_json(json.loads(json.dumps(with_rows[4].to_json())))
    assert replace(read, measures=None) == replace(with_rows[4], measures=None)


def test_limits_of_sources_hold_beside_the_target(bench: FlowBench) -> None:
    held = _run_slow_flow(bench, [_generate(40_000, max_rows=4_000)], latency="200ms")
    assert _sizes(held) == [4_000] * 10


def test_several_sources_share_what_is_admitted(bench: FlowBench) -> None:
    sources = [_generate(12_000), _generate(60_000, seed=1)]
    held = _run_slow_flow(bench, sources, latency="200ms")
    assert _sizes(held)[0] == 10_000
    assert sum(_sizes(held)) == 72_000
    assert all(one.rows_in <= one.admitted.rows for one in held.progress if one.admitted is not None)
    assert _answers(held).equals(_answers(_run_slow_flow(bench, sources)))


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_files_are_cut_to_what_is_admitted(bench: FlowBench, tmp_path: Path, format: str) -> None:
    rows = pl.DataFrame({"key": [row % 7 for row in range(40_000)], "ts": range(40_000)}).with_columns(
        pl.from_epoch(pl.col("ts") + 1_767_225_600_000_000, time_unit="us")
    )
    folder = tmp_path / "readings"
    folder.mkdir()
    if format == "json":
        rows.write_ndjson(folder / "all.json")
    else:
        rows.write_parquet(folder / "all.parquet")
    source = ab.files(str(folder), format=format, schema={"key": pl.Int64, "ts": pl.Datetime("us")})
    held = _run_slow_flow(bench, [source], latency="200ms")
    assert sum(_sizes(held)) == 40_000
    assert len(_sizes(held)) > 2
    assert _sizes(held)[0] == pytest.approx(10_000, rel=0.05)
    assert held.progress[0].waiting_rows == pytest.approx(30_000, rel=0.05)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"latency": "soon"}, "the latency 'soon' is not a length of time"),
        ({"latency": "1ms"}, "no batch is as quick"),
        ({"latency": "2s", "trigger": "once"}, "trigger='once' makes only one"),
    ],
)
def test_a_target_that_cannot_be_meant_is_refused(bench: FlowBench, settings: dict[str, str], words: str) -> None:
    flow = ab.Flow("slow")
    flow.read(_generate(10)).write(ab.to_memory())
    with pytest.raises(FlowError, match=words):
        flow.check(checkpoint=str(bench.folder / "state"), **settings)
