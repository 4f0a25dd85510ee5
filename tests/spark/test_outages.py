"""Servers that go away while a flow runs: it waits, says so, goes on, and loses and doubles nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from flows.kafka_readings import SCHEMA, START_MS, WINDOW_SECONDS, send
from flows.running import WAIT_SECONDS, wait_until
from servers.kafka import SASL_PASSWORD
from servers.postgres import PASSWORD, PostgresServer
from servers.proxy import cuttable_wire
from servers.redis import RedisServer
from servers.tls_kafka import TlsKafkaBroker
from spark.fixtures import SparkBench

LEADER_GONE_SECONDS = 30.0
WIRE_CUT_SECONDS = 5.0
SENSORS = 3


@pytest.fixture
def broker() -> Iterator[TlsKafkaBroker]:
    with TlsKafkaBroker() as server:
        yield server


def test_a_flow_outlives_its_broker_its_databases_and_its_network(
    bench: SparkBench, broker: TlsKafkaBroker, own_postgres: PostgresServer, own_redis: RedisServer
) -> None:
    broker.create_topic("steady", SENSORS)
    # The first readings are there before the flow is: a partition that comes later than others would be late.
    expected = send(broker, "steady", range(20))
    checkpoint = bench.new_checkpoint()
    with cuttable_wire(own_postgres.port) as wire:
        flow = ab.Flow("steady")
        source = ab.kafka(broker.login_servers, "steady", schema=SCHEMA, options=broker.login_options())
        # Partitions are filled one after the other: by one clock for all, the last ones would be late.
        rows = flow.read(source).watermark("ts", delay="2s", per="partition")
        windows = rows.key_by("sensor").window(f"{WINDOW_SECONDS}s").agg(rows=ab.count())
        # Rows are added, never replaced: one that came twice would be there twice.
        url = own_postgres.url.replace(str(own_postgres.port), str(wire.port))
        windows.write(ab.postgres(url, "windows", mode="append", batch_column="batch"))
        windows.write(ab.redis_hashes(own_redis.url, "window:{sensor}:{window_start:ms}"))
        handle = flow.start(checkpoint, spark=bench.spark, trigger="100ms", slots=2)

        def send_more() -> None:
            sent = sum(expected.values()) // SENSORS
            expected.update(send(broker, "steady", range(sent, sent + 20)))

        def catch_up() -> None:
            wait_until(lambda: sum(entry.rows_in for entry in handle.progress) == sum(expected.values()), "all rows")
            wait_until(lambda: not handle.waits, "the end of all waits")

        def see_wait(place: str) -> None:
            wait_until(lambda: any(place in wait.place for wait in handle.waits), f"the wait for {place}")

        try:
            catch_up()
            broker.kill()
            see_wait("Kafka (steady)")
            broker.start()
            send_more()
            catch_up()
            broker.pause()
            time.sleep(LEADER_GONE_SECONDS)
            see_wait("Kafka (steady)")
            broker.resume()
            send_more()
            catch_up()
            wire.cut()
            send_more()
            time.sleep(WIRE_CUT_SECONDS)
            wire.mend()
            catch_up()
            own_postgres.stop()
            own_redis.kill()
            send_more()
            see_wait("postgresql://")
            own_postgres.start()
            see_wait("redis://")
            own_redis.start()
            catch_up()
            handle.stop(drain=True, timeout_seconds=WAIT_SECONDS)
        finally:
            handle.stop()
    assert handle.exception() is None
    problems = " ".join(problem for entry in handle.progress for problem in entry.problems)
    for place in ("the Kafka servers", "postgresql://", "redis://"):
        assert place in problems, problems
    seconds = "(EXTRACT(EPOCH FROM window_start) * 1000)::bigint"
    rows_of_postgres = own_postgres.execute(f"SELECT sensor, {seconds}, rows FROM windows")
    assert sorted(rows_of_postgres) == sorted(
        (sensor, START_MS + window * WINDOW_SECONDS * 1000, rows) for (sensor, window), rows in expected.items()
    )
    client = own_redis.client()
    hashes = {key: int(client.hget(key, "rows")) for key in client.scan_iter("window:*")}
    assert hashes == {f"window:{sensor}:{start_ms}": rows for sensor, start_ms, rows in rows_of_postgres}
    assert_secret_in_no_file(Path(checkpoint), SASL_PASSWORD, PASSWORD)


def assert_secret_in_no_file(folder: Path, *secrets: str) -> None:
    """Fail if a file below the folder has one of these texts in it."""
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), path
