"""Every table of a server keeps the promises of ``LookupTable``, against the real server."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest

from anabranch.connectors import redis_table, sql_table
from anabranch.errors import FlowError, SourceError
from anabranch.model.lookups import LookupTable
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer

KEYS: dict[str, pl.DataType] = {"ad": pl.String()}
COLUMNS: dict[str, pl.DataType] = {"campaign": pl.Int64(), "owner": pl.String()}
ROWS = [("a", 1, "Ann"), ("b", 2, None), ("naïve ☃ 'quoted\"", 3, "Öz")]


@dataclass
class Served:
    """A table on a server, filled with ``ROWS``."""

    server: Any
    table: LookupTable


def make_redis(server: RedisServer, holds: str) -> Served:
    prefix = uuid.uuid4().hex
    with server.client() as client:
        for ad, campaign, owner in ROWS:
            if holds == "hash":
                client.hset(f"{prefix}:{ad}", mapping={"campaign": campaign, **({"owner": owner} if owner else {})})
            else:
                frame = pl.DataFrame({"campaign": [campaign], "owner": [owner]})
                client.set(f"{prefix}:{ad}", frame.write_ndjson().strip())
    return Served(server, redis_table(server.url, f"{prefix}:{{ad}}", holds=holds))  # type: ignore[arg-type]


def make_sql(server: PostgresServer | MariadbServer) -> Served:
    name = f"ads_{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE TABLE {name} (ad VARCHAR(100) PRIMARY KEY, campaign INTEGER, owner VARCHAR(100))")
    for row in ROWS:
        server.execute(f"INSERT INTO {name} VALUES (%s, %s, %s)", *row)
    return Served(server, sql_table(server.url, name))


MAKERS: dict[str, Callable[[pytest.FixtureRequest, str], Served]] = {
    "redis-hash": lambda request, kind: make_redis(
        request.getfixturevalue(f"{kind}redis{'' if kind else '_server'}"), "hash"
    ),
    "redis-json": lambda request, kind: make_redis(
        request.getfixturevalue(f"{kind}redis{'' if kind else '_server'}"), "json"
    ),
    "postgres": lambda request, kind: make_sql(request.getfixturevalue(f"{kind}postgres")),
    "mariadb": lambda request, kind: make_sql(request.getfixturevalue(f"{kind}mariadb")),
}


@pytest.fixture(params=MAKERS)
def served(request: pytest.FixtureRequest) -> Served:
    return MAKERS[request.param](request, "")


@pytest.fixture(params=["redis-hash", "postgres", "mariadb"])
def own(request: pytest.FixtureRequest) -> Served:
    return MAKERS[request.param](request, "own_")


def test_keys_that_are_there_come_back_with_their_columns(served: Served) -> None:
    served.table.check(KEYS, COLUMNS)
    found = served.table.fetch(pl.DataFrame({"ad": ["x", *(row[0] for row in ROWS)]}), COLUMNS)
    assert found.select("ad", "campaign", "owner").sort("campaign").rows() == ROWS
    assert found.schema["campaign"] == pl.Int64


def test_thousands_of_keys_are_fetched_in_few_questions(served: Served) -> None:
    keys = pl.DataFrame({"ad": [f"ad-{number}" for number in range(25_000)] + ["b"]})
    assert served.table.fetch(keys, COLUMNS).select("ad", "campaign").rows() == [("b", 2)]


def test_values_that_are_not_as_declared_are_said(served: Served) -> None:
    with pytest.raises(SourceError):
        served.table.fetch(pl.DataFrame({"ad": ["a"]}), {"owner": pl.Int64()})


@pytest.mark.parametrize("kind", ["redis", "postgres", "mariadb"])
def test_a_wrong_password_is_said_before_the_first_batch_and_not_shown(
    kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "redis":
        with RedisServer(password="a-secret") as server:
            url = server.url.replace("a-secret", "a-guess")
            assert_refused(redis_table(url, "{ad}", holds="hash"))
    else:
        server = request.getfixturevalue(kind)
        assert_refused(sql_table(server.url.replace("a-secret", "a-guess"), "ads"))


def assert_refused(table: LookupTable) -> None:
    with pytest.raises(SourceError) as raised:
        table.check(KEYS, COLUMNS)
    assert "a-guess" not in str(raised.value)


def test_a_server_that_is_started_again_is_waited_for(own: Served) -> None:
    keys = pl.DataFrame({"ad": ["a"]})
    assert own.table.fetch(keys, COLUMNS).height == 1
    own.server.stop()
    starter = threading.Thread(target=lambda: (time.sleep(1.0), own.server.start()))
    starter.start()
    try:
        assert own.table.fetch(keys, COLUMNS).row(0) == ("a", 1, "Ann")
    finally:
        starter.join()


def test_a_redis_text_fills_one_column(redis_server: RedisServer) -> None:
    prefix = uuid.uuid4().hex
    with redis_server.client() as client:
        client.mset({f"{prefix}:a": "7", f"{prefix}:b": "8"})
    table = redis_table(redis_server.url, f"{prefix}:{{ad}}")
    found = table.fetch(pl.DataFrame({"ad": ["b", "x", "a"]}), {"campaign": pl.Int64()})
    assert found.rows() == [("b", 8), ("a", 7)]


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_key_with_several_rows_is_found_before_the_first_batch(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    name = f"ads_{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE TABLE {name} (ad VARCHAR(100), part INTEGER, campaign INTEGER)")
    for row in (("a", 1, 1), ("A", 1, 2), ("a ", 1, 3), ("a", 2, 4), (None, 1, 5), (None, 1, 6)):
        server.execute(f"INSERT INTO {name} VALUES (%s, %s, %s)", *row)
    columns: dict[str, pl.DataType] = {"campaign": pl.Int64()}
    table = sql_table(server.url, name, key=("ad", "part"))
    # Databases may take 'a', 'A' and 'a ' for the same text; a stream's keys are told apart.
    keys: dict[str, pl.DataType] = {"ad": pl.String(), "part": pl.Int32()}
    table.check(keys, columns)
    with pytest.raises(SourceError, match=r"several rows for {'ad': 'a'}"):
        sql_table(server.url, name).check(KEYS, columns)
    server.execute(f"INSERT INTO {name} VALUES (%s, %s, %s)", "A", 1, 7)
    with pytest.raises(SourceError, match=r"several rows for {'ad': 'A', 'part': 1}"):
        table.check(keys, columns)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_keys_of_another_type_are_refused_before_the_first_batch(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(kind)
    name = f"ads_{uuid.uuid4().hex[:12]}"
    server.execute(
        f"CREATE TABLE {name} (word VARCHAR(100), number BIGINT, whole NUMERIC(10, 0), flag BOOLEAN, c INTEGER)"
    )
    server.execute(f"INSERT INTO {name} VALUES ('01', 1, 2, TRUE, 7)")
    columns: dict[str, pl.DataType] = {"c": pl.Int64()}
    for column, dtype in (("word", pl.Int64()), ("number", pl.String()), ("whole", pl.String()), ("word", pl.Date())):
        with pytest.raises(FlowError, match=f"as its key '{column}', the stream has"):
            sql_table(server.url, name).check({column: dtype}, columns)
    for column, dtype in (("word", pl.String()), ("number", pl.Int8()), ("whole", pl.Int32()), ("flag", pl.Boolean())):
        table = sql_table(server.url, name)
        table.check({column: dtype}, columns)
        value = {"word": "01", "number": 1, "whole": 2, "flag": True}[column]
        assert table.fetch(pl.DataFrame({column: [value]}, schema={column: dtype}), columns).height == 1


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_a_look_for_repeated_keys_that_takes_long_is_given_up(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(kind)
    name = f"slow_{uuid.uuid4().hex[:12]}"
    pause = {"postgres": "pg_sleep(20)::text", "mariadb": "SLEEP(20)"}[kind]
    server.execute(f"CREATE TABLE {name}_rows (ad VARCHAR(100), campaign INTEGER)")
    server.execute(f"INSERT INTO {name}_rows VALUES ('a', 1), ('a', 2)")
    server.execute(
        f"CREATE VIEW {name} AS SELECT ad, campaign FROM {name}_rows WHERE campaign = 1 OR {pause} IS NOT NULL"
    )
    monkeypatch.setattr("anabranch.connectors.lookups.sql.LOOK_SECONDS", 0.5)
    began = time.monotonic()
    sql_table(server.url, name).check(KEYS, {"campaign": pl.Int64()})
    assert time.monotonic() - began < 10
