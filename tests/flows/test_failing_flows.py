"""Flows that fail as they run: the reason first, once, without Spark's traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from flows.running import FlowBench, reading

ROWS = [reading(n, n, whole=n) for n in range(20)]


def fail(bench: FlowBench, build: Callable[[Any], Any], kind: type[Exception] = ab.FlowError, **settings: Any) -> str:
    with pytest.raises(kind) as caught:
        bench.run([ROWS], build, **settings)
    assert type(caught.value) is kind
    return str(caught.value)


def count_calls(folder: Path) -> Callable[[], int]:
    """Return a function that counts how often it is called, in whatever process."""
    folder.mkdir()

    def call() -> int:
        number = len(list(folder.iterdir()))
        (folder / str(number)).touch()
        return number

    return call


def test_a_failed_cast_names_cause_column_and_value_first_and_is_tried_once(bench: FlowBench, tmp_path: Path) -> None:
    call = count_calls(tmp_path / "calls")

    def watch(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            call()
        return frame

    cast = pl.concat_str(pl.lit("n"), "whole").cast(pl.Int64)
    text = fail(bench, lambda stream: stream.map_batches(watch).with_columns(doubled=cast))
    assert text.splitlines()[0].startswith("conversion from `str` to `i64` failed in column")
    assert '"n0"' in text.splitlines()[0]
    assert "in the step: with_columns doubled=" in text
    assert "with the row: {'key': 0," in text
    assert "batch 0 is not committed" in text.splitlines()[-1]
    assert call() == 1


def test_a_users_function_shows_its_own_line_and_the_row(bench: FlowBench) -> None:
    def halve(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"half": 100 // (row["whole"] - 13)}

    text = fail(bench, lambda stream: stream.flat_map(halve, schema={"half": pl.Int64}))
    assert text.splitlines()[0] == "ZeroDivisionError: integer division or modulo by zero"
    assert "in the step: flat_map halve" in text
    assert "'whole': 13" in text
    assert f'File "{__file__}", line {halve.__code__.co_firstlineno + 1}, in halve' in text


def test_a_step_behind_an_exchange_is_named_too_and_tried_once(bench: FlowBench, tmp_path: Path) -> None:
    call = count_calls(tmp_path / "calls")

    def refuse(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height and 13 in frame["key"]:
            call()
            raise ValueError("unlucky")
        return frame

    def build(stream: ab.Stream) -> ab.Stream:
        counted = stream.key_by("key").agg(rows=ab.count()).map_batches(refuse)
        return counted.key_by("rows").agg(keys=ab.count())

    text = fail(bench, build)
    assert text.splitlines()[0] == "ValueError: unlucky"
    assert "in the step: map_batches refuse" in text
    # The rows that fail are looked for by halves, all in one try of one task.
    assert call() <= 7


def test_a_processor_shows_its_line_its_key_and_the_row(bench: FlowBench) -> None:
    # Within the test, so that workers get the class itself and not the name of a module.
    class Moody(ab.Processor):
        def on_time(self, row: Any, state: ab.KeyState, timers: ab.Timers) -> Iterator[dict[str, Any]]:
            yield {"inverse": 1 // (row["whole"] - 13)}

    text = fail(bench, lambda stream: stream.key_by("key").process(Moody(), schema={"inverse": pl.Int64}))
    assert text.startswith("processor Moody: on_time for key=13: ZeroDivisionError")
    assert "in the step: process Moody" in text
    assert "with the row: {'key': 13," in text
    assert f'File "{__file__}", line {Moody.on_time.__code__.co_firstlineno + 1}, in on_time' in text


def test_an_aggregates_expression_says_which_aggregate_and_row(bench: FlowBench) -> None:
    spoilt = pl.concat_str(pl.when(pl.col("whole") == 13).then(pl.lit("x")).otherwise(pl.lit("")), "whole")
    text = fail(bench, lambda stream: stream.key_by("key").agg(total=ab.sum(spoilt.cast(pl.Int64))))
    assert "conversion from `str` to `i64` failed" in text.splitlines()[0]
    assert "in the step: agg total=sum" in text
    assert "'whole': 13" in text


def test_what_the_host_may_be_to_blame_for_is_tried_again_and_ends_with_its_reason(
    bench: FlowBench, tmp_path: Path
) -> None:
    call = count_calls(tmp_path / "calls")

    def ask(frame: pl.DataFrame) -> pl.DataFrame:
        if frame.height:
            call()
            raise ConnectionError("nobody answers")
        return frame

    text = fail(bench, lambda stream: stream.map_batches(ask), ab.EngineError, job_attempts=2, read_tasks=1)
    assert text.splitlines()[0] == "ConnectionError: nobody answers"
    assert "in the step: map_batches ask" in text
    assert "failed 2 times" in text.splitlines()[-1]
    assert call() >= 2


def test_a_failing_flow_prints_nothing_of_sparks(bench: FlowBench, capfd: pytest.CaptureFixture[str]) -> None:
    fail(bench, lambda stream: stream.filter(pl.col("key").cast(pl.String).str.to_integer(base=2) > 0))
    shown = capfd.readouterr()
    assert "org.apache.spark" not in shown.err + shown.out
    assert "Traceback" not in shown.err + shown.out
