"""A Redis server of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.lab.ports import LOOPBACK
from benchmarks.servers.jars import ServerMissing
from benchmarks.servers.processes import ServerProcess, find_program


@dataclass
class RedisServer(ServerProcess):
    """A server without files, unless it is to keep its data over a restart."""

    password: str | None = None
    keeps_data: bool = False
    """Write every change to a file before it is answered, as a careful user sets it."""

    @property
    def url(self) -> str:
        """How clients reach it, the password included."""
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}{LOOPBACK}:{self.port}/0"

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        binary = find_program(["redis-server"], [], "redis-server")
        options = ["--port", str(self.port), "--bind", LOOPBACK, "--save", "", "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always"] if self.keeps_data else ["--appendonly", "no"]
        if self.password:
            options += ["--requirepass", self.password]
        return [binary, *options]

    def client(self) -> Any:
        """Return a client that answers in text."""
        return _import_client().Redis.from_url(self.url, decode_responses=True)

    def answers(self) -> bool:
        """Say whether the server takes requests."""
        if not super().answers():
            return False
        try:
            with self.client() as client:
                return bool(client.ping())
        except _import_client().RedisError:
            return False


@contextmanager
def run_redis(folder: Path) -> Iterator[str]:
    """Run a server without files while the block runs, and give its URL; its log lies in the folder."""
    _import_client()
    with RedisServer(folder) as server:
        yield server.url


def _import_client() -> Any:
    try:
        import redis
    except ImportError as error:
        msg = "a server of one's own is asked by Redis' client: pip install 'anabranch[redis]'"
        raise ServerMissing(msg) from error
    return redis
