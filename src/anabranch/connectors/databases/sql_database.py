"""What SQL servers have in common as sinks: tables that are made or compared, and marks beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from anabranch.connectors.commit_markers import Mark
from anabranch.connectors.databases.addresses import Address
from anabranch.connectors.databases.quoting import Quoting
from anabranch.connectors.databases.staged_rows import is_nested
from anabranch.connectors.databases.tables import MARKS, FoundColumn, Table, check_found_columns, check_unique_keys
from anabranch.errors import SinkError

Form = tuple[str, tuple[str, ...]]
"""The type that a column is made with, and those that may hold it."""


class SqlDatabase(ABC):
    """An open connection; what is done since the last ``commit`` is one transaction."""

    product: ClassVar[str]
    home: ClassVar[str]
    """What tables lie in, as the product calls it."""
    quoting: ClassVar[Quoting]
    forms: ClassVar[Mapping[type[pl.DataType], Form]]
    decimal: ClassVar[str]
    """The type of decimal numbers."""
    nested: ClassVar[Form]
    """The form of lists and structs."""

    _connection: Any
    _address: Address

    @abstractmethod
    def __init__(self, url: str) -> None:
        """Connect; raise ``ServerAway`` if the server cannot be reached, ``SinkError`` if it refuses."""

    @classmethod
    @abstractmethod
    def check_url(cls, url: str) -> None:
        """Raise ``SinkError`` for a URL that cannot be one, or for want of a driver; asks no server."""

    @classmethod
    def check_schema(cls, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` for a column that has no form here."""
        for column, kind in schema.items():
            cls.form_of(column, kind)

    @classmethod
    def form_of(cls, column: str, kind: pl.DataType) -> Form:
        """Return the type that a column is made with, and those that may hold it."""
        if isinstance(kind, pl.Decimal):
            return f"{cls.decimal}({kind.precision}, {kind.scale})", (cls.decimal,)
        if is_nested(kind):
            return cls.nested
        form = cls.forms.get(kind.base_type())
        if form is None:
            msg = f"column {column!r} is {kind}, which {cls.product} has no type for; cast it before the sink"
            raise SinkError(msg)
        return form

    def marks_table(self, table: str) -> str:
        """Return the name of the table of marks, in the same schema or database as the table."""
        home = table.rpartition(".")[0]
        return f"{home}.{MARKS}" if home else MARKS

    @abstractmethod
    def prepare_marks(self, table: str) -> None:
        """Make the table of marks unless it is there."""

    def prepare_table(self, table: Table) -> None:
        """Make the table if it is absent; raise ``SinkError`` if the one that is there does not fit."""
        forms = {column: self.form_of(column, kind) for column, kind in table.columns.items()}
        wanted = {column: form for column, (form, _) in forms.items()}
        for key in table.keys:
            wanted[key] = self._as_key(wanted[key])
        if not self._exists(table.name):
            self._create(table, wanted)
            return
        found = self._find_columns(table.name)
        check_found_columns(table, found, {column: held for column, (_, held) in forms.items()}, wanted)
        check_unique_keys(table, self._find_unique_keys(table.name))

    def lock_mark(self, table: str) -> Mark | None:
        """Return a table's mark and keep others from changing it until the commit."""
        marks = self.quoting.path(self.marks_table(table))
        rows = self._run(f"SELECT flow, batch, epoch, store FROM {marks} WHERE target = %s FOR UPDATE", table)
        return Mark(*rows[0]) if rows else None

    @abstractmethod
    def write_mark(self, table: str, mark: Mark) -> None:
        """Write a table's mark."""

    @abstractmethod
    def write_rows(self, table: Table, rows: pl.DataFrame) -> None:
        """Add rows, or replace those of the same keys."""

    def delete_after(self, table: str, batch_column: str, after_batch: int) -> None:
        """Delete the rows that later batches wrote last."""
        target, column = self.quoting.path(table), self.quoting.name(batch_column)
        self._run(f"DELETE FROM {target} WHERE {column} > %s", after_batch)

    def commit(self) -> None:
        """Make it last."""
        self._connection.commit()

    @abstractmethod
    def close(self) -> None:
        """Close it; what was not committed is undone."""

    @abstractmethod
    def explain(self, error: BaseException) -> str | None:
        """Return what the database said, without secrets; None if the error is none of its own."""

    @abstractmethod
    def is_away(self, error: BaseException) -> bool:
        """Say whether the same may work later."""

    def advise(self, error: BaseException, table: str) -> str:
        """Say what a user can do about an error."""
        if self._is_denied(error):
            return (
                f"grant the user SELECT, INSERT, UPDATE and DELETE on {table} and {self.marks_table(table)}, "
                f"and CREATE on their {self.home} if they are to be made"
            )
        return f"change the table {table} so that it takes these rows, and start again"

    # -- inside ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""

    @abstractmethod
    def _exists(self, table: str) -> bool: ...

    @abstractmethod
    def _create(self, table: Table, wanted: Mapping[str, str]) -> None:
        """Make a table with columns of these types.

        Its keys are unique, but no primary key: that would refuse nulls, which may stand in a key all the same.
        """

    @abstractmethod
    def _find_columns(self, table: str) -> list[FoundColumn]: ...

    @abstractmethod
    def _find_unique_keys(self, table: str) -> Sequence[Collection[str]]: ...

    @abstractmethod
    def _is_denied(self, error: BaseException) -> bool:
        """Say whether the user has not the right to do it."""

    def _as_key(self, form: str) -> str:
        """Return a type that an index can hold."""
        return form

    def _refused(self, reason: str) -> SinkError:
        where = f"{self._address.host}/{self._address.database}"
        return SinkError(
            f"{self.product} at {where} refuses to connect: {reason}; correct user, password, database or "
            "certificates in the URL"
        )
