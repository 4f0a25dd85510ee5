"""Run the keyed window on Anabranch itself, in a process of its own."""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch.model import BatchProgress


class CommitClock:
    """Note by the wall clock when each batch with rows was committed."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, int]] = []
        self._started = time.monotonic()

    def note(self, batch: BatchProgress) -> None:
        """Take one committed batch."""
        if batch.rows_in:
            done = self.samples[-1][1] if self.samples else 0
            self.samples.append((time.monotonic() - self._started, done + batch.rows_in))


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--format", choices=("json", "csv", "parquet"), required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--files-per-batch", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--memory", required=True)
    arguments = parser.parse_args()

    source = ab.files(
        arguments.input,
        format=arguments.format,
        schema={"sensor": pl.Int64, "ts": pl.Int64, "value": pl.Float64},
        max_files=arguments.files_per_batch,
        max_bytes=None,
    )
    flow = ab.Flow("keyed-window")
    (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .key_by("sensor")
        .watermark("ts", delay="2s")
        .window("10s")
        .agg(readings=ab.count(), total=ab.sum("value"))
        .write(ab.parquet(arguments.output))
    )
    spark = ab.local_session(master=f"local[{arguments.slots}]", memory=arguments.memory)
    clock = CommitClock()
    progress = flow.run(
        arguments.checkpoint, spark=spark, on_progress=clock.note, trigger="available-now", slots=arguments.slots
    )
    spark.stop()

    outcome = {
        "samples": clock.samples,
        "batches": [
            {
                "rows": batch.rows_in,
                "seconds": batch.batch_seconds,
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
