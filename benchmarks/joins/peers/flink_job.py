"""Run one join as Flink SQL.

This script runs in Flink's own environment, without this library: it imports nothing but PyFlink and its neighbours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from benchmarks.joins.streams import AFTER_MS, BEFORE_MS, DELAY_MS, EQ5, INTERVAL, MOMENT, STREAMS, list_results
from benchmarks.keyed_window.peers.flink_job import configure, open_tables, run_measured

TYPES = {MOMENT: "BIGINT"}
EVENTS = f"""
CREATE TABLE events (
  {{columns}},
  event_time AS TO_TIMESTAMP_LTZ(COALESCE(shown, clicked), 3),
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
JOINS = {
    INTERVAL: f"""
        (SELECT *, event_time AS shown_time FROM events WHERE shown IS NOT NULL) a,
        (SELECT *, event_time AS clicked_time FROM events WHERE clicked IS NOT NULL) c
        WHERE a.ad = c.ad
          AND c.clicked_time BETWEEN a.shown_time - INTERVAL '{BEFORE_MS // 1000}' SECOND
                                 AND a.shown_time + INTERVAL '{AFTER_MS // 1000}' SECOND""",
    EQ5: """
        lineitem JOIN (
          supplier JOIN (nation JOIN region ON n_regionkey = r_regionkey) ON s_nationkey = n_nationkey
        ) ON l_suppkey = s_suppkey""",
}


def create_tables(tables: Any, arguments: argparse.Namespace) -> None:
    """Declare what is read and what is written."""
    streams = STREAMS[arguments.query]
    if arguments.query == INTERVAL:
        # Both streams lie in one folder, so that none of them runs ahead of the other.
        both = {**streams["ads"], **streams["clicks"]}
        place = place_files(arguments.input, arguments.format)
        tables.execute_sql(EVENTS.format(columns=list_columns(both), place=place))
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
    if query != INTERVAL:
        return f"INSERT INTO results SELECT {', '.join(list_results(query))} FROM {JOINS[query]}"
    sides = {name: "a" if name in STREAMS[query]["ads"] else "c" for name in list_results(query)}
    selected = ", ".join(
        f"CAST({side}.{name}_time AS TIMESTAMP(3))" if list_results(query)[name] == MOMENT else f"{side}.`{name}`"
        for name, side in sides.items()
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
