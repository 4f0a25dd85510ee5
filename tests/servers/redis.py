"""A Redis server of the tests' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from servers.programs import ServerProcess, find_program


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
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """Return the command that runs the server."""
        binary = find_program(["redis-server"], [], "redis-server")
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always"] if self.keeps_data else ["--appendonly", "no"]
        if self.password:
            options += ["--requirepass", self.password]
        return [binary, *options]

    def client(self) -> Any:
        """Return a client that answers in text."""
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True)

    def answers(self) -> bool:
        """Say whether the server takes requests."""
        if not super().answers():
            return False
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
