"""What every user of a Redis server must do: take addresses of hosts and of sockets, and refuse what is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.connectors.control_channels.redis_messages import RedisChannel, send
from anabranch.connectors.global_stores.sink import _open
from anabranch.control.commands import Command, Reply
from anabranch.errors import AnabranchError
from benchmarks.servers.certificates import Authority
from contracts.database_sinks import SCHEMA, Stage, context, make_rows
from contracts.test_global_stores import FLOW, Opened
from contracts.test_tls import TlsRedis
from servers.redis import RedisServer


class SocketRedis(RedisServer):
    """A server that is also there as a socket of this machine."""

    @property
    def socket_url(self) -> str:
        return f"unix://{self.folder}/redis.sock?db=0"

    def command(self) -> list[str]:
        return [*super().command(), "--unixsocket", f"{self.folder}/redis.sock"]


@pytest.fixture(scope="module")
def socket_url() -> Iterator[str]:
    with SocketRedis() as server:
        yield server.socket_url


@pytest.fixture(scope="module")
def tls_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    server = TlsRedis(password="a-secret")
    server.signed = authority.sign("server")
    with server:
        yield f"{server.url}?{server.authority_option.format(authority.certificate)}"


@pytest.fixture(params=["host", "socket", "tls"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "host":
        return str(request.getfixturevalue("redis_server").url)
    return str(request.getfixturevalue(f"{request.param}_url"))


def test_hashes_are_written(url: str, tmp_path: Path) -> None:
    sink = ab.redis_hashes(url, "address:{sensor}")
    sink.check(SCHEMA)
    sink.claim("test", None)
    sink.publish(0, Stage(tmp_path)(sink, make_rows(1000)), context())
    sink.close()
    again = ab.redis_hashes(url, "address:{sensor}")
    again.claim("test", 0)
    again.publish(1, Stage(tmp_path)(again, make_rows(1003)), context())
    table = ab.redis_table(url, "address:{sensor}", holds="hash")
    keys = pl.DataFrame({"sensor": [1000, 1005, 1006]})
    table.check({"sensor": pl.Int64()}, {"total": pl.Float64()})
    assert table.fetch(keys, {"total": pl.Float64()}).rows() == [(1000, 250.0), (1005, 251.25)]
    again.close()


def test_partial_results_meet(url: str, tmp_path: Path) -> None:
    store = Opened(url, tmp_path, table="meeting")
    sink = store.sink()
    sink.claim(FLOW, None)
    store.publish(sink, 0, [(1, "a", 200.0, 5, 1)], [(1, "a", 210.0, 6, 2)])
    assert [row["readings"] for row in store.rows()] == [2]
    sink.close()


def test_commands_are_heard(url: str) -> None:
    channel = RedisChannel(url, "flow")
    assert channel.poll() == []
    heard: list[Command] = []

    def answer() -> None:
        while not heard:
            heard.extend(channel.poll())
        channel.reply(Reply(heard[0].id, ok=True, text="heard"))

    listener = threading.Thread(target=answer)
    listener.start()
    assert send(url, "flow", Command("a", "show"), 10.0).text == "heard"
    listener.join()
    channel.close()


USERS: dict[str, Callable[[str], Any]] = {
    "sink": lambda url: ab.redis_hashes(url, "k:{sensor}", patience_seconds=0.5).claim("test", None),
    "store": _open,
    "lookup": lambda url: ab.redis_table(url, "k:{a}").check({"a": pl.Int64()}, {"b": pl.String()}),
    "commands": lambda url: RedisChannel(url, "flow"),
}


@pytest.mark.parametrize("use", USERS.values(), ids=USERS)
def test_options_that_no_connection_knows_are_said(use: Callable[[str], Any]) -> None:
    for wrong in ("redis://127.0.0.1:1/0?colour=red", "unix:///nowhere.sock?colour=red"):
        with pytest.raises(AnabranchError, match=r"no Redis server: .*'colour'.*unix:///path"):
            use(wrong)


def test_a_socket_that_is_not_there_is_waited_for_and_then_said() -> None:
    with pytest.raises(AnabranchError, match=r"unix:///nowhere\.sock .* is out of reach"):
        USERS["sink"]("unix:///nowhere.sock")
