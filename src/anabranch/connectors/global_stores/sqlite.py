"""SQLite: the store that needs no server, one file on the driver's host."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.connectors.commit_markers import Mark
from anabranch.connectors.databases.quoting import DOUBLE_QUOTES
from anabranch.connectors.databases.tables import MARKS, Table
from anabranch.connectors.global_stores.shown_values import as_meant, as_shown, form_of
from anabranch.connectors.global_stores.stores import ID, PARTIALS
from anabranch.errors import SinkError

SCHEME = "sqlite:///"
BUSY_SECONDS = 30.0
_IDS_A_STATEMENT = 500
_quote = DOUBLE_QUOTES.name


class SqliteStore:
    """One connection to a SQLite file."""

    def __init__(self, url: str) -> None:
        self._path = path_of(url)
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        # Transactions begin where it is said: Python's own would begin too late, at the first change. A driver's
        # batches come in other threads than its start, one at a time.
        self._connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    def prepare_marks(self, table: str) -> None:
        """Make the table of marks unless it is there."""
        self._begin()
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {MARKS} (target TEXT PRIMARY KEY, flow TEXT NOT NULL, batch INTEGER NOT NULL, "
            "epoch INTEGER NOT NULL, store TEXT NOT NULL)"
        )

    def prepare_table(self, table: Table) -> None:
        """Make the table if it is absent; raise ``SinkError`` if the one that is there has other columns."""
        self._begin()
        found = self._columns_of(table.name)
        wanted = {column: form_of(kind) for column, kind in table.columns.items()}
        if not found:
            columns = ", ".join(f"{_quote(column)} {form}" for column, form in wanted.items())
            self._connection.execute(f"CREATE TABLE {_quote(table.name)} ({columns}, PRIMARY KEY ({_quote(ID)}))")
        elif found != wanted:
            was, now = (", ".join(f"{name} {form}" for name, form in forms.items()) for forms in (found, wanted))
            msg = f"the table {table.name} in {self._path} has the columns {was}; the results have {now}; name another"
            raise SinkError(msg)

    def lock_mark(self, table: str) -> Mark | None:
        """Return a table's mark; the file is this connection's to write until the commit."""
        self._begin()
        rows = self._connection.execute(f"SELECT flow, batch, epoch, store FROM {MARKS} WHERE target = ?", (table,))
        found = rows.fetchone()
        return None if found is None else Mark(*found)

    def write_mark(self, table: str, mark: Mark) -> None:
        """Write a table's mark."""
        self._connection.execute(
            f"INSERT OR REPLACE INTO {MARKS} (target, flow, batch, epoch, store) VALUES (?, ?, ?, ?, ?)",
            (table, mark.flow, mark.batch, mark.epoch, mark.store),
        )

    def fetch_partials(self, table: Table, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the partial results of those of the rows that there are, by ID."""
        found: dict[str, bytes] = {}
        for start in range(0, len(ids), _IDS_A_STATEMENT):
            some = ids[start : start + _IDS_A_STATEMENT]
            holes = ", ".join("?" * len(some))
            statement = f"SELECT {ID}, {PARTIALS} FROM {_quote(table.name)} WHERE {ID} IN ({holes})"
            found |= dict(self._connection.execute(statement, tuple(some)).fetchall())
        return found

    def write_rows(self, table: Table, rows: pl.DataFrame) -> None:
        """Add rows, or replace those of the same ID."""
        names = DOUBLE_QUOTES.names(rows.columns)
        holes = ", ".join("?" * rows.width)
        statement = f"INSERT OR REPLACE INTO {_quote(table.name)} ({names}) VALUES ({holes})"
        shown = rows.select(as_shown(name, dtype) for name, dtype in rows.schema.items())
        self._connection.executemany(statement, shown.iter_rows())

    def read_rows(self, table: str) -> pl.DataFrame:
        """Return all rows; what SQLite has no type for is told by the declared one."""
        columns = {name: form for name, form in self._columns_of(table).items() if name not in (ID, PARTIALS)}
        if not columns:
            return pl.DataFrame()
        names = DOUBLE_QUOTES.names(columns)
        found = self._connection.execute(f"SELECT {names} FROM {_quote(table)}").fetchall()
        rows = pl.DataFrame(found, schema=list(columns), orient="row", infer_schema_length=None)
        return rows.select(as_meant(name, form) for name, form in columns.items())

    def commit(self) -> None:
        """Make it last."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close it; what was not committed is undone."""
        # Closing alone would leave the file locked for as long as anybody, be it a traceback, holds a cursor.
        with contextlib.suppress(sqlite3.Error):
            self._connection.rollback()
        self._connection.close()

    def explain(self, error: BaseException) -> str | None:
        """Return what SQLite said; None if the error is none of its own."""
        return str(error) if isinstance(error, sqlite3.Error) else None

    def is_away(self, error: BaseException) -> bool:
        """Say whether another writer was in the way."""
        return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))

    def advise(self, error: BaseException, table: str) -> str:
        """Say what a user can do about an error."""
        return f"see that {self._path} is a SQLite file that can be written, and start again"

    def _begin(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN IMMEDIATE")

    def _columns_of(self, table: str) -> dict[str, str]:
        rows = self._connection.execute(f"PRAGMA table_info({_quote(table)})").fetchall()
        return {name: form for _, name, form, *_ in rows}


def path_of(url: str) -> str:
    """Return the file of a ``sqlite:///`` URL, or of a plain path."""
    return os.path.abspath(url.removeprefix(SCHEME) if url.startswith(SCHEME) else url)
