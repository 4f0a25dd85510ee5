"""What is to change about executors at the next boundary, until somebody takes it."""

from __future__ import annotations

from anabranch.control.decisions import ExecutorChange


class NextChange:
    """Holds one change; that executors are held is told once, however often it is decided in a row."""

    def __init__(self) -> None:
        self._change: ExecutorChange | None = None
        self._holds = False

    @property
    def is_due(self) -> bool:
        """Whether there is something to take."""
        return self._change is not None

    def put(self, change: ExecutorChange | None) -> None:
        """Let this be what changes; None: nothing does."""
        is_hold = change is not None and bool(change.hold)
        self._change = None if is_hold and self._holds else change
        self._holds = is_hold

    def take(self) -> ExecutorChange | None:
        """Return what is to change, once."""
        change, self._change = self._change, None
        return change
