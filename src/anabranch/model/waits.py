"""Servers that a flow waits for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wait:
    """A server that is waited for at the moment."""

    place: str
    reason: str
    since_seconds: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class PastWait:
    """A server that was waited for and came back, or was given up."""

    place: str
    reason: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.place} was waited for, {self.seconds:.0f} s ({self.reason})"
