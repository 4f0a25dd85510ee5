"""Sources that tell others how far they are taken in: for people and their tools, never for going on after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


class PositionTeller(Protocol):
    """Tells of one source; whoever is told may be out of reach, and the flow goes on."""

    def tell(self, position: dict[str, Any]) -> None:
        """Tell of a position that is committed and published, soon, in the background; of two, the later counts."""
        ...

    def close(self) -> None:
        """Tell what is left, unless that takes long."""
        ...


@runtime_checkable
class TellsPositions(Protocol):
    """A source that may want its positions told."""

    def open_teller(self) -> PositionTeller | None:
        """Return who tells of it, None if nobody is to be told."""
        ...


class ReadPositions:
    """The tellers of a flow's sources, by the sources' numbers in the checkpoint."""

    def __init__(self, sources: Mapping[int, object]) -> None:
        made = {
            number: source.open_teller() for number, source in sources.items() if isinstance(source, TellsPositions)
        }
        self._tellers = {str(number): teller for number, teller in made.items() if teller is not None}

    @property
    def are_told(self) -> bool:
        """Whether any source wants its positions told."""
        return bool(self._tellers)

    def tell(self, positions: Mapping[str, dict[str, Any]]) -> None:
        """Tell of the positions that an entry of the split log has."""
        for number, teller in self._tellers.items():
            if number in positions:
                teller.tell(positions[number])

    def close(self) -> None:
        """Tell what is left, unless that takes long."""
        for teller in self._tellers.values():
            teller.close()
