"""A Redis server of the tests' own; how it is started, benches share."""

from __future__ import annotations

from benchmarks.servers.redis import RedisServer as BenchedRedisServer
from servers.programs import SkippedWhereMissing


class RedisServer(SkippedWhereMissing, BenchedRedisServer):
    """A server without files, unless it is to keep its data over a restart."""
