"""Campaigns, ads and results in Redis, laid out as the Yahoo Streaming Benchmark lays them out.

``campaigns`` is the set of campaigns; each ad is a key that holds its campaign. A campaign is a hash: ``windows`` names
a list of window times, and each window time names a hash with ``seen_count`` and ``time_updated``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from anabranch.connectors.addresses import show_address
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.errors import SinkError
from anabranch.model import StagedFile
from benchmarks.ysb.events import Ads

_COLUMNS = ("campaign_id", "window_start", "seen_count")
RESULT_SCHEMA = {
    "campaign_id": pl.String(),
    "window_start": pl.Int64(),
    "seen_count": pl.Int64(),
    "time_updated": pl.Int64(),
}


def open_redis(url: str) -> Any:
    """Return a client that answers in text."""
    import redis

    return redis.Redis.from_url(url, decode_responses=True)


def fill_redis(url: str, ads: Ads) -> None:
    """Leave campaigns and ads there, and nothing else."""
    with open_redis(url) as client, client.pipeline(transaction=False) as pipeline:
        pipeline.flushdb()
        pipeline.sadd("campaigns", *ads.campaigns)
        pipeline.mset(dict(ads.to_frame().iter_rows()))
        pipeline.execute()


def write_windows(client: Any, rows: pl.DataFrame, now_ms: int, marker: tuple[str, int] | None = None) -> None:
    """Write each window's count, in one transaction; a window that is there already is overwritten.

    ``marker``, a key and a batch, is written in the same transaction; what is at or behind it is not written again.
    """
    if marker is not None and int(client.get(marker[0]) or -1) >= marker[1]:
        return
    seen = set()
    with client.pipeline(transaction=True) as pipeline:
        known = client.pipeline(transaction=False)
        starts = [(row[0], str(row[1]), row[2]) for row in rows.select(_COLUMNS).iter_rows()]
        for campaign, start, _ in starts:
            known.hexists(campaign, start)
        present = known.execute()
        for (campaign, start, count), is_there in zip(starts, present, strict=True):
            window, windows = _window_key(campaign, start), _window_key(campaign, "windows")
            if not is_there and (campaign, start) not in seen:
                seen.add((campaign, start))
                pipeline.hset(campaign, mapping={start: window, "windows": windows})
                pipeline.lpush(windows, start)
            pipeline.hset(window, mapping={"seen_count": count, "time_updated": now_ms})
        if marker is not None:
            pipeline.set(*marker)
        pipeline.execute()


def read_windows(url: str) -> pl.DataFrame:
    """Return what the original's check reads: every window in every campaign's list, and when it was updated."""
    found: list[tuple[str, int, int, int]] = []
    with open_redis(url) as client:
        for campaign in sorted(client.smembers("campaigns")):
            windows = client.hget(campaign, "windows")
            starts = client.lrange(windows, 0, -1) if windows else []
            keys = client.hmget(campaign, starts) if starts else []
            with client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.hmget(key, "seen_count", "time_updated")
                answers = pipeline.execute()
            found += [
                (campaign, int(start), int(count), int(updated))
                for start, (count, updated) in zip(starts, answers, strict=True)
            ]
    return pl.DataFrame(found, schema=RESULT_SCHEMA, orient="row").sort("campaign_id", "window_start")


def _window_key(campaign: str, window: str) -> str:
    # The original draws these at random; a name that follows from the window is the same on a replay.
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{campaign} {window}"))


@dataclass(frozen=True, slots=True)
class CampaignWindows:
    """A sink for campaign_id, window_start and seen_count; the batch is noted with the rows, in one transaction."""

    url: str = field(repr=False)
    suffix: str = ".arrow"

    @property
    def label(self) -> str:
        return f"campaign windows in {show_address(self.url)}"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` unless the columns are there and the server answers."""
        missing = [name for name in _COLUMNS if name not in schema]
        if missing:
            msg = f"{self.label}: no column {', '.join(missing)}; there are {', '.join(schema)}"
            raise SinkError(msg)
        try:
            with open_redis(self.url) as client:
                client.ping()
        except Exception as error:
            msg = f"{self.label} cannot be written: {error}; see that the server runs"
            raise SinkError(msg) from error

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return the windows with their beginnings in milliseconds."""
        start = pl.col("window_start")
        if frame.schema["window_start"].is_temporal():
            start = start.dt.epoch("ms")
        return encode_arrow(frame.select("campaign_id", start, "seen_count"))

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Write the batch's windows, unless that was done before."""
        rows = read_staged(staged)
        if rows is not None:
            with open_redis(self.url) as client:
                write_windows(client, rows, int(time.time() * 1_000), (f"anabranch:{context['flow']}:batch", batch))

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: windows do not say which batch wrote them."""
        msg = f"{self.label} cannot take back what batches after {after_batch} wrote; empty it and begin anew"
        raise SinkError(msg)
