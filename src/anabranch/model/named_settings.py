"""Settings that are given by name, as flow files give them: which are known, and numbers that may be texts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from anabranch.errors import name_alternatives
from anabranch.model.loads import LoadError


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise ``LoadError`` if one is no setting, with the likely one and all that exist."""
    for name in given:
        if name not in known:
            msg = f"there is no setting {name!r}; {name_alternatives(name, known)}"
            raise LoadError(msg)


def read_number(name: str, value: object, *, is_whole: bool) -> float:
    """Return a number, or raise ``LoadError``."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or (is_whole and not number.is_integer()):
        msg = f"{name} is {value!r}; give a {'whole ' if is_whole else ''}number"
        raise LoadError(msg)
    return int(number) if is_whole else number
