"""What a worker process knows of a table: rows by key, with the keys that the table does not have."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import polars as pl

from anabranch.connectors.lookups.keys import as_keys, check_key_types, refuse_repeated
from anabranch.errors import SourceError
from anabranch.model.lookups import LookupTable, WholeTable

FOUND = "__anabranch_found"
"""True beside a row that the table has; false or null where it has none."""
_FETCHED_AT = "__anabranch_fetched_at"


class TableCache:
    """Joins frames with a table; keys that are not known yet are fetched in bulk, once.

    A key's row stays as it was first fetched until it expires, or until there are more than ``most_rows`` keys: then
    those that were fetched first are forgotten. Keys that the table does not have are remembered just so.
    """

    def __init__(
        self,
        table: LookupTable,
        keys: Mapping[str, pl.DataType],
        columns: Mapping[str, pl.DataType],
        most_rows: int,
        expires_seconds: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._keys = dict(keys)
        self._columns = dict(columns)
        self._most_rows = most_rows
        self._expires_seconds = expires_seconds
        self._monotonic = monotonic
        self._known = pl.DataFrame(schema={**keys, **columns, FOUND: pl.Boolean(), _FETCHED_AT: pl.Float64()})
        self._oldest: float | None = None

    def join(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows in their order, with the table's columns and ``FOUND`` behind their own."""
        self._forget_expired()
        if isinstance(self._table, WholeTable):
            self._load_whole(self._table)
            return self._beside(frame, self._known)
        joined = self._beside(frame, self._known)
        unknown = joined.get_column(FOUND).is_null()
        if not unknown.any():
            return joined
        wanted = frame.filter(unknown).select(list(self._keys)).drop_nulls().unique(maintain_order=True)
        if wanted.height == 0:
            return joined
        fetched = self._conform(self._table.fetch(wanted, self._columns))
        fresh = self._stamp(
            wanted.join(fetched, on=list(self._keys), how="left", maintain_order="left").with_columns(
                pl.col(FOUND).fill_null(value=False)
            )
        )
        # More keys than the cache may keep are joined all the same, and forgotten afterwards.
        known = pl.concat([self._known, fresh])
        self._known = known.tail(self._most_rows)
        self._oldest = self._known.get_column(_FETCHED_AT)[0]
        return self._beside(frame, known)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _beside(self, frame: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
        return frame.join(known.drop(_FETCHED_AT), on=list(self._keys), how="left", maintain_order="left")

    def _load_whole(self, table: WholeTable) -> None:
        if self._oldest is not None:
            return
        self._known = self._stamp(self._conform(table.load(self._keys, self._columns)))
        self._oldest = self._monotonic()

    def _conform(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the table's rows in the types that were declared, each key once, marked as found."""
        try:
            rows = rows.select(*self._keys, *(pl.col(name).cast(dtype) for name, dtype in self._columns.items()))
        except pl.exceptions.PolarsError as error:
            found = ", ".join(f"{name} {dtype}" for name, dtype in rows.schema.items())
            msg = (
                f"{self._table.label} does not have what lookup() declares: {str(error).splitlines()[0]}; "
                f"it gave {found}; declare the columns as they are, and convert them by with_columns()"
            )
            raise SourceError(msg) from error
        check_key_types(self._table.label, self._keys, rows.schema)
        rows = as_keys(rows, self._keys)
        refuse_repeated(self._table.label, rows, self._keys)
        return rows.with_columns(pl.lit(value=True).alias(FOUND))

    def _stamp(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(pl.lit(self._monotonic(), pl.Float64).alias(_FETCHED_AT))

    def _forget_expired(self) -> None:
        if self._expires_seconds is None or self._oldest is None:
            return
        expired_until = self._monotonic() - self._expires_seconds
        if self._oldest <= expired_until:
            self._known = self._known.filter(pl.col(_FETCHED_AT) > expired_until)
            self._oldest = self._known.get_column(_FETCHED_AT)[0] if self._known.height else None
