"""Failures that only workers of their own, and Spark's traces, can show."""

from __future__ import annotations

import traceback

import polars as pl

import anabranch as ab
from flows.test_failing_flows import ROWS, fail
from spark.fixtures import SparkBench


def unknown_to_workers(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def test_a_module_that_workers_cannot_import_is_named_once(bench: SparkBench) -> None:
    text = fail(bench, lambda stream: stream.map_batches(unknown_to_workers).key_by("key").agg(rows=ab.count()))
    assert text.startswith("workers cannot import 'spark', which the flow uses: install it there")


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
        assert ("engine/pipeline.py" in shown) is debug
