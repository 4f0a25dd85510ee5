"""Run one join as Flink SQL.

This script runs in Flink's own environment, without this library: it imports nothing but PyFlink and its neighbours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from benchmarks.joins.streams import (
    AFTER_MS,
    BEFORE_MS,
    DELAY_MS,
    EQ5,
    EQ5_WINDOWS,
    INTERVAL,
    MOMENT,
    NEAREST_MS,
    NEWEST_MS,
    STREAMS,
    TIMED,
    find_time,
    list_results,
)
from benchmarks.keyed_window.peers.flink_job import configure, open_tables, run_measured

TYPES = {MOMENT: "BIGINT"}
EVENTS = f"""
CREATE TABLE events (
  {{columns}},
  event_time AS TO_TIMESTAMP_LTZ(COALESCE({{times}}), 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '{DELAY_MS // 1000}' SECOND
) WITH ({{place}})
"""
TABLE = "CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({place})"
RESULTS = "CREATE TABLE results ({columns}) WITH ({place})"
KEYS = {
    "lineitem": "l_orderkey, l_linenumber",
    "supplier": "s_suppkey",
    "nation": "n_nationkey",
    "region": "r_regionkey",
}


def select_stream(query: str, stream: str) -> str:
    """Return the rows of one of the streams that lie in one folder."""
    at = find_time(query, stream)
    columns = ", ".join("event_time AS " + name if name == at else f"`{name}`" for name in STREAMS[query][stream])
    return f"(SELECT {columns} FROM events WHERE {at} IS NOT NULL)"


def is_close(time: str, other: str, before_ms: int, after_ms: int) -> str:
    """Return the condition on event times."""
    before, after = (f"INTERVAL '{ms // 1_000}.{ms % 1_000:03d}' SECOND" for ms in (before_ms, after_ms))
    return f"{time} BETWEEN {other} - {before} AND {other} + {after}"


JOINS = {
    INTERVAL: f"""
        {select_stream(INTERVAL, "ads")} a JOIN {select_stream(INTERVAL, "clicks")} c
        ON a.ad = c.ad AND {is_close("clicked", "shown", BEFORE_MS, AFTER_MS)}""",
    EQ5_WINDOWS: f"""
        {select_stream(EQ5_WINDOWS, "lineitem")} JOIN (
          {select_stream(EQ5_WINDOWS, "supplier")} JOIN (
            {select_stream(EQ5_WINDOWS, "nation")} JOIN {select_stream(EQ5_WINDOWS, "region")}
            ON n_regionkey = r_regionkey AND {is_close("r_at", "n_at", *NEWEST_MS)}
          ) ON s_nationkey = n_nationkey AND {is_close("n_at", "s_at", *NEWEST_MS)}
        ) ON l_suppkey = s_suppkey AND {is_close("s_at", "l_at", *NEAREST_MS)}""",
    EQ5: """
        lineitem JOIN (
          supplier JOIN (nation JOIN region ON n_regionkey = r_regionkey) ON s_nationkey = n_nationkey
        ) ON l_suppkey = s_suppkey""",
}


def create_tables(tables: Any, arguments: argparse.Namespace) -> None:
    """Declare what is read and what is written."""
    streams = STREAMS[arguments.query]
    if arguments.query in TIMED:
        # All streams lie in one folder, so that none of them runs ahead of the others.
        every = {name: kind for some in streams.values() for name, kind in some.items()}
        times = ", ".join(name for name, kind in every.items() if kind == MOMENT)
        place = place_files(arguments.input, arguments.format)
        tables.execute_sql(EVENTS.format(columns=list_columns(every), times=times, place=place))
    else:
        for name, columns in streams.items():
            place = place_files(f"{arguments.input}/{name}", arguments.format)
            tables.execute_sql(TABLE.format(name=name, columns=list_columns(columns), key=KEYS[name], place=place))
    results = {name: "TIMESTAMP(3)" if kind == MOMENT else kind for name, kind in list_results(arguments.query).items()}
    place = place_files(arguments.output, "parquet")
    tables.execute_sql(RESULTS.format(columns=list_columns(results), place=place))


def list_columns(columns: Mapping[str, str]) -> str:
    """Return columns as they are declared."""
    return ", ".join(f"`{name}` {TYPES.get(kind, kind)}" for name, kind in columns.items())


def place_files(path: str, file_format: str) -> str:
    """Return where files lie, and their format."""
    return f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = '{file_format}'"


def write_query(query: str) -> str:
    """Return the statement that joins the streams."""
    selected = ", ".join(
        f"CAST({name} AS TIMESTAMP(3))" if kind == MOMENT else "a.ad" if name == "ad" else f"`{name}`"
        for name, kind in list_results(query).items()
    )
    return f"INSERT INTO results SELECT {selected} FROM {JOINS[query]}"


def main() -> None:
    """Run the query over all files."""
    parser = argparse.ArgumentParser()
    for name in ("query", "input", "format", "output", "checkpoint", "result", "jars"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rest-port", type=int, required=True)
    parser.add_argument("--state", choices=("heap", "rocksdb"), required=True)
    parser.add_argument("--mini-batch", choices=("on", "off"), required=True)
    parser.add_argument("--managed-memory", default="1g")
    arguments = parser.parse_args()

    settings = configure(arguments) | {
        "state.backend.type": "hashmap" if arguments.state == "heap" else "rocksdb",
        "execution.checkpointing.incremental": "true",
        "table.exec.mini-batch.enabled": "true" if arguments.mini_batch == "on" else "false",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in arguments.jars.split(",")),
    }
    tables = open_tables(settings)
    create_tables(tables, arguments)
    run_measured(tables, write_query(arguments.query), arguments, settings)


if __name__ == "__main__":
    main()
