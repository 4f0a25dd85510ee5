"""The servers as fixtures, one of each for all tests that ask for it; dear ones are one for all processes of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.kafka import KafkaBroker
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer
from servers.redis import RedisServer
from servers.s3 import S3Server
from sharing import shared_server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka broker that all tests share: give each test topics of its own, and leave it running.

    So do all processes of a run: one that idles takes 2 s of processor time a minute, one that starts 4 s.
    """
    with shared_server(tmp_path_factory, "kafka", KafkaBroker) as broker:
        yield broker


@pytest.fixture
def own_kafka() -> Iterator[KafkaBroker]:
    """A Kafka broker for one test, to be stopped, paused and killed."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server that all tests share: give each test keys of its own, and leave it running."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis server for one test, to be stopped, paused and flushed."""
    with RedisServer(keeps_data=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL server that all tests share: give each test tables of its own, and leave it running."""
    with shared_server(tmp_path_factory, "postgres", PostgresServer) as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for one test, to be stopped, paused and killed."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """A MariaDB server that all tests share: give each test tables of its own, and leave it running."""
    with shared_server(tmp_path_factory, "mariadb", MariadbServer) as server:
        yield server


@pytest.fixture
def own_mariadb() -> Iterator[MariadbServer]:
    """A MariaDB server for one test, to be stopped, paused and killed."""
    with MariadbServer() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server that speaks S3 and that all tests share: give each test a bucket of its own, and leave it running."""
    with S3Server() as server:
        yield server
