"""The YSB bench in small, with servers and processes of its own."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.servers.jars import ServerMissing
from benchmarks.shared.registry import BenchOptions
from benchmarks.ysb import bench as ysb
from benchmarks.ysb.events import CHUNK_ROWS
from benchmarks.ysb.figures import SECURED, SUSTAINED
from quick_jvm import SPARK_ENVIRONMENT
from servers.programs import skip_or_fail

QUICK = ysb.Sustained(rate=2_000, warm_up_seconds=14.0, measured_seconds=12.0, tail_seconds=6.0)


@pytest.mark.parametrize("mode", [SECURED, SUSTAINED])
def test_a_short_bench_gives_right_answers(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ysb, "SHORT_SUSTAINED", QUICK)
    for name, value in SPARK_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    options = BenchOptions(rows=CHUNK_ROWS, peers=(), cache_dir=tmp_path, json_path=tmp_path / "figures.json")
    try:
        report = ysb.run(options, Console(file=StringIO()), modes=(mode,))
    except ServerMissing as missing:
        skip_or_fail(missing)
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert figures["answers_equal"] == 1, [run.answer.difference for run in report.runs]
    assert figures["rows"] == CHUNK_ROWS
    assert ("p99_ms" in figures) == (mode == SUSTAINED)
