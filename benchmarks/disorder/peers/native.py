"""Run the disordered windows on Spark's own Structured Streaming: one watermark for all, late rows are dropped."""

from __future__ import annotations

from typing import Any

from benchmarks.shared.peers.native_spark import configure, describe_batch, run_windows, start_spark, write_outcome
from benchmarks.shared.peers.options import read_options


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    arguments = read_options(input=str, format=str, files_per_batch=int, memory=str, delay_ms=int, window_ms=int)

    settings = configure("memory", arguments.memory)
    spark = start_spark("disorder-native", settings)
    delay, window = f"{arguments.delay_ms} milliseconds", f"{arguments.window_ms} milliseconds"
    reports = run_windows(spark, arguments, delay, window)
    spark.stop()
    batches = [{**describe_batch(report), "dropped_groups": _count_dropped(report)} for report in reports]
    write_outcome(arguments.result, batches, {**settings, "maxFilesPerTrigger": str(arguments.files_per_batch)})


def _count_dropped(report: dict[str, Any]) -> int:
    """Return what Spark says that it dropped: it counts after its partial aggregation, so rows are more."""
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in report["stateOperators"])


if __name__ == "__main__":
    main()
