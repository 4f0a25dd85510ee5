"""Run the disordered windows on Anabranch itself, with a watermark a key or a slot."""

from __future__ import annotations

import polars as pl

import anabranch as ab
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import run_over_files
from benchmarks.shared.workload import SCHEMA


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    arguments = read_options(
        input=str,
        format=str,
        files_per_batch=int,
        slots=int,
        memory=str,
        per=str,
        delay_ms=int,
        window_ms=int,
        lateness_ms=int,
        local_merge=str,
    )

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
    figures = ("late_rows", "slot_late_rows", "state_bytes", "exchanged_bytes")
    run_over_files(flow, arguments, *figures, drain=True, local_merge=arguments.local_merge == "on")


if __name__ == "__main__":
    main()
