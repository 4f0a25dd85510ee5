"""What a store must offer so that partial results can meet in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import polars as pl

from anabranch.connectors.commit_markers import Mark
from anabranch.connectors.databases.tables import Table
from anabranch.connectors.databases.transactions import Connection

ID = "anabranch_id"
"""A short name of the row's key and window: rows are found and replaced by it, whatever the store compares texts by."""
PARTIALS = "anabranch_partials"
"""The partial results as bytes: what the values are made from, and what later ones are merged with."""


class GlobalStore(Connection, Protocol):
    """An open connection, with what is asked of it beside its transactions."""

    def prepare_marks(self, table: str) -> None:
        """Make what holds the marks unless it is there."""
        ...

    def prepare_table(self, table: Table) -> None:
        """Make the table if it is absent; raise ``SinkError`` if the one that is there does not fit."""
        ...

    def lock_mark(self, table: str) -> Mark | None:
        """Return a table's mark, and see that nobody else changes it before the commit, or that the commit fails."""
        ...

    def write_mark(self, table: str, mark: Mark) -> None: ...

    def fetch_partials(self, table: Table, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the partial results of those of the rows that there are, by ID."""
        ...

    def write_rows(self, table: Table, rows: pl.DataFrame) -> None:
        """Add rows, or replace those of the same ID."""
        ...

    def read_rows(self, table: str) -> pl.DataFrame:
        """Return all rows, without ID and PARTIALS; no columns if there is no such table."""
        ...
