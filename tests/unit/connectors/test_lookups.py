"""Lookups without servers: the cache, frames, Parquet files, SQLite, and how a server that is away is waited for."""

from __future__ import annotations

import logging
import pickle
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from anabranch.connectors import frame_table, parquet_table, redis_table, sql_table
from anabranch.connectors.lookups.cache import FOUND, TableCache
from anabranch.connectors.lookups.waiting import Patience
from anabranch.errors import FlowError, SourceError

ADS = pl.DataFrame({"ad": ["a", "b", "c"], "campaign": [1, 2, 1]})
KEYS: dict[str, pl.DataType] = {"ad": pl.String()}
COLUMNS: dict[str, pl.DataType] = {"campaign": pl.Int64()}


class CountingTable:
    """A table that is asked key by key, and notes for which."""

    label = "counting"

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        self.asked: list[list[str]] = []

    def known_columns(self) -> None:
        return None

    def check(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None: ...

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        self.asked.append(keys.to_series().to_list())
        return self.rows.join(keys, on=keys.columns, how="semi")


def ads_of(*names: str | None) -> pl.DataFrame:
    return pl.DataFrame({"ad": names, "n": range(len(names))}, schema={"ad": pl.String, "n": pl.Int64})


def cache_of(
    table: CountingTable, most_rows: int = 100, expires: float | None = None, clock: list[float] | None = None
) -> TableCache:
    now = clock if clock is not None else [0.0]
    return TableCache(table, KEYS, COLUMNS, most_rows, expires, lambda: now[0])


def test_rows_keep_their_order_and_get_the_tables_columns() -> None:
    joined = cache_of(CountingTable(ADS)).join(ads_of("c", "a", "x", "b", None))
    assert joined.get_column("n").to_list() == [0, 1, 2, 3, 4]
    assert joined.get_column("campaign").to_list() == [1, 1, None, 2, None]
    assert joined.get_column(FOUND).to_list() == [True, True, False, True, None]


def test_each_key_is_asked_for_once_and_so_are_keys_that_are_not_there() -> None:
    table = CountingTable(ADS)
    cache = cache_of(table)
    cache.join(ads_of("a", "a", "x"))
    cache.join(ads_of("x", "b", "a", None))
    assert table.asked == [["a", "x"], ["b"]]


def test_a_key_that_is_kept_stays_as_it_was_fetched() -> None:
    table = CountingTable(ADS)
    cache = cache_of(table)
    cache.join(ads_of("a"))
    table.rows = ADS.with_columns(campaign=pl.lit(9, pl.Int64))
    assert cache.join(ads_of("a", "b")).get_column("campaign").to_list() == [1, 9]


def test_what_has_expired_is_asked_for_again_and_the_rest_is_not() -> None:
    table, clock = CountingTable(ADS), [0.0]
    cache = cache_of(table, expires=10.0, clock=clock)
    cache.join(ads_of("a"))
    clock[0] = 6.0
    cache.join(ads_of("a", "b"))
    clock[0] = 11.0
    cache.join(ads_of("a", "b"))
    assert table.asked == [["a"], ["b"], ["a"]]


def test_more_keys_than_the_cache_keeps_are_joined_all_the_same() -> None:
    table = CountingTable(ADS)
    cache = cache_of(table, most_rows=1)
    assert cache.join(ads_of("a", "b", "c")).get_column("campaign").to_list() == [1, 2, 1]
    cache.join(ads_of("c"))
    cache.join(ads_of("a"))
    assert table.asked == [["a", "b", "c"], ["a"]]


def test_several_rows_for_a_key_are_refused() -> None:
    table = CountingTable(pl.concat([ADS, ADS]))
    with pytest.raises(SourceError, match=r"several rows for {'ad': 'a'}"):
        cache_of(table).join(ads_of("a"))


def test_values_of_another_type_than_declared_are_refused() -> None:
    table = CountingTable(ADS.with_columns(campaign=pl.lit("one")))
    with pytest.raises(SourceError, match="does not have what lookup\\(\\) declares"):
        cache_of(table).join(ads_of("a"))


def test_a_frame_is_loaded_once_as_a_whole_and_null_keys_match_nothing() -> None:
    rows = pl.concat([ADS, pl.DataFrame({"ad": [None], "campaign": [7]}, schema=ADS.schema)])
    cache = TableCache(pickle.loads(pickle.dumps(frame_table(rows))), KEYS, COLUMNS, 1)
    assert cache.join(ads_of("b", None)).get_column("campaign").to_list() == [2, None]


def test_parquet_files_are_read_again_when_they_have_expired(tmp_path: Path) -> None:
    ADS.write_parquet(tmp_path / "ads.parquet")
    clock = [0.0]
    cache = TableCache(parquet_table(tmp_path), KEYS, COLUMNS, 1, 10.0, lambda: clock[0])
    assert cache.join(ads_of("a")).get_column("campaign").to_list() == [1]
    ADS.with_columns(campaign=pl.lit(5, pl.Int64)).write_parquet(tmp_path / "ads.parquet")
    assert cache.join(ads_of("a")).get_column("campaign").to_list() == [1]
    clock[0] = 11.0
    assert cache.join(ads_of("a")).get_column("campaign").to_list() == [5]


def test_a_table_without_the_columns_is_refused_before_the_first_batch(tmp_path: Path) -> None:
    with pytest.raises(FlowError, match="no column owner; there are ad, campaign"):
        frame_table(ADS).check(KEYS, {"owner": pl.String()})
    with pytest.raises(SourceError, match="cannot be read"):
        parquet_table(tmp_path / "nothing.parquet").check(KEYS, COLUMNS)


# -- SQLite ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "ads.db")
    connection.execute("CREATE TABLE ads (ad TEXT, site INTEGER, campaign INTEGER, share REAL)")
    rows = [(f"ad-{number}", number % 2, number // 10, 0.5) for number in range(3_000)]
    connection.executemany("INSERT INTO ads VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return f"sqlite:///{tmp_path / 'ads.db'}"


def test_sqlite_rows_are_found_by_more_keys_than_one_question_takes(sqlite_url: str) -> None:
    table = sql_table(sqlite_url, "ads")
    table.check(KEYS, COLUMNS)
    keys = pl.DataFrame({"ad": [f"ad-{number}" for number in range(0, 4_000, 2)]})
    found = table.fetch(keys, {"campaign": pl.Int64(), "share": pl.Float64()}).sort("campaign", "ad")
    assert found.height == 1_500
    assert found.row(0) == ("ad-0", 0, 0.5)


def test_sqlite_rows_are_found_by_several_columns_and_by_other_names(sqlite_url: str) -> None:
    keys = pl.DataFrame({"name": ["ad-1", "ad-2"], "place": [1, 1]})
    found = sql_table(sqlite_url, "ads", key=("ad", "site")).fetch(keys, COLUMNS)
    assert found.to_dicts() == [{"name": "ad-1", "place": 1, "campaign": 0}]


def test_what_is_wrong_with_a_sql_table_is_said_before_the_first_batch(sqlite_url: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such table"):
        sql_table(sqlite_url, "adverts").check(KEYS, COLUMNS)
    with pytest.raises(SourceError, match="no file"):
        sql_table(f"sqlite:///{tmp_path}/nothing.db", "ads").check(KEYS, COLUMNS)
    with pytest.raises(FlowError, match="unknown database 'oracle'"):
        sql_table("oracle://host/x", "ads")
    with pytest.raises(FlowError, match="no name of a table"):
        sql_table(sqlite_url, 'ads" --')


def test_passwords_are_neither_in_labels_nor_in_representations() -> None:
    tables = (
        redis_table("redis://:hidden@host:6379/0", "ad:{ad}"),
        sql_table("postgresql://me:hidden@host/db", "ads"),
    )
    for table in tables:
        assert "hidden" not in f"{table!r} {table} {table.label}"


def test_a_redis_key_names_columns_in_braces() -> None:
    with pytest.raises(FlowError, match="names no column"):
        redis_table("redis://host", "ads")
    with pytest.raises(FlowError, match="is made of ad_id, and the lookup is on ad"):
        redis_table("redis://host", "ad:{ad_id}").check(KEYS, COLUMNS)
    with pytest.raises(FlowError, match="holds='list' is unknown"):
        redis_table("redis://host", "{ad}", holds="list")  # type: ignore[arg-type]


# -- servers that go away ----------------------------------------------------------------------------------------------


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_server_that_comes_back_is_waited_for_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock, tries = FakeTime(), []

    def ask() -> str:
        tries.append(clock.now)
        if clock.now < 5:
            raise ConnectionError("refused")
        return "answer"

    with caplog.at_level(logging.WARNING, "anabranch"):
        assert Patience(60.0, lambda: clock.now, clock.sleep).ask("the table", ask) == "answer"
    assert len(tries) > 3
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "the table is out of reach",
        f"the table is back after {clock.now:.0f} s",
    ]


def test_a_server_that_stays_away_stops_the_flow_with_what_to_do() -> None:
    clock = FakeTime()

    def ask() -> str:
        raise ConnectionError("refused")

    with pytest.raises(SourceError, match=r"out of reach for .* s: refused; see that the server runs"):
        Patience(30.0, lambda: clock.now, clock.sleep).ask("the table", ask)
    assert clock.now <= 30.0
