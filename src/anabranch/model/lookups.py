"""Tables that a stream looks its rows up in: what connectors implement and the engine caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, get_args, runtime_checkable

import polars as pl

MissingPolicy = Literal["null", "drop", "reject"]
MISSING_POLICIES: tuple[str, ...] = get_args(MissingPolicy)


class LookupTable(Protocol):
    """A table with at most one row a key. Instances are pickled to tasks: keep them small and plain.

    Examples:
        >>> class Squares:
        ...     label = "squares"
        ...
        ...     def known_columns(self):
        ...         return {"square": pl.Int64()}
        ...
        ...     def check(self, keys, columns):
        ...         pass
        ...
        ...     def fetch(self, keys, columns):
        ...         return keys.with_columns(square=pl.first() ** 2)
        >>> collect(readings.lookup(Squares(), on="sensor").select("sensor", "square").distinct("sensor"))
        [(1, 1), (2, 4)]
    """

    @property
    def label(self) -> str:
        """What a person reads in ``explain``; never a password."""
        ...

    def known_columns(self) -> Mapping[str, pl.DataType] | None:
        """Return the columns with their types, or None where only the user can say."""
        ...

    def check(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None:
        """Raise ``SourceError`` or ``FlowError`` if it cannot work (before the first batch)."""
        ...

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Return the keys that the table has, with these columns, in any order; keys come without nulls, each once.

        ``ConnectionError`` says that the server is out of reach: the caller waits and asks again.
        """
        ...


@runtime_checkable
class WholeTable(Protocol):
    """A table that is small enough to be had as a whole: then keys are not fetched one by one."""

    def load(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Return all rows: key columns, then these columns."""
        ...
