"""The Yahoo Streaming Benchmark: views of each campaign's ads in windows of ten seconds, from Kafka, to Redis.

anabranch run examples/ysb/flow.py --checkpoint examples/ysb/output/state
"""

from __future__ import annotations

import os

import polars as pl

import anabranch as ab
from benchmarks.ysb.redis import CampaignWindows

SERVERS = os.environ.get("YSB_KAFKA", "localhost:9092")
TOPIC = os.environ.get("YSB_TOPIC", "ad-events")
REDIS = os.environ.get("YSB_REDIS", "redis://localhost:6379/0")

flow = ab.Flow("ysb")
(
    # Events have seven fields; those that are not declared are not read.
    flow.read(
        ab.kafka(
            SERVERS,
            TOPIC,
            schema={"ad_id": pl.String, "event_type": pl.String, "event_time": pl.Datetime("ms")},
        )
    )
    .filter(pl.col("event_type") == "view")
    .select("ad_id", "event_time")
    # Each worker asks once for an ad, and again after ten minutes.
    .lookup(ab.redis_table(REDIS, "{ad_id}"), on="ad_id", columns={"campaign_id": pl.String}, missing="drop")
    .select("campaign_id", "event_time")
    .key_by("campaign_id")
    .watermark("event_time", delay="1s", per="partition")
    .window("10s")
    .agg(seen_count=ab.count())
    .write(CampaignWindows(REDIS))
)

if __name__ == "__main__":
    flow.run(checkpoint="examples/ysb/output/state")
