"""Public names that were changed: for one version, the old one still works and says what to use."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

GivenT = ParamSpec("GivenT")
ReturnedT = TypeVar("ReturnedT")
ClassT = TypeVar("ClassT", bound=type)

_told: set[str] = set()


class RenamedWarning(DeprecationWarning):
    """Something is called by a name that the next version does without."""


def tell_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn, once in a process, that something has another name now."""
    if old not in _told:
        _told.add(old)
        msg = f"{old} is called {new} now; the old name works in this version, and in no later one"
        warnings.warn(msg, RenamedWarning, stacklevel=stacklevel)


def take_renamed(owner: str, given: Mapping[str, Any], new_by_old: Mapping[str, str]) -> dict[str, Any]:
    """Return keywords under their new names; raise ``TypeError`` if one is given under both."""
    taken = dict(given)
    for old, new in new_by_old.items():
        if old not in taken:
            continue
        if new in taken:
            msg = f"{owner}: {old} is called {new} now, and both are given; leave {old} out"
            raise TypeError(msg)
        tell_renamed(f"{owner}: {old}", new, stacklevel=4)
        taken[new] = taken.pop(old)
    return taken


def renamed_keywords(
    owner: str, **new_by_old: str
) -> Callable[[Callable[GivenT, ReturnedT]], Callable[GivenT, ReturnedT]]:
    """Let a function take keywords by their old names, too; type checkers know the new ones only."""

    def wrap(function: Callable[GivenT, ReturnedT]) -> Callable[GivenT, ReturnedT]:
        @functools.wraps(function)
        def taking_both(*args: GivenT.args, **given: GivenT.kwargs) -> ReturnedT:
            return function(*args, **take_renamed(owner, given, new_by_old))

        return taking_both

    return wrap


def renamed_fields(**new_by_old: str) -> Callable[[ClassT], ClassT]:
    """Let a dataclass be made with fields by their old names, too."""

    def wrap(made: ClassT) -> ClassT:
        made.__init__ = renamed_keywords(made.__name__, **new_by_old)(made.__init__)  # type: ignore[misc]
        return made

    return wrap
