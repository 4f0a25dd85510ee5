"""A window count whose every row costs processor time in its slot, so that a slot's share of rows is its load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

import anabranch as ab
from benchmarks.shared.workload import SCHEMA, WATERMARK_DELAY_MS, WINDOW_MS
from benchmarks.skew.competitors import Competitor
from benchmarks.skew.peers.lehmer import LehmerSum


def build_flow(folder: str, output: str, files_per_batch: int, competitor: Mapping[str, Any], steps: int) -> ab.Flow:
    """Return the flow: keys are spread as the competitor says; without steps, a row costs next to nothing."""
    spread = Competitor(**competitor)
    source = ab.files(folder, format="parquet", schema=SCHEMA, max_files=files_per_batch, max_bytes=None)
    flow = ab.Flow("busy")
    totals = (
        flow.read(source)
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .watermark("ts", delay=f"{WATERMARK_DELAY_MS}ms")
        .key_by("sensor", routing=spread.routing, balance=spread.balance)
        .window(f"{WINDOW_MS}ms")
        .agg(readings=ab.count(), total=LehmerSum("value", steps) if steps else ab.sum("value"))
    )
    totals.write(ab.parquet(output))
    return flow
