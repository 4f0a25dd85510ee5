"""Names → classes, for what users can add to."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Generic, TypeVar

from anabranch.model import RouteError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of thing; an unknown one is refused with the names that exist."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters what it decorates under a name.

        The same name again is refused unless it comes from the same place, as when a notebook cell runs twice.
        """

        def enter(entry: T) -> T:
            known = self._entries.get(name)
            if known is not None and _place_of(known) != _place_of(entry):
                msg = f"the {self._noun} {name!r} is taken by {_place_of(known)}; choose another name"
                raise RouteError(msg)
            self._entries[name] = entry
            return entry

        return enter

    def find(self, name: str) -> T:
        """Return the entry of a name."""
        if name not in self._entries:
            near = get_close_matches(name, self._entries, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            msg = f"there is no {self._noun} {name!r}{hint}; there are: {', '.join(self.names())}"
            raise RouteError(msg)
        return self._entries[name]

    def names(self) -> tuple[str, ...]:
        """Return all names, in the order in which they were entered."""
        return tuple(self._entries)

    def name_of(self, entry: object) -> str:
        """Return the name under which a class was entered."""
        for name, known in self._entries.items():
            if known is entry:
                return name
        msg = f"{_place_of(entry)} is not registered as a {self._noun}; there are: {', '.join(self.names())}"
        raise RouteError(msg)


def _place_of(entry: object) -> str:
    return f"{getattr(entry, '__module__', '?')}.{getattr(entry, '__qualname__', type(entry).__qualname__)}"
