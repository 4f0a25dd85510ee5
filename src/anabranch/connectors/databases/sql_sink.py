"""Tables of SQL databases: a batch's rows and its number in one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from anabranch.connectors.addresses import show_address
from anabranch.connectors.commit_markers import (
    Mark,
    OnLoss,
    Place,
    Publication,
    check_on_loss,
    claim,
    is_due,
    next_mark,
)
from anabranch.connectors.databases.addresses import fill_in
from anabranch.connectors.databases.mariadb_database import MariadbDatabase
from anabranch.connectors.databases.postgres_database import PostgresDatabase
from anabranch.connectors.databases.sql_database import SqlDatabase
from anabranch.connectors.databases.staged_rows import (
    SUFFIX,
    Mode,
    StagedByTasks,
    check_columns,
    choose_mode,
    describe_mode,
    last_of_each_key,
)
from anabranch.connectors.databases.tables import Table
from anabranch.connectors.databases.transactions import HeldConnection
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.retry import DEFAULT_PATIENCE_SECONDS, at_start, insist
from anabranch.errors import SinkError
from anabranch.model import StagedFile

_DATABASES: dict[str, type[SqlDatabase]] = {"postgres": PostgresDatabase, "mariadb": MariadbDatabase}
_NAME = re.compile(r"[\w$-]+")
T = TypeVar("T")


@dataclass(slots=True)
class _Session:
    """What the driver holds of a sink: its connection, and what it has seen."""

    schema: Mapping[str, pl.DataType] | None = None
    held: HeldConnection[SqlDatabase] = field(default_factory=HeldConnection)
    store: str | None = None


@dataclass(frozen=True, slots=True)
class SqlSink(StagedByTasks):
    """Rows in a table of a database; made by ``postgres`` and ``mariadb``."""

    kind: str
    url: str = field(repr=False)
    table: str
    keys: tuple[str, ...]
    mode: Mode
    batch_column: str | None
    on_loss: OnLoss
    patience_seconds: float
    suffix: str = SUFFIX
    _session: _Session = field(default_factory=_Session, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name the database and the table."""
        return f"{self.kind} {show_address(self.url)} {self.table} ({describe_mode(self.mode, self.keys)})"

    @property
    def place(self) -> str:
        """Name the database and the table."""
        return f"{show_address(self.url)} {self.table}"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if keys are no columns or a column has no form in the database; asks no server."""
        check_columns(schema, self.keys, f"keys of {self.label}")
        if self.batch_column is not None and self.batch_column in schema:
            msg = (
                f"batch_column of {self.label} is {self.batch_column!r}, which the results have already; choose another"
            )
            raise SinkError(msg)
        _DATABASES[self.kind].check_schema(schema)
        self._session.schema = dict(schema)

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the table for this flow: make it if it is absent, compare it if it is there."""
        insist(self.place, at_start(self.patience_seconds), lambda: self._in_transaction(self._claim, flow, last_batch))

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Write the batch's rows and its number in one transaction; a batch that is there already is left alone."""
        place, given = self._place(str(context["flow"])), Publication.of(batch, context)
        insist(self.place, self.patience_seconds, lambda: self._in_transaction(self._publish, place, given, staged))

    def retract(self, after_batch: int) -> None:
        """Delete rows of later batches by ``batch_column``; raise ``SinkError`` where there is none."""
        insist(self.place, at_start(self.patience_seconds), lambda: self._in_transaction(self._retract, after_batch))
        if self.batch_column is None:
            msg = (
                f"rows of batches after {after_batch} stay in {self.table} until they are overwritten by key; "
                "with batch_column='batch' they could be deleted"
            )
            raise SinkError(msg)

    def close(self) -> None:
        """Give the connection back."""
        self._session.held.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _place(self, flow: str) -> Place:
        return Place(self.place, flow, self.on_loss)

    def _described(self, schema: Mapping[str, pl.DataType]) -> Table:
        extra = {} if self.batch_column is None else {self.batch_column: pl.Int64()}
        return Table(self.table, {**schema, **extra}, self.keys if self.mode == "upsert" else ())

    def _in_transaction(self, act: Callable[..., T], *arguments: Any) -> T:
        return self._session.held.run(
            lambda: _DATABASES[self.kind](fill_in(self.url)),
            lambda database: act(database, *arguments),
            self.place,
            self.table,
        )

    def _claim(self, database: SqlDatabase, flow: str, last_batch: int | None) -> None:
        database.prepare_marks(self.table)
        if self._session.schema is not None:
            database.prepare_table(self._described(self._session.schema))
        mark = database.lock_mark(self.table)
        wanted = claim(mark, self._place(flow), last_batch)
        if wanted is not None:
            database.write_mark(self.table, wanted)
        self._session.store = (wanted or mark or _NO_MARK).store

    def _publish(
        self, database: SqlDatabase, place: Place, given: Publication, staged: Sequence[tuple[StagedFile, str]]
    ) -> None:
        mark = database.lock_mark(self.table)
        if not is_due(mark, place, given, self._session.store):
            return
        frame = read_staged(staged)
        if frame is not None:
            rows = last_of_each_key(frame, self.keys if self.mode == "upsert" else ())
            if self.batch_column is not None:
                rows = rows.with_columns(pl.lit(given.batch, pl.Int64).alias(self.batch_column))
            database.write_rows(self._described(frame.schema), rows)
        wanted = next_mark(mark, place, given)
        database.write_mark(self.table, wanted)
        self._session.store = wanted.store

    def _retract(self, database: SqlDatabase, after_batch: int) -> None:
        if self.batch_column is None and self.mode == "append":
            msg = (
                f"{self.label} does not say which rows batches after {after_batch} wrote: give it a batch_column next "
                f"time; now delete them by hand, and set the batch of {self.table!r} in "
                f"{database.marks_table(self.table)} to {after_batch}"
            )
            raise SinkError(msg)
        mark = database.lock_mark(self.table)
        if self.batch_column is not None:
            database.delete_after(self.table, self.batch_column, after_batch)
        if mark is not None and mark.batch > after_batch:
            database.write_mark(self.table, Mark(mark.flow, after_batch, mark.epoch, mark.store))


