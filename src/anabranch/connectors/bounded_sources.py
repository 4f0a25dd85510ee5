"""Runs that end need sources that end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class MayBeEndless(Protocol):
    """A source that may have no end to run to. One without this member ends: it holds what is there now."""

    def check_end(self) -> None:
        """Raise ``FlowError``, saying what to set, if rows would come for ever."""
        ...


def check_ends(sources: Iterable[object]) -> None:
    """Raise ``FlowError`` if a run to the end of these sources would never end."""
    for source in sources:
        if isinstance(source, MayBeEndless):
            source.check_end()
