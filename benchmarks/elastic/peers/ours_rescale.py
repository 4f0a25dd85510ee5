"""Change the slots of a flow while it runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.engine.settings import make_settings
from anabranch.spark.driver import Driver
from benchmarks.elastic.peers.rescaling import (
    PATIENCE_SECONDS,
    make_feeder,
    read_rescaling_options,
    rescale,
    watched_folder,
)
from benchmarks.elastic.stream import SCHEMA


def main() -> None:
    """Run the flow, and tell it to have other slots."""
    given = read_rescaling_options()
    spark = ab.local_session("local[2]", "2g")
    feeder = make_feeder(given)
    flow = ab.Flow("rescale")
    (
        flow.read(ab.files(str(watched_folder(given)), format="csv", schema=SCHEMA, max_files=None))
        .with_columns(ts=pl.from_epoch("ts", "ms"))
        .key_by("sensor", balance=None)
        .watermark("ts", delay=f"{given.delay_ms}ms")
        .window(f"{given.window_ms}ms")
        .agg(readings=ab.count(), total=ab.sum("value"))
        .write(ab.parquet(given.output))
    )
    settings = make_settings(checkpoint=given.checkpoint, trigger="1s", slots=given.slots)
    driver = Driver(flow, settings, lambda: spark)
    driver.start()

    def change() -> None:
        reply = driver.run.submit(Command("1", "slots", None, {"count": given.slots_after}))
        if not reply.ok:
            raise RuntimeError(reply.text)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (manifest := driver.run.checkpoint.latest()) is None or len(manifest.levels[0].runs) != given.slots_after:
            if time.monotonic() > deadline:
                msg = "slots did not change"
                raise RuntimeError(msg)
            time.sleep(0.05)

    def read() -> pl.DataFrame:
        found = [*Path(given.output).rglob("part-*.parquet")]
        frame = (
            pl.read_parquet(found)
            if found
            else pl.DataFrame({"window_start": []}, schema={"window_start": pl.Datetime("ms")})
        )
        return frame.select(pl.col("window_start").dt.epoch("ms"))

    rescale(given, feeder, "part-*.parquet", change, read)
    driver.stop()
    # Spark takes seconds to end, and nobody waits for it.
    os._exit(0)


if __name__ == "__main__":
    main()
