"""Run the Yahoo Streaming Benchmark on Anabranch itself: to the end of the topic, or for some seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

import anabranch as ab
from benchmarks.shared.peers.options import read_options
from benchmarks.shared.peers.our_outcome import CommitClock, describe_batch, write_outcome
from benchmarks.ysb.redis import CampaignWindows


def build_flow(
    servers: str,
    topic: str,
    redis_url: str,
    max_rows: int,
    delay_ms: int,
    window_ms: int,
    login: Mapping[str, str] | None = None,
) -> ab.Flow:
    """Return the flow: views of each campaign in each window."""
    # The other four of an event's seven fields are not declared, and so not read.
    schema = {"ad_id": pl.String, "event_type": pl.String, "event_time": pl.Datetime("ms")}
    events = ab.kafka(servers, topic, schema=schema, start="earliest", max_rows=max_rows, max_bytes=None, options=login)
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
    given = read_options(
        {"login": "{}"},
        servers=str,
        topic=str,
        redis=str,
        max_rows=int,
        slots=int,
        memory=str,
        delay_ms=int,
        window_ms=int,
        seconds=float,
    )

    login = json.loads(given.login)
    flow = build_flow(given.servers, given.topic, given.redis, given.max_rows, given.delay_ms, given.window_ms, login)
    spark = ab.local_session(master=f"local[{given.slots}]", memory=given.memory)
    clock = CommitClock()
    if given.seconds > 0:
        handle = flow.start(given.checkpoint, spark=spark, on_progress=clock.note, slots=given.slots)
        handle.wait(given.seconds)
        handle.stop()
        progress = handle.read_progress()
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

    batches = [describe_batch(batch, "dead_rows", "late_rows", "exchanged_bytes") for batch in progress]
    settings = {"slots": given.slots, "max_rows": given.max_rows, "memory": given.memory}
    write_outcome(given.result, clock, batches, settings, "confluent-kafka")


if __name__ == "__main__":
    main()
