"""PostgreSQL and MariaDB as stores: the sinks' connections, which can also be asked what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from anabranch.connectors.databases.mariadb_database import MariadbDatabase
from anabranch.connectors.databases.postgres_database import PostgresDatabase
from anabranch.connectors.databases.tables import Table
from anabranch.connectors.global_stores.stores import ID, PARTIALS

_IDS_A_STATEMENT = 2_000


class PostgresStore(PostgresDatabase):
    """One connection to PostgreSQL."""

    def fetch_partials(self, table: Table, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the partial results of those of the rows that there are, by ID."""
        statement = f"SELECT {ID}, {PARTIALS} FROM {self.quoting.path(table.name)} WHERE {ID} = ANY(%s)"
        return {name: bytes(partials) for name, partials in self._run(statement, list(ids))}

    def read_rows(self, table: str) -> pl.DataFrame:
        """Return all rows, without ID and PARTIALS; no columns if there is no such table."""
        if not self._exists(table):
            return pl.DataFrame()
        cursor = self._connection.execute(f"SELECT * FROM {self.quoting.path(table)}")
        return _as_frame([column.name for column in cursor.description or ()], cursor.fetchall())


class MariadbStore(MariadbDatabase):
    """One connection to MariaDB or MySQL."""

    def fetch_partials(self, table: Table, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the partial results of those of the rows that there are, by ID."""
        found: dict[str, bytes] = {}
        name = self.quoting.path(table.name)
        for start in range(0, len(ids), _IDS_A_STATEMENT):
            some = ids[start : start + _IDS_A_STATEMENT]
            holes = ", ".join(["%s"] * len(some))
            found |= dict(self._run(f"SELECT {ID}, {PARTIALS} FROM {name} WHERE {ID} IN ({holes})", *some))
        return found

    def read_rows(self, table: str) -> pl.DataFrame:
        """Return all rows, without ID and PARTIALS; no columns if there is no such table."""
        if not self._exists(table):
            return pl.DataFrame()
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.quoting.path(table)}")
            return _as_frame([column[0] for column in cursor.description], list(cursor.fetchall()))


def _as_frame(names: list[str], rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    return frame.drop(ID, PARTIALS, strict=False)
