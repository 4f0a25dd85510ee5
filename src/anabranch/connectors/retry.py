"""Servers that go away are waited for, with growing pauses; it is said once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from anabranch.connectors.waits import LOGGER, begin_wait, end_wait
from anabranch.errors import AnabranchError, SinkError

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
DEFAULT_PATIENCE_SECONDS = 600.0
LONGEST_WAIT_AT_START_SECONDS = 20.0
"""A server that is not there at the start may be a wrong address: nobody wants to wait long to hear of it."""

_ADVICE = "see that the server runs and that its address is right, then start again"

logger = logging.getLogger(LOGGER)
T = TypeVar("T")


class ServerAway(Exception):
    """A server cannot be reached at the moment, or ended what it was asked for; asking again may help."""


def insist(
    place: str,
    patience_seconds: float,
    attempt: Callable[[], T],
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    *,
    signs: type[Exception] = ServerAway,
    error: type[AnabranchError] = SinkError,
    advice: str = _ADVICE,
) -> T:
    """Return what the attempt returns, as soon as its server is there.

    ``signs`` are the exceptions that tell of a server that is away. If it is so for too long, an ``error`` says so,
    with the advice.
    """
    pause_seconds = FIRST_PAUSE_SECONDS
    away_since: float | None = None
    try:
        while True:
            try:
                result = attempt()
            except signs as away:
                now = monotonic()
                if away_since is None:
                    away_since = now
                    logger.warning("%s is out of reach (%s): waiting for it", place, away)
                    begin_wait(place, str(away))
                if now + pause_seconds - away_since > patience_seconds:
                    msg = f"{place} is out of reach for {now - away_since:.0f} s: {away}; {advice}"
                    raise error(msg) from None
                sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                if away_since is not None:
                    logger.warning("%s is back after %.0f s", place, monotonic() - away_since)
                return result
    finally:
        end_wait(place)


def at_start(patience_seconds: float) -> float:
    """Return how long to wait before the first batch."""
    return min(patience_seconds, LONGEST_WAIT_AT_START_SECONDS)
