"""Whole flows, run in this process: the engine, its checkpoints and its sinks as on Spark, and no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.running import LocalBench


@pytest.fixture
def bench(tmp_path: Path) -> LocalBench:
    """Runs flows in this test's own folder."""
    return LocalBench(tmp_path)
