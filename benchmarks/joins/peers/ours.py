"""Run one join on Anabranch itself, in a process of its own."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import polars as pl

import anabranch as ab
from benchmarks.joins.inputs import find_schema
from benchmarks.joins.streams import (
    AFTER_MS,
    BEFORE_MS,
    BNCI,
    BNCI_WINDOWS,
    BY_TRUCK,
    CLOSE_MS,
    DELAY_MS,
    EQ5,
    EQ5_WINDOWS,
    INTERVAL,
    MUCH,
    NEAREST_MS,
    NEWEST_MS,
    find_time,
    list_results,
)
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import run_over_files


def _join_interval(streams: Streams) -> ab.Stream:
    ads, clicks = streams.read("ads"), streams.read("clicks")
    return ads.join(clicks, on="ad", within=_lengths(BEFORE_MS, AFTER_MS), **streams.placing)


def _join_tables(streams: Streams) -> ab.Stream:
    nations = streams.read("nation").join(
        streams.read("region"), left_on="n_regionkey", right_on="r_regionkey", **streams.placing
    )
    suppliers = streams.read("supplier").join(nations, left_on="s_nationkey", right_on="n_nationkey", **streams.placing)
    return streams.read("lineitem").join(suppliers, left_on="l_suppkey", right_on="s_suppkey", **streams.placing)


def _join_versions(streams: Streams) -> ab.Stream:
    placing = streams.placing
    newest, nearest = _lengths(*NEWEST_MS), _lengths(*NEAREST_MS)
    nations = streams.read("nation").join(
        streams.read("region"), left_on="n_regionkey", right_on="r_regionkey", within=newest, **placing
    )
    suppliers = streams.read("supplier").join(
        nations, left_on="s_nationkey", right_on="n_nationkey", within=newest, **placing
    )
    return streams.read("lineitem").join(
        suppliers, left_on="l_suppkey", right_on="s_suppkey", within=nearest, **placing
    )


def _join_near_orders(streams: Streams) -> ab.Stream:
    lines = streams.read("lineitem")
    return lines.filter(BY_TRUCK).join_where(
        lines.filter(MUCH), "abs(l_orderkey - l_orderkey_right) <= 1", **streams.placing
    )


def _join_near_orders_in_time(streams: Streams) -> ab.Stream:
    lines = streams.read("lineitem")
    return lines.filter(BY_TRUCK).join_where(
        lines.filter(MUCH), "abs(l_orderkey - l_orderkey_right) <= 1", within=_lengths(*CLOSE_MS), **streams.placing
    )


def _lengths(before_ms: int, after_ms: int) -> tuple[str, str]:
    return f"{before_ms}ms", f"{after_ms}ms"


_JOINS = {
    INTERVAL: _join_interval,
    EQ5: _join_tables,
    EQ5_WINDOWS: _join_versions,
    BNCI: _join_near_orders,
    BNCI_WINDOWS: _join_near_orders_in_time,
}


class Streams:
    """The streams of a query as files, and how their keys are placed."""

    def __init__(self, flow: ab.Flow, given: Namespace, placing: Mapping[str, Any]) -> None:
        self._flow = flow
        self._given = given
        self.placing = placing

    def read(self, stream: str) -> ab.Stream:
        """Return the rows of a stream."""
        given = self._given
        files = ab.files(
            f"{given.input}/{stream}",
            format=given.format,
            schema=find_schema(given.query, stream),
            max_files=given.files_per_batch,
            max_bytes=None,
        )
        rows, at = self._flow.read(files, name=stream), find_time(given.query, stream)
        if at is None:
            return rows
        return rows.with_columns(**{at: pl.from_epoch(at, "ms")}).watermark(at, delay=f"{DELAY_MS}ms")


def build(flow: ab.Flow, given: Namespace, placing: Mapping[str, Any]) -> ab.Stream:
    """Add a query's join to a flow; ``placing`` is what every join is told of where rows go."""
    return _JOINS[given.query](Streams(flow, given, placing)).select(*list_results(given.query))


def main() -> None:
    """Run the flow over all files and write samples and batches as JSON."""
    given = read_options(
        query=str, input=str, format=str, files_per_batch=int, slots=int, cores=int, memory=str, balance=str
    )
    flow = ab.Flow("joins")
    placing: dict[str, Any] = {} if given.balance == "auto" else {"balance": None}
    build(flow, given, placing).write(ab.parquet(given.output))
    run_over_files(
        flow,
        given,
        "state_bytes",
        "exchanged_bytes",
        "rows_out",
        "slot_rows",
        "changes",
        "strategies",
        cores=given.cores,
    )


if __name__ == "__main__":
    main()
