"""The flow whose checkpoint is kept in ``offers-0.1.tar.gz``, its input in two parts, and what must come of it.

``python -m kept.offers_flow FOLDER``, with ``tests`` on the path, writes such a sample without Spark. It has joins of
all kinds, with rows of both inputs that wait for partners of the second part.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings

START = datetime(2026, 1, 1)
SCHEMAS = {
    "bids": {"price": pl.Int64(), "ts": pl.Datetime("us"), "bid": pl.Int64()},
    "asks": {"price": pl.Int64(), "ts": pl.Datetime("us"), "ask": pl.Int64()},
}
PARTS = {"first": range(2), "second": range(2, 4)}
"""Part → the numbers of its files, in the order they are read."""
WITHIN = timedelta(seconds=20)
NEAR = "abs(price - price_right) <= 1"
SETTINGS = {"slots": 3, "buckets": 32, "kept_batches": 4}
_ROWS = 24
_PRICES = {"bids": 11, "asks": 7}
"""Stream → of how many prices its rows are; so some are in one of them only."""


def rows_of(stream: str, number: int) -> pl.DataFrame:
    """Return the rows of a file, 12 s of them, each file 12 s after the one before."""
    own = stream.removesuffix("s")
    rows: list[dict[str, Any]] = [
        {
            "price": (place * 5 + number) % _PRICES[stream],
            "ts": START + timedelta(seconds=number * 12, milliseconds=place * 500),
            own: number * 100 + place,
        }
        for place in range(_ROWS)
    ]
    return pl.DataFrame(rows, schema=SCHEMAS[stream])


def write_inputs(folder: Path, part: str) -> None:
    """Write the files of a part."""
    for stream in SCHEMAS:
        (folder / stream).mkdir(parents=True, exist_ok=True)
        for number in PARTS[part]:
            rows_of(stream, number).write_parquet(folder / stream / f"{number:03d}.parquet")


def make_offers(folder: Path) -> ab.Flow:
    """Return the flow, with inputs and results below a folder."""
    flow = ab.Flow("kept-offers")
    bids, asks = (_read(flow, folder, stream) for stream in SCHEMAS)
    results = {
        "near": bids.join_where(asks, NEAR, within=WITHIN, name="near"),
        "equal": bids.join(asks, on="price", within=WITHIN, name="equal"),
        "left": bids.join(asks, on="price", within=(timedelta(0), timedelta(seconds=1)), how="left", name="left"),
        "grid": bids.join(asks, on="price", within=WITHIN, routing="grid", name="grid"),
        "asof": bids.join_asof(asks, on="ts", by="price", name="asof"),
    }
    for name, stream in results.items():
        # A sample is unpacked elsewhere than it was made.
        stream.select("bid", "ask").write(ab.parquet(str(folder / "results" / name)), formerly=name)
    return flow


def answers() -> dict[str, pl.DataFrame]:
    """Return what the results must be after both parts and a drain, computed by Polars alone; sinks by folder."""
    bids, asks = (
        pl.concat([rows_of(stream, number) for numbers in PARTS.values() for number in numbers]) for stream in SCHEMAS
    )
    pairs = bids.join(asks, how="cross", suffix="_right")
    gap = pl.col("ts_right") - pl.col("ts")
    is_close = gap.abs() <= WITHIN
    same = pl.col("price") == pl.col("price_right")
    equal = pairs.filter(is_close & same)
    soon = pairs.filter(same & gap.is_between(timedelta(0), timedelta(seconds=1)))
    found = {
        "near": pairs.filter(is_close & ((pl.col("price") - pl.col("price_right")).abs() <= 1)),
        "equal": equal,
        "left": bids.select("bid").join(soon.select("bid", "ask"), on="bid", how="left"),
        "grid": equal,
        "asof": bids.sort("ts").join_asof(asks.sort("ts"), on="ts", by="price", check_sortedness=False),
    }
    return {name: rows.select("bid", "ask") for name, rows in found.items()}


def run_flow(folder: Path, **settings: Any) -> None:
    """Run the flow in this process."""
    run = LocalRun(make_offers(folder), make_settings(checkpoint=str(folder / "checkpoint"), **SETTINGS, **settings))
    try:
        run.run_to_end()
    finally:
        run.close()


def _read(flow: ab.Flow, folder: Path, stream: str) -> ab.Stream:
    source = ab.files(str(folder / stream), format="parquet", schema=SCHEMAS[stream], max_files=1)
    return flow.read(source, name=stream, formerly=stream).watermark("ts", delay="2s")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_inputs(target, "first")
    for _ in PARTS["first"]:
        run_flow(target, trigger="once")
