"""The exchange bench as a whole, small: every way, in one process and on two workers that are hosts of their own."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.exchange.bench import LIMIT_MBIT, Extent, run
from benchmarks.exchange.figures import AHEAD, GLOBAL, HELD, LOCAL, PLAIN, WAYS
from benchmarks.shared.registry import BenchOptions
from lab.hosts import find_what_is_missing
from quick_jvm import SPARK_ENVIRONMENT


def test_every_way_answers_alike_and_sends_less_than_a_plain_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SPARK_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    options = BenchOptions(
        rows=96_000,
        keys=40,
        cache_dir=tmp_path / "cache",
        json_path=tmp_path / "figures.json",
        out_dir=tmp_path / "out",
    )
    missing = find_what_is_missing()
    text = StringIO()
    report = run(options, Console(file=text, width=100), Extent(rounds=1, warm_ups=(), fewest_batches=4))
    assert report.answers_equal, text.getvalue()
    assert (tmp_path / "figures.json").exists() and (tmp_path / "out" / "exchange.svg").exists()
    for limit in (None, *(() if missing else (LIMIT_MBIT,))):
        sent = {each.way: each.exchanged_bytes for each in report.systems if each.limit_mbit == limit}
        assert set(sent) == set(WAYS)
        assert sent[PLAIN] > sent[LOCAL] > sent[HELD] > sent[GLOBAL] == sent[AHEAD] == 0
    if missing:
        assert any(missing in note for note in report.notes)
        pytest.skip(f"every way was run in one process only: {missing}")
    assert report.figures["limited_ahead_x_plain"] > 0
    for each in report.systems:
        if each.limit_mbit is not None:
            assert each.wire_bytes is not None and each.driver_bytes is not None
            assert each.wire_bytes > each.driver_bytes > 0
