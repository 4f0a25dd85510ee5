"""Wait for the server of a table that went away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anabranch.connectors.retry import insist
from anabranch.errors import SourceError

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a server; time is passed in, so that tests need none."""

    longest_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def ask(self, place: str, question: Callable[[], Answer]) -> Answer:
        """Ask until the server answers; raise ``SourceError`` once it has been away for too long."""
        return insist(
            place,
            self.longest_seconds,
            question,
            self.monotonic,
            self.sleep,
            signs=ConnectionError,
            error=SourceError,
            advice="see that the server runs and start the flow again, or give its table more patience_seconds=",
        )
