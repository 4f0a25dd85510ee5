"""Servers that are reached through TLS: certificates and passwords are passed on, refused clearly, and never shown."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.connectors import kafka as read_kafka
from anabranch.connectors import kafka_topic, mariadb, postgres, redis_hashes
from anabranch.connectors.formats.messages.messages import Messages
from anabranch.connectors.kafka_topics.cluster import TopicPart
from anabranch.connectors.kafka_topics.connection import make_connection
from anabranch.connectors.kafka_topics.consuming import ConfluentReader, OffsetRange
from anabranch.connectors.kafka_topics.fetching import FetchReader
from anabranch.connectors.kafka_topics.securing import find_security
from anabranch.errors import SinkError, SourceError
from anabranch.model import Split
from benchmarks.servers.certificates import Authority, SignedKey
from contracts.database_sinks import SCHEMA, Stage, context, make_rows, read_committed
from servers.kafka import SASL_PASSWORD
from servers.mariadb import MariadbServer
from servers.postgres import PostgresServer
from servers.programs import UNPRIVILEGED_GROUP, UNPRIVILEGED_USER
from servers.redis import RedisServer
from servers.tls_kafka import SHORT_LOGIN_SECONDS, TlsKafkaBroker

NUMBERS = {"n": pl.Int64}
SHORT_PATIENCE_SECONDS = 1.0


@pytest.fixture(scope="module")
def broker() -> Iterator[TlsKafkaBroker]:
    with TlsKafkaBroker() as server:
        server.create_topic("numbers", 1)
        server.create_topic("results", 1)
        server.produce("numbers", [b'{"n": 1}', b'{"n": 2}'])
        server.let_in_by_scram()
        yield server


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that signed nothing of the servers'."""
    return Authority(tmp_path_factory.mktemp("certificates") / "stranger")


def reach(broker: TlsKafkaBroker, listener: str) -> tuple[str, dict[str, str]]:
    if listener == "mutual":
        return broker.mutual_servers, broker.mutual_options()
    return broker.login_servers, broker.login_options()


def plan(source: Any) -> list[Split]:
    """Return all splits of a topic."""
    planner = source.planner()
    planner.bound()
    return list(planner.plan(None, 0.0).splits)


@pytest.mark.parametrize("listener", ["mutual", "login"])
def test_a_topic_is_read_and_written(broker: TlsKafkaBroker, tmp_path: Path, listener: str) -> None:
    servers, options = reach(broker, listener)
    source = read_kafka(servers, "numbers", schema=NUMBERS, options=options)
    source.check()
    frames = [outcome.frame for split in plan(source) for outcome in source.read(split)]
    assert pl.concat(frames)["n"].to_list() == [1, 2]
    broker.create_topic(f"results-{listener}", 1)
    sink = kafka_topic(servers, f"results-{listener}", key="sensor", options=options)
    sink.check(SCHEMA)
    sink.claim("test", None)
    sink.publish(0, Stage(tmp_path)(sink, make_rows(1000, 3)), context())
    sink.close()
    assert len(read_committed(broker.servers, f"results-{listener}")) == 3


class NoClient:
    """Stands where whole batches would be left to the client: none must be."""

    def read(self, wanted: OffsetRange, include: Sequence[str], patience_seconds: float) -> Iterator[Messages]:
        msg = f"{wanted} was left to the client"
        raise AssertionError(msg)


@pytest.fixture(scope="module")
def many(broker: TlsKafkaBroker) -> list[bytes]:
    """Values of a topic of its own, in batches of hundreds."""
    broker.create_topic("many", 1)
    values = [b'{"n": %d}' % number for number in range(4_000)]
    broker.produce("many", values)
    return values


