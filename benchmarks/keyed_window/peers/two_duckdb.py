"""The bound for reading: two DuckDB processes, one thread each, that read half of the files each, and nothing else.

They add up what they read: otherwise DuckDB would not read it.
"""

from __future__ import annotations

import polars as pl

from benchmarks.keyed_window.peers.two_processes import Part, run_side_by_side
from benchmarks.shared.answers import SCAN_BY_FORMAT


def _read(part: Part) -> dict[str, str]:
    import duckdb

    query = (
        "SELECT count(*) AS readings, sum(value) AS total, sum(strlen(sensor)) AS letters, sum(ts) AS ticks"
        f" FROM {SCAN_BY_FORMAT[part.file_format]}"
    )
    totals = []
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for path in part.paths:
            readings, total, *_ = connection.execute(query, {"files": str(path)}).fetchall()[0]
            totals.append({"readings": readings, "total": total})
            part.note(readings)
    pl.DataFrame(totals, schema={"readings": pl.Int64, "total": pl.Float64}).write_parquet(part.output)
    return {"duckdb": duckdb.__version__}


if __name__ == "__main__":
    run_side_by_side("benchmarks.keyed_window.peers.two_duckdb", _read, {})
