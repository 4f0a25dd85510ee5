"""Run the keyed window on Anabranch itself, in a process of its own."""

from __future__ import annotations

import polars as pl

import anabranch as ab
from benchmarks.shared import mixed_json
from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import run_over_files
from benchmarks.shared.workload import SCHEMA


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
    run_over_files(flow, arguments, "state_bytes", "exchanged_bytes")


if __name__ == "__main__":
    main()
