"""The bound: two plain Polars processes, one thread each, that parse, window and group half of the files each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from benchmarks.keyed_window.peers.two_processes import Part, run_side_by_side
from benchmarks.shared import mixed_json
from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.workload import SCHEMA, WINDOW_MS

_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "json": lambda path: pl.read_ndjson(path, schema=SCHEMA),
    "csv": lambda path: pl.read_csv(path, schema=SCHEMA),
    "parquet": pl.read_parquet,
    MIXED_JSON: lambda path: pl.read_ndjson(path, schema=mixed_json.SCHEMA).unnest("reading"),
}


def _group(part: Part) -> dict[str, str]:
    read = _READERS[part.file_format]
    partials = []
    for path in part.paths:
        rows = read(path)
        window_start = pl.col("ts") - pl.col("ts") % WINDOW_MS
        partials.append(
            rows.group_by(window_start.alias("window_start"), "sensor").agg(
                pl.len().alias("readings"), pl.col("value").sum().alias("total")
            )
        )
        part.note(rows.height)
    pl.concat(partials).write_parquet(part.output)
    return {"polars": pl.__version__}


if __name__ == "__main__":
    # Only where it is a program: two more are started from it.
    run_side_by_side("benchmarks.keyed_window.peers.two_polars", _group, {"POLARS_MAX_THREADS": "1"})
