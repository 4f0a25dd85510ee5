"""Failures that only workers of their own, and Spark's traces, can show."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from flows.test_failing_flows import ROWS, fail
from spark.fixtures import SparkBench


def test_a_module_that_workers_cannot_import_is_named_once(
    bench: SparkBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unknown_to_workers.py").write_text("def leave(frame):\n    return frame\n")
    monkeypatch.syspath_prepend(tmp_path)
    leave = importlib.import_module("unknown_to_workers").leave
    text = fail(bench, lambda stream: stream.map_batches(leave).key_by("key").agg(rows=ab.count()))
    assert text.startswith("workers cannot import 'unknown_to_workers', which the flow uses: install it there")


def test_an_error_shows_no_frames_of_the_engine_unless_asked_for(bench: SparkBench) -> None:
    def refuse(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            raise ValueError("refused")
        return frame

    for debug in (False, True):
        try:
            bench.run([ROWS], lambda stream: stream.map_batches(refuse), debug=debug)
        except ab.FlowError as error:
            shown = "".join(traceback.format_exception(error))
        assert ("py4j" in shown) is debug
        assert ("engine/tasks/pipeline.py" in shown) is debug
