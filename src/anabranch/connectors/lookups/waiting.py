"""Wait for a server that went away, with growing pauses, and say so once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anabranch.errors import SourceError

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0

logger = logging.getLogger("anabranch")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server; time is passed in, so that tests need none."""

    longest_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, place: str, question: Callable[[], Answer]) -> Answer:
        """Ask until the server answers; raise ``SourceError`` once it has been away for too long."""
        pause_seconds = FIRST_PAUSE_SECONDS
        away_since: float | None = None
        while True:
            try:
                answer = question()
            except ConnectionError as error:
                now = self.monotonic()
                if away_since is None:
                    away_since = now
                    logger.warning("%s is out of reach (%s): the flow waits for it", place, error)
                if now - away_since + pause_seconds > self.longest_seconds:
                    msg = (
                        f"{place} has been out of reach for {now - away_since:.0f} s: {error}; see that the server "
                        "runs and start the flow again, or give its table more patience_seconds="
                    )
                    raise SourceError(msg) from error
                self.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                if away_since is not None:
                    logger.warning("%s is back after %.1f s", place, self.monotonic() - away_since)
                return answer
