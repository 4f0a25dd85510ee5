"""A driver that writes to servers, killed with −9 around its publications: every row is there once."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest

from contracts.database_sinks import read_committed
from lab.drivers import DriverProcess, write_input
from lab.sinks_under_test import HASHES, TABLE, TOPIC
from servers.kafka import KafkaBroker
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer

SCRIPT = Path(__file__).with_name("sinks_under_test.py")
SEED = 11
RANDOM_KILLS = 2
# The sinks, in their order: Parquet, PostgreSQL, MariaDB, Redis, Parquet, Kafka, Delta Lake.
FAULTS = (("after-manifest", 1), ("between-sinks", 2), ("after-publish", 3))


def run(folder: Path, environment: Mapping[str, str], **more: str) -> DriverProcess:
    return DriverProcess(folder, environment={**environment, **more}, script=SCRIPT)


def test_rows_in_databases_topics_and_tables_are_those_of_an_exactly_once_sink(
    tmp_path: Path,
    own_postgres: PostgresServer,
    own_mariadb: MariadbServer,
    own_redis: RedisServer,
    own_kafka: KafkaBroker,
) -> None:
    write_input(tmp_path, files=12, rows=150, seed=SEED)
    own_kafka.create_topic(TOPIC, 3)
    servers = {
        "UNDER_TEST_POSTGRES": own_postgres.url,
        "UNDER_TEST_MARIADB": own_mariadb.url,
        "UNDER_TEST_REDIS": own_redis.url,
        "UNDER_TEST_KAFKA": own_kafka.servers,
    }
    for moment, batch in FAULTS:
        process = run(tmp_path, servers, ANABRANCH_FAULT=f"{moment}:{batch}")
        try:
            assert process.wait() != 0, f"not killed at {moment}: {process.lines[-3:]}"
        finally:
            process.end()
    chance = random.Random(SEED)
    for _ in range(RANDOM_KILLS):
        process = run(tmp_path, servers)
        try:
            assert process.wait_for("batch "), process.lines[-3:]
            time.sleep(chance.random() / 2)
            process.kill("everything")
            process.wait()
        finally:
            process.end()
    # Redis loses everything: it is rebuilt from what the checkpoint keeps.
    own_redis.client().flushall()
    process = run(tmp_path, servers)
    try:
        assert process.wait() == 0, process.lines[-3:]
    finally:
        process.end()
    totals = last_totals(tmp_path)
    assert len(totals) > 10
    query = f"SELECT key, rows, total FROM {TABLE}"
    assert as_totals(own_postgres.execute(query)) == totals
    assert as_totals(own_mariadb.execute(query.replace("rows", "`rows`").replace("key", "`key`"))) == totals
    client = own_redis.client()
    held = [client.hgetall(key) for key in client.scan_iter(HASHES.format(key="*"))]
    assert as_totals([(int(row["key"]), int(row["rows"]), int(row["total"])) for row in held]) == totals
    windows = pl.read_parquet(tmp_path / "out" / "windows" / "*.parquet")
    assert windows.height > 30
    expected = sorted(windows.select("key", "rows", "total", "highest").rows())
    messages = [json.loads(message.value()) for message in read_committed(own_kafka.servers, TOPIC)]
    assert sorted((m["key"], m["rows"], m["total"], m["highest"]) for m in messages) == expected
    table = pl.DataFrame(deltalake.DeltaTable(str(tmp_path / "out" / "delta")).to_pyarrow_table())
    assert sorted(table.select("key", "rows", "total", "highest").rows()) == expected


def last_totals(folder: Path) -> dict[int, tuple[int, int]]:
    """Return the last total of every key, as the Parquet files have them."""
    paths = sorted((folder / "out" / "totals").glob("part-*"))
    frame = pl.concat(pl.read_parquet(path) for path in paths)
    return as_totals(frame.select("key", "rows", "total").rows())


def as_totals(rows: list[Any]) -> dict[int, tuple[int, int]]:
    """Return key → (rows, total); later rows win."""
    return {int(key): (int(count), int(total)) for key, count, total in rows}


@pytest.mark.parametrize("wrong", ["UNDER_TEST_POSTGRES"])
def test_a_wrong_password_ends_the_flow_before_its_first_batch(
    tmp_path: Path, own_postgres: PostgresServer, wrong: str
) -> None:
    write_input(tmp_path, files=1, rows=10, seed=SEED)
    process = run(tmp_path, {wrong: own_postgres.url.replace("a-secret", "no-secret")})
    try:
        assert process.wait() == 3
        assert any(line.startswith("failed SinkError") and "password" in line for line in process.lines)
        assert not any("no-secret" in line for line in process.lines)
        assert not list((tmp_path / "checkpoint" / "commits").glob("*.json"))
    finally:
        process.end()
