"""Flows of the benches in small: what they answer is what their oracles do."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from benchmarks.apps.answers import ask_oracle, check_app_answer, read_answer
from benchmarks.apps.inputs import AppInput, write_app_input
from benchmarks.apps.peers.ours import STREAMS
from benchmarks.apps.rules import APPS, DELAY_MS, WINDOW_MS
from benchmarks.disorder.inputs import LATENESS_MS, DisorderInput
from benchmarks.shared.answers import ANSWER_READERS
from benchmarks.shared.figures import OURS
from benchmarks.shared.workload import SCHEMA
from benchmarks.skew.answers import ask_busy_oracle, check_top_answer
from benchmarks.skew.competitors import Competitor
from benchmarks.skew.launch import describe_run
from benchmarks.skew.peers.ours_runs import run_flow
from benchmarks.skew.streams import make_topic_stream, write_stream

SLOTS = 4


def test_the_top_of_topics_is_the_oracles_although_topics_are_split(spark: SparkSession, tmp_path: Path) -> None:
    # Half of the posts are about one topic: no slot can take it whole.
    folder = write_stream(make_topic_stream(10_000, 5, seed=5, topics=300), "parquet", tmp_path / "input")
    given = describe_run(Competitor("mnrt", planner="mnrt"), folder, lehmer_steps=3, top_k=10)
    seen = run_flow(spark, given, SLOTS, tmp_path / "output", tmp_path / "checkpoint")
    answer = check_top_answer(ANSWER_READERS[OURS](tmp_path / "output"), ask_busy_oracle(folder, 3), 10)
    assert answer.equal, answer.difference
    assert answer.rows >= 20
    assert any(batch["change"] for batch in seen["batches"]), "no key was moved or split, so nothing was tried"


@pytest.mark.parametrize("app", APPS)
def test_an_application_answers_alike_when_a_batch_has_many_windows_of_a_sensor(
    app: str, spark: SparkSession, tmp_path: Path
) -> None:
    # 100 rows an event second, so that 40,000 rows are 80 windows of a vault's sensor.
    made = AppInput(app, DisorderInput(40_000, 4_000, 50 if app == APPS[0] else 0, 100, 100, 3))
    folder = write_app_input(made, tmp_path / "input")
    given = Namespace(
        delay_ms=DELAY_MS, window_ms=WINDOW_MS[app], lateness_ms=LATENESS_MS, low_volts=made.low_volts, app=app
    )
    flow = ab.Flow(app)
    readings = flow.read(ab.files(folder, format="csv", schema=SCHEMA, max_files=5))
    STREAMS[app](readings.with_columns(ts=pl.from_epoch("ts", "ms")), given).write(ab.parquet(tmp_path / "output"))
    flow.run(tmp_path / "checkpoint", spark=spark, trigger="available-now", drain=True, slots=2)
    wanted = ask_oracle(app, folder, made.low_volts)
    check = check_app_answer(app, read_answer(app, tmp_path / "output"), wanted, None)
    assert check.equal, check.difference
    assert check.rows > 100
