"""Connections to Redis, made one way for sinks, stores, lookups and commands; and what its errors mean."""

from __future__ import annotations

from typing import Any

from anabranch.connectors.addresses import show_address
from anabranch.connectors.extras import import_extra
from anabranch.errors import AnabranchError

SCHEMES = ("redis", "rediss", "unix")
EXAMPLE = "redis://:password@host:6379/0"
_DISTRUST = "CERTIFICATE_VERIFY_FAILED"
_PASSING = ("LOADING", "MASTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "READONLY")
"""How answers begin that a server gives for a while: it starts, follows another, has no room."""


def import_redis(error: type[AnabranchError]) -> Any:
    """Return Redis' client, or raise an ``error`` that says how to install it."""
    return import_extra("redis", "redis", "Redis needs its driver", error)


def connect_redis(
    url: str,
    error: type[AnabranchError],
    *,
    answer_seconds: float,
    connect_seconds: float,
    decode: bool = False,
) -> Any:
    """Return a client of the server at a URL, which is asked nothing yet; raise an ``error`` for what is no address."""
    redis = import_redis(error)
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    settings: dict[str, Any] = {
        "socket_timeout": answer_seconds,
        "socket_connect_timeout": connect_seconds,
        # Pauses between tries are ours: it is not known what a broken request has done.
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": decode,
    }
    if not url.startswith("unix://"):
        # Sockets of this machine have nobody to keep alive, and do not know the word.
        settings["socket_keepalive"] = True
    try:
        client = redis.Redis.from_url(url, **settings)
        # Options that no connection knows would be found only when the server is asked.
        client.connection_pool.make_connection()
    except (ValueError, TypeError) as problem:
        msg = (
            f"{show_address(url)} is no Redis server: {_without_call(problem)}; write redis://host:port/0, "
            "rediss://host:port/0 or unix:///path/of/the/socket"
        )
        raise error(msg) from None
    return client


def is_away(error: BaseException) -> bool:
    """Say whether the same may work later: the server is out of reach, or not ready, or somebody else came first."""
    import redis

    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
        return False
    if _DISTRUST in str(error):
        return False
    kinds = redis.ConnectionError | redis.TimeoutError | redis.WatchError | redis.exceptions.ReadOnlyError | OSError
    return isinstance(error, kinds) or str(error).startswith(_PASSING)


def advise(error: BaseException, commands: str) -> str:
    """Say what a user can do about an error that does not pass; ``commands`` are those that are needed."""
    if _DISTRUST in str(error):
        return "name the certificate of the authority that signed the server's: rediss://…?ssl_ca_certs=/path/of/it"
    return f"see that user and password are right and may use {commands}"


def _without_call(problem: Exception) -> str:
    """Return what a problem says, without the name of the client's own function."""
    return str(problem).rpartition("() ")[2]
