"""Every error that a user can meet, each with a sentence about what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class AnabranchError(Exception):
    """The base of all errors that this library raises on purpose."""


class FlowError(AnabranchError):
    """A flow is wrong: an unknown column, a wrong type, a missing sink; or, as it runs, a type too narrow for a sum."""


class SourceError(AnabranchError):
    """A source cannot be read: a missing directory, a file that vanished."""


class SinkError(AnabranchError):
    """A sink cannot be written."""


class CheckpointError(AnabranchError):
    """A checkpoint does not fit: another flow, another format, offsets that differ."""


class StateDamaged(CheckpointError):
    """A state file is missing or its checksum differs, and it could not be rebuilt."""


class Fenced(AnabranchError):
    """Another driver owns the checkpoint now; this one must stop."""


class ControlError(AnabranchError):
    """A command did not reach a running flow: none runs there, no answer came, the channel is out of reach."""


class EngineError(AnabranchError):
    """Spark cannot run the flow: Spark Connect, a missing setting, a job that failed too often."""


def name_alternatives(wanted: str, known: Iterable[str], what: str = "there are") -> str:
    """Return the end of an error about an unknown name: the likely one, and all that exist."""
    names = list(known)
    close = get_close_matches(wanted, names, n=1, cutoff=0.6)
    likely = f"did you mean {close[0]!r}? " if close else ""
    return f"{likely}{what} {', '.join(names) or 'none'}"
