"""Run one flow after the other in one warm session; note commits, slots' rows and processor time of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.lab.core_shares import CoreShares
from anabranch.model import BatchProgress
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import describe_commit
from benchmarks.shared.workload import SCHEMA
from benchmarks.skew.competitors import Competitor
from benchmarks.skew.peers.lehmer import LehmerSum


def run_flow(
    spark: SparkSession,
    given: Mapping[str, Any],
    slots: int,
    output: Path,
    checkpoint: Path,
    core_shares: CoreShares | None = None,
) -> dict[str, Any]:
    """Run one flow over a folder, so many files a batch; the answers of a run without a name are thrown away."""
    competitor = Competitor(**given["competitor"])
    source = ab.files(
        given["folder"],
        format="parquet",
        schema=SCHEMA,
        max_files=given["files_per_batch"],
        max_bytes=None,
    )
    steps = given["lehmer_steps"]
    total = LehmerSum("value", steps, core_shares) if steps else ab.sum("value")
    flow = ab.Flow("runs")
    totals = (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .watermark("ts", delay="2s")
        .key_by("sensor", routing=competitor.routing, balance=competitor.balance)
        .window("10s")
        .agg(readings=ab.count(), total=total)
    )
    if given["top_k"]:
        # One slot ranks what all of them counted: there are as many rows of it as keys.
        ranked = totals.with_columns(ranking=pl.lit(0)).key_by("ranking", balance=None).window("10s")
        totals = ranked.top_k(given["top_k"], by="readings", columns=["sensor", "total"])
    totals.write(ab.parquet(str(output)))
    batches: list[dict[str, Any]] = []

    def note(batch: BatchProgress) -> None:
        batches.append(describe_commit(batch, "slot_rows", "moved_bytes"))

    before = measure_processor_seconds()
    flow.run(
        str(checkpoint),
        spark=spark,
        on_progress=note,
        trigger="available-now",
        drain=True,
        slots=slots,
        local_merge=given["local_merge"],
    )
    spent = measure_processor_seconds() - before
    shutil.rmtree(checkpoint, ignore_errors=True)
    return {"name": given["name"], "batches": batches, "processor_seconds": spent}


def measure_processor_seconds() -> float:
    """Return the processor time that this process and all below it have taken, those that have ended included."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def main() -> None:
    """Run all flows of a JSON file and write what was seen as JSON."""
    arguments = read_options({"core_share": 0.0}, runs=str, slots=int, memory=str, threads=int)
    runs: list[Mapping[str, Any]] = json.loads(Path(arguments.runs).read_text())
    core_shares = CoreShares.open(arguments.core_share) if arguments.core_share else None
    spark = ab.local_session(master=f"local[{arguments.threads}]", memory=arguments.memory)
    seen = []
    for number, given in enumerate(runs):
        output = Path(arguments.output) / str(number)
        checkpoint = Path(arguments.checkpoint) / str(number)
        seen.append(run_flow(spark, given, arguments.slots, output, checkpoint, core_shares))
    spark.stop()
    if core_shares is not None:
        core_shares.close()
    Path(arguments.result).write_text(json.dumps({"runs": seen, "core_share": core_shares and core_shares.share}))


if __name__ == "__main__":
    main()
