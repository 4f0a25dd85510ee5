"""A Redis server of a bench's own, without files."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.bench.servers.jars import ServerMissing
from anabranch.bench.servers.kafka import free_ports
from anabranch.errors import AnabranchError

START_SECONDS = 20.0


class RedisError(AnabranchError):
    """A Redis server of one's own does not answer."""


@contextmanager
def run_redis(folder: Path) -> Iterator[str]:
    """Run a server while the block runs, and give its URL."""
    program = shutil.which("redis-server")
    if program is None:
        msg = "redis-server is not installed (Debian: apt-get install redis-server)"
        raise ServerMissing(msg)
    try:
        import redis
    except ImportError as error:
        msg = "the bench needs Redis' client: pip install 'anabranch[redis]'"
        raise ServerMissing(msg) from error
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen([program, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        deadline = time.monotonic() + START_SECONDS
        with redis.Redis.from_url(url) as client:
            while True:
                try:
                    client.ping()
                    break
                except redis.RedisError as error:
                    if process.poll() is not None or time.monotonic() > deadline:
                        msg = f"the Redis server does not answer: {error}; its log: {folder / 'redis.log'}"
                        raise RedisError(msg) from error
                    time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()
