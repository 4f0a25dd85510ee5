"""Run the keyed window on Anabranch itself, in a process of its own."""

from __future__ import annotations

import polars as pl

import anabranch as ab
from anabranch.bench import mixed_json
from anabranch.bench.mixed_json import MIXED_JSON
from anabranch.bench.peers.options import read_options
from anabranch.bench.peers.our_outcome import CommitClock, describe_batch, write_outcome
from anabranch.bench.workload import SCHEMA


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    arguments = read_options(input=str, format=str, files_per_batch=int, slots=int, memory=str)

    is_mixed = arguments.format == MIXED_JSON
    source = ab.files(
        arguments.input,
        format="json" if is_mixed else arguments.format,
        schema=mixed_json.SCHEMA if is_mixed else SCHEMA,
        max_files=arguments.files_per_batch,
        max_bytes=None,
    )
    flow = ab.Flow("keyed-window")
    value = pl.col("reading").struct.field("value") if is_mixed else pl.col("value")
    (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"), value=value)
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

    batches = [describe_batch(batch, "state_bytes", "exchanged_bytes") for batch in progress]
    settings = {"slots": arguments.slots, "max_files": arguments.files_per_batch, "memory": arguments.memory}
    write_outcome(arguments.result, clock, batches, settings)


if __name__ == "__main__":
    main()
