"""A Redis server of a test's own, on a free port, without files."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field

import pytest

REASON = "redis-server is not installed: `make test` installs it as root on Debian, elsewhere install it by hand"
START_SECONDS = 20.0


def free_port() -> int:
    """Return a port that nobody listens to at the moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class RedisServer:
    """A server process that can be stopped and started again at the same port."""

    password: str | None = None
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        secret = f":{self.password}@" if self.password else ""
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        binary = shutil.which("redis-server")
        if binary is None:
            pytest.skip(REASON)
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        if self.password:
            options += ["--requirepass", self.password]
        self.process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, cwd="/")
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, "redis-server does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0
