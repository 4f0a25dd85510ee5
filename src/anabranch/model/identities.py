"""What a source or sink is, so that a checkpoint knows it again wherever it stands in the flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Identity:
    """What a source or sink is: a checkpoint compares it, in words that people read in errors."""

    kind: str
    """``files``, ``kafka``, ``parquet`` …"""
    places: tuple[str, ...] = ()
    """Where its rows lie, the same for the same place however it was spelled: a directory, topics, a table."""
    details: Mapping[str, str] = field(default_factory=dict)
    """What tells two apart that have the same place, such as the pattern of file names; it may change."""
    lasting: bool = True
    """False if a later process has other places for the same thing, as for what lies in memory."""

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(self.places)}" if self.places and self.lasting else self.kind

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "kind": self.kind,
            "places": list(self.places),
            "details": dict(self.details),
            "lasting": self.lasting,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Identity:
        """Read what ``to_json`` wrote."""
        return cls(data["kind"], tuple(data["places"]), data["details"], data["lasting"])


@runtime_checkable
class Identified(Protocol):
    """A source or sink that says what it is; of another one, the label is taken for it."""

    @property
    def identity(self) -> Identity: ...


def identify(endpoint: Any) -> Identity:
    """Return what a source or sink is, by its own word, its place, or its label."""
    if isinstance(endpoint, Identified):
        return endpoint.identity
    kind = str(endpoint.label).split(" ", maxsplit=1)[0]
    place = getattr(endpoint, "place", None)
    if isinstance(place, str):
        return Identity(kind, (place,))
    return Identity(kind, (str(endpoint.label),), lasting=False)
