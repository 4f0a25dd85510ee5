"""Every error that a user can meet, each with a sentence about what to do."""

from __future__ import annotations


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
