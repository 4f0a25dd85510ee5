"""The Yahoo Streaming Benchmark's input: advertising events as JSON text, campaigns and ads, and the right answers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from benchmarks.shared.workload import WorkloadError

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
USERS = PAGES = 100
"""As many as the original draws from."""
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
WINDOW_MS = 10_000
DELAY_MS = 1_000
"""Of the watermarks of all systems: more than two partitions are apart when they are read side by side."""
PARTITIONS = 2
"""One a core: no system can read fewer at a time, and none gains by more."""
# Raise it when the events change, or a topic that was kept would hold old ones.
GENERATOR_VERSION = 1
ANSWER_SCHEMA = {"campaign_id": pl.String(), "window_start": pl.Int64(), "seen_count": pl.Int64()}

_ORIGIN_MS = 1_700_000_003_700
_ROWS_PER_EVENT_SECOND = 100_000
CHUNK_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Ads:
    """Campaigns and their ads, by names that depend on the seed alone."""

    seed: int

    @property
    def campaigns(self) -> list[str]:
        """The campaigns' ids."""
        return [_name(self.seed, "campaign", number) for number in range(CAMPAIGNS)]

    @property
    def ads(self) -> list[str]:
        """The ads' ids; those of a campaign lie side by side."""
        return [_name(self.seed, "ad", number) for number in range(CAMPAIGNS * ADS_PER_CAMPAIGN)]

    def to_frame(self) -> pl.DataFrame:
        """Return ad and campaign, a row an ad."""
        owners = [campaign for campaign in self.campaigns for _ in range(ADS_PER_CAMPAIGN)]
        return pl.DataFrame({"ad_id": self.ads, "campaign_id": owners})


@dataclass(frozen=True)
class EventMaker:
    """Makes events; they depend on the seed and their number, and on the times that are given, alone."""

    seed: int

    @cached_property
    def _pools(self) -> dict[str, pl.Series]:
        return {
            "user_id": pl.Series([_name(self.seed, "user", number) for number in range(USERS)]),
            "page_id": pl.Series([_name(self.seed, "page", number) for number in range(PAGES)]),
            "ad_id": pl.Series(Ads(self.seed).ads),
            "ad_type": pl.Series(AD_TYPES),
            "event_type": pl.Series(EVENT_TYPES),
        }

    def make(self, number: int, times_ms: np.ndarray) -> pl.DataFrame:
        """Return the events of one chunk, in the order of their times, in the original's columns."""
        rng = np.random.default_rng([self.seed, number])
        drawn = {
            name: pool.gather(rng.integers(0, len(pool), len(times_ms), dtype=np.uint32))
            for name, pool in self._pools.items()
        }
        return pl.DataFrame(drawn | {"event_time": times_ms}).with_columns(ip_address=pl.lit("1.2.3.4"))

    def count_views(self, events: pl.DataFrame) -> pl.DataFrame:
        """Return the right answer for some events: views of each campaign in each window, by DuckDB."""
        try:
            import duckdb
        except ImportError as error:
            msg = "the answers are checked with DuckDB, which is not installed: pip install 'duckdb>=1,<3'"
            raise WorkloadError(msg) from error
        query = (
            f"SELECT campaign_id, event_time - event_time % {WINDOW_MS} AS window_start, count(*) AS seen_count "
            "FROM events JOIN ads USING (ad_id) WHERE event_type = 'view' GROUP BY ALL"
        )
        with duckdb.connect() as connection:
            connection.register("events", events.select("ad_id", "event_type", "event_time").to_arrow())
            connection.register("ads", Ads(self.seed).to_frame().to_arrow())
            return pl.DataFrame(connection.sql(query).to_arrow_table()).cast(pl.Schema(ANSWER_SCHEMA))


def to_messages(events: pl.DataFrame) -> pl.Series:
    """Return the events as JSON text, written as the original's generator writes it; all values are strings."""
    parts: list[pl.Expr] = []
    for place, name in enumerate(events.columns):
        opening = '{"' if place == 0 else '", "'
        parts += [pl.lit(f'{opening}{name}": "'), pl.col(name).cast(pl.String)]
    return events.select(pl.concat_str(*parts, pl.lit('"}'))).to_series().alias("message")


def chunk_times_ms(chunk: int) -> np.ndarray:
    """Return the event times of a chunk of a topic that is filled in advance."""
    first = chunk * CHUNK_ROWS
    return _ORIGIN_MS + np.arange(first, first + CHUNK_ROWS, dtype=np.int64) * 1_000 // _ROWS_PER_EVENT_SECOND


def plan_rows(rows: int) -> int:
    """Return so many rows, rounded up to whole chunks."""
    return -(-rows // CHUNK_ROWS) * CHUNK_ROWS


def merge_answers(answers: list[pl.DataFrame]) -> pl.DataFrame:
    """Return the answer of all chunks together."""
    return (
        pl.concat([pl.DataFrame(schema=ANSWER_SCHEMA), *answers])
        .group_by("campaign_id", "window_start")
        .agg(pl.col("seen_count").sum())
        .sort("campaign_id", "window_start")
    )


def _name(seed: int, kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"ysb {seed} {kind} {number}"))
