"""Tables of SQL databases: as a sink wants them, as they are found, and how both are compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.errors import SinkError

MARKS = "anabranch_commits"
"""The table of marks; it lies beside the results, so that both change in one transaction."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a sink wants it."""

    name: str
    columns: Mapping[str, pl.DataType]
    keys: tuple[str, ...]
    """Columns that tell rows apart; none if rows are only added."""

    @property
    def values(self) -> list[str]:
        """The columns that a later row replaces."""
        return [column for column in self.columns if column not in self.keys]


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column that a table has."""

    name: str
    kind: str
    """As the database calls it."""
    required: bool
    """Whether a row cannot do without a value for it."""


def check_found_columns(
    table: Table, found: Sequence[FoundColumn], fitting: Mapping[str, Collection[str]], wanted: Mapping[str, str]
) -> None:
    """Raise ``SinkError`` unless a table has fitting columns for all results and needs no others.

    ``fitting`` has the types that may hold each column, ``wanted`` the type that it would be made with.
    """
    by_name = {column.name: column for column in found}
    missing = [column for column in table.columns if column not in by_name]
    if missing:
        statements = ", ".join(f"ADD COLUMN {column} {wanted[column]}" for column in missing)
        msg = (
            f"the table {table.name} has no column {', '.join(map(repr, missing))}; it has {', '.join(by_name)}; "
            f"ALTER TABLE {table.name} {statements}, or leave them out by select()"
        )
        raise SinkError(msg)
    for column, kind in table.columns.items():
        held = by_name[column].kind
        if fitting[column] and held not in fitting[column]:
            msg = (
                f"column {column!r} of the table {table.name} is {held}, the results have {kind}; "
                f"make it {wanted[column]}, or cast the results"
            )
            raise SinkError(msg)
    needed = [column.name for column in found if column.required and column.name not in table.columns]
    if needed:
        msg = (
            f"the table {table.name} wants values for {', '.join(map(repr, needed))}, which the results do not have; "
            f"give them a default, or allow nulls"
        )
        raise SinkError(msg)


def check_unique_keys(table: Table, unique: Sequence[Collection[str]]) -> None:
    """Raise ``SinkError`` unless the keys that rows are replaced by are unique in the table."""
    if table.keys and set(table.keys) not in [set(columns) for columns in unique]:
        keys = ", ".join(table.keys)
        msg = (
            f"the table {table.name} has no unique index on ({keys}), so that rows cannot be replaced by key; "
            f"CREATE UNIQUE INDEX ON {table.name} ({keys}), or use mode='append'"
        )
        raise SinkError(msg)
