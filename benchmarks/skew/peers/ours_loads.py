"""Run streams through one operator a strategy, and note what every slot of every operator received."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.spark.driver import Driver
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.steerings import RecordingSteering
from benchmarks.shared.workload import SCHEMA
from benchmarks.skew.competitors import Competitor


def run_case(
    spark: SparkSession, folder: str, competitors: Sequence[Competitor], slots: int, output: Path, checkpoint: Path
) -> dict[str, Any]:
    """Run a stream, a file a batch, through all competitors at once; each writes its answers to a folder of its own."""
    source = ab.files(
        folder,
        format="parquet",
        schema=SCHEMA,
        max_files=1,
        max_bytes=None,
    )
    flow = ab.Flow("skew")
    readings = flow.read(source).with_columns(ts=pl.from_epoch("ts", "ms")).watermark("ts", delay="2s")
    for competitor in competitors:
        keyed = readings.key_by("sensor", routing=competitor.routing, balance=competitor.balance)
        totals = keyed.window("10s").agg(name=competitor.name, readings=ab.count(), total=ab.sum("value"))
        totals.write(ab.parquet(str(output / competitor.name)))
    steered: list[RecordingSteering] = []

    def steer(program: FlowProgram) -> RecordingSteering:
        steered.append(RecordingSteering(program))
        return steered[0]

    # A hot key would become one row a split by local merge, and no slot would be fuller than another.
    settings = make_settings(
        checkpoint=str(checkpoint), trigger="available-now", drain=True, slots=slots, local_merge=False
    )
    driver = Driver(flow, settings, lambda: spark, make_steering=steer)
    driver.start()
    driver.wait()
    progress = driver.run.progress.read()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "batches": [
            {"rows": batch.rows_in, "seconds": batch.batch_seconds, "operators": operators}
            for batch, operators in zip(progress, steered[0].batches, strict=True)
        ]
    }


def main() -> None:
    """Run all cases of a JSON file and write what was seen as JSON."""
    arguments = read_options(cases=str, slots=int, memory=str)
    cases: list[Mapping[str, Any]] = json.loads(Path(arguments.cases).read_text())
    spark = ab.local_session(master="local[2]", memory=arguments.memory)
    seen = {}
    for number, case in enumerate(cases):
        competitors = [Competitor(**given) for given in case["competitors"]]
        seen[case["name"]] = run_case(
            spark,
            case["folder"],
            competitors,
            arguments.slots,
            Path(arguments.output) / str(number),
            Path(arguments.checkpoint) / str(number),
        )
    spark.stop()
    Path(arguments.result).write_text(json.dumps({"cases": seen}))


if __name__ == "__main__":
    main()
