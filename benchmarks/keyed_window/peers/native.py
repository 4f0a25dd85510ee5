"""Run the keyed window on Spark's own Structured Streaming, in a process of its own."""

from __future__ import annotations

from benchmarks.shared.peers.native_spark import configure, describe_batch, run_windows, start_spark, write_outcome
from benchmarks.shared.peers.options import read_options


def main() -> None:
    """Run the query over all files and write samples, batches and settings as JSON."""
    arguments = read_options(input=str, format=str, state_store=str, files_per_batch=int, memory=str)

    settings = configure(arguments.state_store, arguments.memory)
    spark = start_spark("keyed-window-native", settings)
    reports = run_windows(spark, arguments, "2 seconds", "10 seconds")
    spark.stop()
    batches = [describe_batch(report) for report in reports]
    write_outcome(arguments.result, batches, {**settings, "maxFilesPerTrigger": str(arguments.files_per_batch)})


if __name__ == "__main__":
    main()
