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
from anabranch.errors import SourceError
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
