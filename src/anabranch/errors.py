"""Every error that a user can meet, each with a sentence about what to do."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class AnabranchError(Exception):
    """The base of all errors that this library raises on purpose.

    Examples:
        >>> try:
        ...     readings.filter("volt > 0")
        ... except ab.AnabranchError as error:
        ...     print(type(error).__name__)
        FlowError
    """


class FlowError(AnabranchError):
    """A flow is wrong: an unknown column, a wrong type, a missing sink; or, as it runs, a type too narrow for a sum.

    Examples:
        >>> readings.key_by("sensr")
        Traceback (most recent call last):
            ...
        anabranch.errors.FlowError: key_by: no column 'sensr'; did you mean 'sensor'? there are sensor, ts, volts
    """


class SourceError(AnabranchError):
    """A source cannot be read: a missing directory, a file that vanished.

    Examples:
        >>> flow.read(ab.files("nowhere", schema="sensor bigint")).write(ab.console()).graph.check()
        Traceback (most recent call last):
            ...
        anabranch.errors.SourceError: ...
    """


class SinkError(AnabranchError):
    """A sink cannot be written.

    Examples:
        >>> _ = Path("taken").write_text("a file, no directory")
        >>> readings.write(ab.parquet("taken")).graph.check()
        Traceback (most recent call last):
            ...
        anabranch.errors.SinkError: ...
    """


class CheckpointError(AnabranchError):
    """A checkpoint does not fit: another flow, another format, offsets that differ.

    Examples:
        >>> flow.read_state("nothing-ran-here")
        Traceback (most recent call last):
            ...
        anabranch.errors.CheckpointError: ... has no committed batch
    """


class StateDamaged(CheckpointError):
    """A state file is missing or its checksum differs, and it could not be rebuilt.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
        >>> _ = flow.backfill("state", slots=1)
        >>> next(Path("state/state").rglob("*.arrow")).unlink()
        >>> try:
        ...     flow.read_state("state")
        ... except ab.StateDamaged:
        ...     print("roll back, or restore the file")
        roll back, or restore the file
    """


class Fenced(AnabranchError):
    """Another driver owns the checkpoint now; this one must stop.

    Examples:
        >>> issubclass(ab.Fenced, ab.AnabranchError)
        True
    """


class ControlError(AnabranchError):
    """A command did not reach a running flow: none runs there, no answer came, the channel is out of reach.

    Examples:
        >>> issubclass(ab.ControlError, ab.AnabranchError)
        True
    """


class EngineError(AnabranchError):
    """Spark cannot run the flow: Spark Connect, a missing setting, a job that failed too often.

    Examples:
        >>> issubclass(ab.EngineError, ab.AnabranchError)
        True
    """


def name_alternatives(wanted: str, known: Iterable[str], what: str = "there are") -> str:
    """Return the end of an error about an unknown name: the likely one, and all that exist."""
    names = list(known)
    close = get_close_matches(wanted, names, n=1, cutoff=0.6)
    likely = f"did you mean {close[0]!r}? " if close else ""
    return f"{likely}{what} {', '.join(names) or 'none'}"
