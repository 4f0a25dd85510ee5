"""The elastic paper's query: a map and a filter, a join, a map, an aggregate and a filter."""

from __future__ import annotations

import polars as pl

import anabranch as ab
from anabranch.model import Source
from benchmarks.elastic.phone_calls import DELAY_MS, DISTRICTS, FILE_FORMAT, LEAST_MEAN_COST, SHORTEST_CALL
from benchmarks.shared.workload import WINDOW_MS

SCHEMA = {"sensor": pl.Int64(), "ts": pl.Datetime("ms"), "value": pl.Float64()}


def build_flow(calls: str, tariffs: str, output: str, files_per_batch: int) -> ab.Flow:
    """Return the flow: calls get the tariff of their phone and moment, and districts the sum of what they cost.

    It has the six operators of the paper's figure 1, two of them stateful: with one operator a level, there are five
    exchanges, and with one for each stateful operator there are two.
    """
    flow = ab.Flow("phones")
    made = flow.read(_files(calls, files_per_batch)).watermark("ts", delay=f"{DELAY_MS}ms")
    known = flow.read(_files(tariffs, 1)).watermark("ts", delay=f"{DELAY_MS}ms")
    costs = (
        made.with_columns(district=pl.col("sensor") % DISTRICTS)
        .filter(pl.col("value") >= SHORTEST_CALL)
        .join_asof(known, by="sensor", how="inner", balance=None, name="tariff")
        .select("ts", sensor="district", cost=pl.col("value") * pl.col("value_right"))
        .key_by("sensor", balance=None)
        .window(f"{WINDOW_MS}ms")
        .agg(readings=ab.count(), total=ab.sum("cost"), name="districts")
    )
    dear = pl.col("total") / pl.col("readings") >= LEAST_MEAN_COST
    costs.filter(dear).write(ab.parquet(output))
    return flow


def _files(folder: str, files_per_batch: int) -> Source:
    return ab.files(folder, format=FILE_FORMAT, schema=SCHEMA, max_files=files_per_batch, max_bytes=None)
