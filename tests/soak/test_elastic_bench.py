"""The parts of the elastic bench in which a stream changes its size, short: they take minutes, for time passes in them.

That of keys which move is in ``tests/lab``.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.elastic import load, rescale
from benchmarks.shared.registry import BenchOptions
from lab.hosts import find_what_is_missing

# One makes a lab.
pytestmark = pytest.mark.xdist_group("lab")


def test_a_stream_that_gets_more_slots_is_watched_from_its_first_result_to_its_last(tmp_path: Path) -> None:
    options = BenchOptions(rows=2_000, rounds=1, cache_dir=tmp_path / "cache", out_dir=tmp_path / "out")
    found = rescale.run_rescale(options, (), Console(file=StringIO()))
    assert [str(answer.difference) for answer in found.answers.values() if not answer.equal] == []
    (run,) = found.runs
    assert run["system"] == rescale.OURS
    assert run["longest_seconds"] >= run["usual_seconds"] > 0
    assert found.figures["rescale_without_results_seconds"] == run["without_results_seconds"]


def test_a_load_that_rises_and_falls_is_followed_without_a_restart(tmp_path: Path) -> None:
    missing = find_what_is_missing()
    if missing:
        pytest.skip(f"without hosts: {missing}")
    options = BenchOptions(cache_dir=tmp_path / "cache", out_dir=tmp_path / "out")
    extent = load.Extent(warm_up_batches=5, settled_batches=2)
    found = load.run_load(options, (), Console(file=StringIO()), extent)
    assert [str(answer.difference) for answer in found.answers.values() if not answer.equal] == []
    (run,) = found.runs
    assert (run["runs"], run["replayed_batches"]) == (1, 0)
    assert found.figures["restarts_count"] == 0
    assert [phase["name"] for phase in run["phases"]] == ["×1", "×4", "×1 again"]
    assert run["phases"][1]["executors"] > run["phases"][2]["executors"] == 1
    assert run["longest_gap_seconds"] >= run["usual_gap_seconds"] > 0
    assert (tmp_path / "out" / "elastic-load.svg").exists()
