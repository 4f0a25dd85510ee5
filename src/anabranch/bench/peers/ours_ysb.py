"""Run the Yahoo Streaming Benchmark on Anabranch itself: to the end of the topic, or for some seconds."""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch.bench.peers.ours import CommitClock
from anabranch.bench.ysb_redis import CampaignWindows


def build_flow(servers: str, topic: str, redis_url: str, max_rows: int, delay_ms: int, window_ms: int) -> ab.Flow:
    """Return the flow: views of each campaign in each window."""
    # The other four of an event's seven fields are not declared, and so not read.
    schema = {"ad_id": pl.String, "event_type": pl.String, "event_time": pl.Datetime("ms")}
    events = ab.kafka(servers, topic, schema=schema, start="earliest", max_rows=max_rows, max_bytes=None)
    flow = ab.Flow("ysb")
    (
        flow.read(events)
        .filter(pl.col("event_type") == "view")
        .select("ad_id", "event_time")
        .lookup(ab.redis_table(redis_url, "{ad_id}"), "ad_id", columns={"campaign_id": pl.String}, missing="drop")
        .select("campaign_id", "event_time")
        .key_by("campaign_id")
        .watermark("event_time", delay=f"{delay_ms}ms", per="partition")
        .window(f"{window_ms}ms")
        .agg(seen_count=ab.count())
        .write(CampaignWindows(redis_url))
    )
    return flow


def main() -> None:
    """Run the flow and write samples and batches as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--max-rows", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--delay-ms", type=int, required=True)
    parser.add_argument("--window-ms", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()

    flow = build_flow(given.servers, given.topic, given.redis, given.max_rows, given.delay_ms, given.window_ms)
    spark = ab.local_session(master=f"local[{given.slots}]", memory=given.memory)
    clock = CommitClock()
    if given.seconds > 0:
        handle = flow.start(given.checkpoint, spark=spark, on_progress=clock.note, slots=given.slots)
        handle.wait(given.seconds)
        handle.stop()
        progress = handle.progress
    else:
        progress = flow.run(
            given.checkpoint,
            spark=spark,
            on_progress=clock.note,
            trigger="available-now",
            drain=True,
            slots=given.slots,
        )
    spark.stop()

    outcome = {
        "samples": clock.samples,
        "batches": [
            {
                "rows": batch.rows_in,
                "seconds": batch.batch_seconds,
                "dead_rows": batch.dead_rows,
                "late_rows": batch.late_rows,
                "exchanged_bytes": batch.exchanged_bytes,
                "phase_seconds": batch.phase_seconds,
            }
            for batch in progress
        ],
        "settings": {"slots": given.slots, "max_rows": given.max_rows, "memory": given.memory},
        "versions": {name: version(name) for name in ("anabranch", "pyspark", "polars", "confluent-kafka")},
    }
    Path(given.result).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
