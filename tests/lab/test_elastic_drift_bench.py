"""The part of the elastic bench in which keys move, small: answers, phases and the picture."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.elastic import drift
from benchmarks.shared.registry import BenchOptions
from quick_jvm import QUICK_JVM, SPARK_ENVIRONMENT

# It makes a lab.
pytestmark = pytest.mark.xdist_group("lab")


def test_keys_that_move_are_followed_phase_by_phase_and_answers_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SPARK_ENVIRONMENT, "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}.items():
        monkeypatch.setenv(name, value)
    extent = drift.Extent(steps=200, batches_a_phase=3, moving_phases=2, narrowing_phases=0, quotas=False)
    options = BenchOptions(rows=20_000, cache_dir=tmp_path / "cache", out_dir=tmp_path / "out")
    found = drift.run_drift(options, (), Console(file=StringIO()), extent)
    assert [str(answer.difference) for answer in found.answers.values() if not answer.equal] == []
    assert [run["spread_by"] for run in found.runs] == ["hash", "auto"] and len(found.answers) == 2
    for run in found.runs:
        assert [first for first, _ in run["phases"]] == [0, 3]
        # The first batch only tells from where executors are counted.
        assert {spread["batch"] for spread in run["spreads"]} >= {1, 2, 3, 4, 5}
        assert all(spread["mean"] > 0 for spread in run["spreads"])
    assert len(found.figures) == 2 and all(figure >= 0 for figure in found.figures.values())
    assert (tmp_path / "out" / "executor-spread.svg").exists()