@pytest.mark.parametrize("login", ["a certificate", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_whole_batches_are_fetched_from_secured_brokers(broker: TlsKafkaBroker, many: list[bytes], login: str) -> None:
    servers, options = reach(broker, "mutual" if login == "a certificate" else "login")
    if login != "a certificate":
        options = broker.login_options(login)
    connection = make_connection(servers, options)
    security = find_security(connection)
    assert security is not None
    reader = FetchReader(connection, security, NoClient())
    part = TopicPart("many", 0)
    found = []
    for first, last in ((0, 1_000), (1_000, 4_000)):
        for messages in reader.read(OffsetRange(part, first, last, 20.0), (), 30.0):
            found += messages.values()
        if login == "SCRAM-SHA-512":
            # By then the broker would close the connection.
            time.sleep(1.2 * SHORT_LOGIN_SECONDS)
    assert found == many


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_broker_that_refuses_whole_batches_is_left_to_the_client(
    broker: TlsKafkaBroker, stranger: Authority, many: list[bytes], wrong: str
) -> None:
    servers, options = reach(broker, "login")
    broken = {"password": {"sasl.password": "hunter2"}, "authority": {"ssl.ca.location": str(stranger.certificate)}}
    security = find_security(make_connection(servers, options | broken[wrong]))
    assert security is not None
    connection = make_connection(servers, options)
    reader = FetchReader(connection, security, ConfluentReader(connection))
    found = [
        value
        for messages in reader.read(OffsetRange(TopicPart("many", 0), 0, 4_000, 20.0), (), 30.0)
        for value in messages.values()
    ]
    assert found == many


@pytest.mark.parametrize(
    ("listener", "wrong", "words"),
    [
        ("login", "authority", "ssl.ca.location"),
        ("login", "password", "user or password is wrong"),
        ("mutual", "client", "ssl.certificate.location"),
        ("mutual", "no client", "ssl.certificate.location"),
    ],
)
def test_what_a_broker_refuses_is_said_before_the_first_batch_without_secrets(
    broker: TlsKafkaBroker,
    stranger: Authority,
    caplog: pytest.LogCaptureFixture,
    listener: str,
    wrong: str,
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    servers, options = reach(broker, listener)
    if wrong == "authority":
        options["ssl.ca.location"] = str(stranger.certificate)
    elif wrong == "password":
        options["sasl.password"] = "hunter2"
    elif wrong == "client":
        signed = stranger.sign("client")
        options |= {"ssl.certificate.location": str(signed.certificate), "ssl.key.location": str(signed.key)}
    else:
        options = {name: value for name, value in options.items() if not name.startswith(("ssl.cert", "ssl.key"))}
    source = read_kafka(servers, "numbers", schema=NUMBERS, options=options)
    sink = kafka_topic(servers, "results", options=options, patience_seconds=SHORT_PATIENCE_SECONDS)
    with pytest.raises(SourceError, match=words) as of_source:
        source.check()
    with pytest.raises(SinkError, match=words) as of_sink:
        sink.claim("test", None)
    shown = f"{of_source.value} {of_sink.value} {source!r} {sink!r} {source.label} {sink.label} {caplog.text}"
    assert "hunter2" not in shown and SASL_PASSWORD not in shown


def test_a_wrong_protocol_is_hinted_at(broker: TlsKafkaBroker) -> None:
    with pytest.raises(SourceError, match=r"security\.protocol"):
        read_kafka(broker.login_servers, "numbers", schema=NUMBERS).check()


def test_a_file_of_certificates_that_is_not_there_is_named(broker: TlsKafkaBroker) -> None:
    options = broker.login_options() | {"ssl.ca.location": "/nowhere/authority.pem"}
    with pytest.raises(SourceError, match=r"ssl\.ca\.location"):
        read_kafka(broker.login_servers, "numbers", schema=NUMBERS, options=options).check()


# -- databases ---------------------------------------------------------------------------------------------------------


def lend(signed: SignedKey, server: Any) -> tuple[Path, Path]:
    """Put a key and its certificate where only the server's user can read them."""
    lent = []
    for file in (signed.key, signed.certificate):
        copy = Path(shutil.copy(file, server.folder))
        copy.chmod(0o600)
        if server.child_options():
            shutil.chown(copy, UNPRIVILEGED_USER, UNPRIVILEGED_GROUP)
        lent.append(copy)
    return lent[0], lent[1]


class TlsPostgres(PostgresServer):
    signed: SignedKey
    authority_option = "sslmode=verify-full&sslrootcert={}"

    def command(self) -> list[str]:
        key, certificate = lend(self.signed, self)
        return [*super().command(), "-c", "ssl=on", "-c", f"ssl_key_file={key}", "-c", f"ssl_cert_file={certificate}"]


class TlsMariadb(MariadbServer):
    signed: SignedKey
    authority_option = "ssl_ca={}"

    def command(self) -> list[str]:
        key, certificate = lend(self.signed, self)
        return [*super().command(), f"--ssl-key={key}", f"--ssl-cert={certificate}"]


class TlsRedis(RedisServer):
    signed: SignedKey
    authority_option = "ssl_ca_certs={}"

    @property
    def url(self) -> str:
        return f"rediss://:{self.password}@127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        key, certificate = lend(self.signed, self)
        options = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
        return [*super().command(), *options, "--tls-key-file", str(key), "--tls-cert-file", str(certificate)]

    def client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True, ssl_cert_reqs="none")


DATABASES: dict[str, tuple[Callable[[], Any], Callable[[str], Any], str]] = {
    "postgres": (TlsPostgres, lambda url: postgres(url, "readings", keys="sensor"), "SELECT count(*) FROM readings"),
    "mariadb": (TlsMariadb, lambda url: mariadb(url, "readings", keys="sensor"), "SELECT count(*) FROM readings"),
    "redis": (lambda: TlsRedis(password="a-secret"), lambda url: redis_hashes(url, "reading:{sensor}"), ""),
}


@pytest.mark.parametrize("kind", DATABASES)
def test_a_database_is_written_to_if_its_certificate_is_trusted(kind: str, stranger: Authority, tmp_path: Path) -> None:
    make_server, make_sink, query = DATABASES[kind]
    authority = Authority(tmp_path / "authority")
    server = make_server()
    server.signed = authority.sign("server")
    with server:
        sink = make_sink(f"{server.url}?{server.authority_option.format(authority.certificate)}")
        sink.check(SCHEMA)
        sink.claim("test", None)
        sink.publish(0, Stage(tmp_path)(sink, make_rows(1000, 3)), context())
        sink.close()
        assert (server.execute(query)[0][0] if query else len(server.client().keys("reading:*"))) == 3
        wrong = make_sink(f"{server.url}?{server.authority_option.format(stranger.certificate)}")
        wrong.check(SCHEMA)
        with pytest.raises(SinkError, match=r"(?i)certificate.*verify.*certificate") as refused:
            wrong.claim("test", 0)
        assert "a-secret" not in f"{refused.value} {wrong!r} {wrong.label}"
