"""How the Yahoo Streaming Benchmark lies in Redis: its ads, and the windows that a sink writes there."""

from __future__ import annotations

import polars as pl
import pytest

from anabranch.errors import SinkError
from benchmarks.ysb.events import Ads
from benchmarks.ysb.redis import CampaignWindows, fill_redis, open_redis, read_windows, write_windows
from servers.redis import RedisServer


@pytest.fixture
def url(own_redis: RedisServer) -> str:
    fill_redis(own_redis.url, Ads(7))
    return own_redis.url


def windows_of(*counts: int) -> pl.DataFrame:
    campaigns = Ads(7).campaigns
    return pl.DataFrame(
        {"campaign_id": [campaigns[0]] * len(counts), "window_start": range(0, 10_000 * len(counts), 10_000)}
    ).with_columns(seen_count=pl.Series(counts))


def test_results_lie_as_the_original_has_them(url: str) -> None:
    with open_redis(url) as client:
        write_windows(client, windows_of(3, 4), 12_345)
        campaign = Ads(7).campaigns[0]
        assert client.get(Ads(7).ads[11]) == Ads(7).campaigns[1]
        assert sorted(client.lrange(client.hget(campaign, "windows"), 0, -1)) == ["0", "10000"]
        assert client.hgetall(client.hget(campaign, "10000")) == {"seen_count": "4", "time_updated": "12345"}
    assert read_windows(url).select("window_start", "seen_count", "time_updated").rows() == [
        (0, 3, 12_345),
        (10_000, 4, 12_345),
    ]


def test_a_batch_that_is_published_again_changes_nothing(url: str) -> None:
    with open_redis(url) as client:
        write_windows(client, windows_of(3), 1, ("batch", 5))
        write_windows(client, windows_of(9), 2, ("batch", 5))
        write_windows(client, windows_of(4), 3, ("batch", 6))
    assert read_windows(url).select("seen_count", "time_updated").rows() == [(4, 3)]


def test_the_sink_refuses_what_it_cannot_write(url: str) -> None:
    with pytest.raises(SinkError, match="no column seen_count"):
        CampaignWindows(url).check({"campaign_id": pl.String(), "window_start": pl.Int64()})
    with pytest.raises(SinkError, match="cannot be written"):
        CampaignWindows("redis://127.0.0.1:1/0").check(pl.Schema(windows_of(1).schema))
