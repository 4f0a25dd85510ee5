"""Run the disordered windows on Anabranch itself, with a watermark a key or a slot."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch.bench.peers.ours import CommitClock
from anabranch.bench.workload import SCHEMA


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--files-per-batch", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--per", choices=("key", "slot"), required=True)
    parser.add_argument("--delay-ms", type=int, required=True)
    parser.add_argument("--window-ms", type=int, required=True)
    parser.add_argument("--lateness-ms", type=int, required=True)
    arguments = parser.parse_args()

    source = ab.files(
        arguments.input,
        format=arguments.format,
        schema=SCHEMA,
        max_files=arguments.files_per_batch,
        max_bytes=None,
    )
    flow = ab.Flow("disorder")
    (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .key_by("sensor")
        .watermark("ts", delay=f"{arguments.delay_ms}ms", per=arguments.per)
        .window(f"{arguments.window_ms}ms", late="update", lateness=f"{arguments.lateness_ms}ms")
        .agg(readings=ab.count(), total=ab.sum("value"))
        .write(ab.parquet(arguments.output))
    )
    spark = ab.local_session(master=f"local[{arguments.slots}]", memory=arguments.memory)
    clock = CommitClock()
    progress = flow.run(
        arguments.checkpoint,
        spark=spark,
        on_progress=clock.note,
        trigger="available-now",
        drain=True,
        slots=arguments.slots,
    )
    spark.stop()

    outcome = {
        "samples": clock.samples,
        "batches": [
            {
                "rows": batch.rows_in,
                "seconds": batch.batch_seconds,
                "late_rows": batch.late_rows,
                "slot_late_rows": batch.slot_late_rows,
                "state_bytes": batch.state_bytes,
                "exchanged_bytes": batch.exchanged_bytes,
                "phase_seconds": batch.phase_seconds,
            }
            for batch in progress
        ],
        "settings": {"slots": arguments.slots, "max_files": arguments.files_per_batch, "memory": arguments.memory},
        "versions": {name: version(name) for name in ("anabranch", "pyspark", "polars", "pyarrow")},
    }
    Path(arguments.result).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