_NO_MARK = Mark("", -1, 0, "")


def postgres(
    url: str,
    table: str,
    *,
    keys: Sequence[str] = (),
    mode: Mode | None = None,
    batch_column: str | None = None,
    on_loss: OnLoss = "stop",
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> SqlSink:
    """Write results into a table of PostgreSQL, exactly once: rows and batch number in one transaction.

    With ``keys`` a later row of a key replaces the earlier one. The table is made if it is absent. The URL is
    ``postgresql://user:password@host/database``; ``${NAME}`` in it is an environment variable of the driver.

    Examples:
        >>> ab.postgres("postgresql://flows:${PGPASSWORD}@db/results", "lowest", keys=["sensor"]).label
        'postgres postgresql://db/results lowest (upsert by sensor)'
    """
    return _make("postgres", url, table, keys, mode, batch_column, on_loss, patience_seconds)


def mariadb(
    url: str,
    table: str,
    *,
    keys: Sequence[str] = (),
    mode: Mode | None = None,
    batch_column: str | None = None,
    on_loss: OnLoss = "stop",
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> SqlSink:
    """Write results into a table of MariaDB or MySQL, exactly once: rows and batch number in one transaction.

    With ``keys`` a later row of a key replaces the earlier one. The table is made if it is absent. The URL is
    ``mariadb://user:password@host/database``; ``${NAME}`` in it is an environment variable of the driver.

    Examples:
        >>> ab.mariadb("mariadb://flows:${DB_SECRET}@db/results", "lowest").label
        'mariadb mariadb://db/results lowest (append)'
    """
    return _make("mariadb", url, table, keys, mode, batch_column, on_loss, patience_seconds)


def _make(
    kind: str,
    url: str,
    table: str,
    keys: Sequence[str],
    mode: Mode | None,
    batch_column: str | None,
    on_loss: OnLoss,
    patience_seconds: float,
) -> SqlSink:
    names, chosen = choose_mode(kind, keys, mode)
    if chosen == "upsert" and not names:
        msg = f"upsert into {table} needs keys, such as keys=('sensor', 'window_start'); without, use mode='append'"
        raise SinkError(msg)
    parts = table.split(".")
    if len(parts) > 2 or not all(_NAME.fullmatch(part) for part in parts):
        msg = f"{table!r} is no table; give a name, or schema.name"
        raise SinkError(msg)
    if batch_column is not None and not _NAME.fullmatch(batch_column):
        msg = f"{batch_column!r} is no name for a batch_column; use letters, digits and _"
        raise SinkError(msg)
    _DATABASES[kind].check_url(url)
    return SqlSink(kind, url, table, names, chosen, batch_column, check_on_loss(on_loss), patience_seconds)
