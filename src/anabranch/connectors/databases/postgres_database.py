"""PostgreSQL by psycopg: rows come in by COPY, and are merged by key from a temporary table."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from anabranch.connectors.commit_markers import Mark
from anabranch.connectors.databases.addresses import read_address
from anabranch.connectors.databases.quoting import DOUBLE_QUOTES, Quoting
from anabranch.connectors.databases.sql_database import Form, SqlDatabase
from anabranch.connectors.databases.staged_rows import is_nested, json_texts
from anabranch.connectors.databases.tables import FoundColumn, Table
from anabranch.connectors.extras import import_extra
from anabranch.connectors.retry import ServerAway
from anabranch.errors import SinkError

EXAMPLE = "postgresql://user:password@host:5432/database"
CONNECT_SECONDS = 10
STAGED = "anabranch_staged"
COPY_CHUNK_BYTES = 1 << 20

_TEXTS = ("text", "character varying", "character", "citext", "uuid", "json", "jsonb", "inet", "USER-DEFINED")
_WHOLE = ("smallint", "integer", "bigint", "numeric")
_FORMS: dict[type[pl.DataType], Form] = {
    pl.Boolean: ("boolean", ("boolean",)),
    pl.Int8: ("smallint", _WHOLE),
    pl.Int16: ("smallint", _WHOLE),
    pl.Int32: ("integer", _WHOLE[1:]),
    pl.Int64: ("bigint", _WHOLE[2:]),
    pl.UInt8: ("smallint", _WHOLE),
    pl.UInt16: ("integer", _WHOLE[1:]),
    pl.UInt32: ("bigint", _WHOLE[2:]),
    pl.UInt64: ("numeric(20, 0)", ("numeric",)),
    pl.Int128: ("numeric(39, 0)", ("numeric",)),
    pl.Float32: ("real", ("real", "double precision", "numeric")),
    pl.Float64: ("double precision", ("double precision", "numeric")),
    pl.String: ("text", _TEXTS),
    pl.Categorical: ("text", _TEXTS),
    pl.Enum: ("text", _TEXTS),
    pl.Null: ("text", ()),
    pl.Binary: ("bytea", ("bytea",)),
    pl.Date: ("date", ("date", "timestamp without time zone", "timestamp with time zone")),
    pl.Time: ("time", ("time without time zone",)),
    pl.Duration: ("interval", ("interval",)),
}
_ZERO_IN_JSON, _NO_ZERO = r"((?:^|[^\\])(?:\\\\)*)\\u0000", "${1}\\ufffd"
"""The letter with the number 0 as JSON writes it: behind an even number of backslashes."""
_AWAY_STATES = ("08", "40", "53", "55", "57")
"""Connection lost, conflict with another transaction, out of resources, locked, server shutting down or starting."""
_READ_ONLY = "25006"
"""What a replica says until it is made the primary."""
_WRONG_AT_CONNECT = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied",
    "no password",
    "certificate",
    "does not support SSL",
)


class PostgresDatabase(SqlDatabase):
    """One connection to PostgreSQL."""

    product: ClassVar[str] = "PostgreSQL"
    home: ClassVar[str] = "schema"
    quoting: ClassVar[Quoting] = DOUBLE_QUOTES
    forms: ClassVar[Mapping[type[pl.DataType], Form]] = _FORMS
    decimal: ClassVar[str] = "numeric"
    nested: ClassVar[Form] = ("jsonb", ("jsonb", "json", "text"))

    def __init__(self, url: str) -> None:
        psycopg = _import_driver()
        self._address = read_address(url, ("postgresql", "postgres"), EXAMPLE)
        try:
            # A network that is cut must not hold the flow up for the hours that TCP would wait.
            self._connection = psycopg.connect(
                url,
                **{
                    "connect_timeout": CONNECT_SECONDS,
                    "keepalives_idle": 10,
                    "keepalives_interval": 10,
                    "tcp_user_timeout": 60_000,
                    "application_name": "anabranch",
                    **self._address.options,
                },
            )
        except psycopg.Error as error:
            reason = self._address.scrub(error)
            if isinstance(error, psycopg.OperationalError) and not any(word in reason for word in _WRONG_AT_CONNECT):
                raise ServerAway(reason) from None
            raise self._refused(reason) from None

    @classmethod
    def check_url(cls, url: str) -> None:
        """Raise ``SinkError`` for a URL that cannot be one, or for want of a driver."""
        _import_driver()
        read_address(url, ("postgresql", "postgres"), EXAMPLE)

    @classmethod
    def form_of(cls, column: str, kind: pl.DataType) -> Form:
        """Return the type that a column is made with, and those that may hold it."""
        if isinstance(kind, pl.Datetime):
            zone = "without" if kind.time_zone is None else "with"
            return f"timestamp {zone} time zone", (f"timestamp {zone} time zone",)
        return super().form_of(column, kind)

    def prepare_marks(self, table: str) -> None:
        """Make the table of marks unless it is there."""
        marks = self.marks_table(table)
        if self._exists(marks):
            return
        # Two sinks may come here at the same moment; IF NOT EXISTS alone would let one of them fail.
        self._run("SELECT pg_advisory_xact_lock(hashtext('anabranch_commits'))")
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self.quoting.path(marks)} (target text PRIMARY KEY, flow text NOT NULL, "
            "batch bigint NOT NULL, epoch bigint NOT NULL, store text NOT NULL, "
            "published_at timestamptz NOT NULL DEFAULT now())"
        )

    def lock_mark(self, table: str) -> Mark | None:
        """Return a table's mark and keep others from changing it until the commit."""
        mark = super().lock_mark(table)
        if mark is None:
            # No row, no lock: two drivers that find none would both go on.
            self._run("SELECT pg_advisory_xact_lock(hashtext('anabranch_commits'), hashtext(%s))", table)
            mark = super().lock_mark(table)
        return mark

    def write_mark(self, table: str, mark: Mark) -> None:
        """Write a table's mark."""
        self._run(
            f"INSERT INTO {self.quoting.path(self.marks_table(table))} (target, flow, batch, epoch, store) "
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (target) DO UPDATE SET flow = EXCLUDED.flow, "
            "batch = EXCLUDED.batch, epoch = EXCLUDED.epoch, store = EXCLUDED.store, published_at = now()",
            *(table, mark.flow, mark.batch, mark.epoch, mark.store),
        )

    def write_rows(self, table: Table, rows: pl.DataFrame) -> None:
        """Add rows, or replace those of the same keys."""
        quote, target, names = self.quoting.name, self.quoting.path(table.name), self.quoting.names(rows.columns)
        if not table.keys:
            self._copy(target, names, rows)
            return
        self._run(f"CREATE TEMPORARY TABLE {STAGED} ON COMMIT DROP AS SELECT {names} FROM {target} WITH NO DATA")
        self._copy(STAGED, names, rows)
        whole = " AND ".join(f"{quote(key)} IS NOT NULL" for key in table.keys)
        changes = ", ".join(f"{quote(column)} = EXCLUDED.{quote(column)}" for column in table.values)
        self._run(
            f"INSERT INTO {target} ({names}) SELECT {names} FROM {STAGED} WHERE {whole} "
            f"ON CONFLICT ({self.quoting.names(table.keys)}) DO " + (f"UPDATE SET {changes}" if changes else "NOTHING")
        )
        if rows.select(pl.any_horizontal(pl.col(*table.keys).is_null().any())).item():
            # A null equals nothing in a unique index: such rows are replaced by hand.
            same = " AND ".join(f"t.{quote(key)} IS NOT DISTINCT FROM s.{quote(key)}" for key in table.keys)
            self._run(f"DELETE FROM {target} t USING (SELECT * FROM {STAGED} WHERE NOT ({whole})) s WHERE {same}")
            self._run(f"INSERT INTO {target} ({names}) SELECT {names} FROM {STAGED} WHERE NOT ({whole})")

    def close(self) -> None:
        """Close it; what was not committed is undone."""
        self._connection.close()

    def explain(self, error: BaseException) -> str | None:
        """Return what the database said, without secrets; None if the error is none of its own."""
        return self._address.scrub(error) if isinstance(error, _import_driver().Error) else None

    def is_away(self, error: BaseException) -> bool:
        """Say whether the same may work later."""
        psycopg = _import_driver()
        state = getattr(error, "sqlstate", None)
        if state is not None:
            return str(state)[:2] in _AWAY_STATES or state == _READ_ONLY
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []

    def _exists(self, table: str) -> bool:
        return self._run("SELECT to_regclass(%s) IS NOT NULL", self.quoting.path(table))[0][0] is True

    def _create(self, table: Table, wanted: Mapping[str, str]) -> None:
        columns = ", ".join(f"{self.quoting.name(column)} {form}" for column, form in wanted.items())
        unique = f", UNIQUE ({self.quoting.names(table.keys)})" if table.keys else ""
        self._run(f"CREATE TABLE {self.quoting.path(table.name)} ({columns}{unique})")

    def _find_columns(self, table: str) -> list[FoundColumn]:
        return [
            FoundColumn(name, kind, nullable == "NO" and default is None and identity == "NO" and generated == "NEVER")
            for name, kind, nullable, default, identity, generated in self._run(
                "SELECT column_name, data_type, is_nullable, column_default, is_identity, is_generated "
                "FROM information_schema.columns WHERE (quote_ident(table_schema) || '.' || quote_ident(table_name))"
                "::regclass = to_regclass(%s) ORDER BY ordinal_position",
                self.quoting.path(table),
            )
        ]

    def _find_unique_keys(self, table: str) -> Sequence[Collection[str]]:
        unique_sets = self._run(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY(i.indkey) WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL "
            "GROUP BY i.indexrelid",
            self.quoting.path(table),
        )
        return [columns for (columns,) in unique_sets]

    def _is_denied(self, error: BaseException) -> bool:
        return getattr(error, "sqlstate", None) == "42501"

    def _copy(self, target: str, names: str, rows: pl.DataFrame) -> None:
        text = memoryview(_as_csv(rows))
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {target} ({names}) FROM STDIN (FORMAT csv, NULL '\\N')") as copy,
        ):
            for start in range(0, len(text), COPY_CHUNK_BYTES):
                copy.write(text[start : start + COPY_CHUNK_BYTES])


def _import_driver() -> Any:
    return import_extra("psycopg", "postgres", "PostgreSQL needs its driver", SinkError)


def _as_csv(rows: pl.DataFrame) -> bytes:
    """Return rows as COPY reads them: strings in quotes, so that nulls are told apart from them."""
    texts = rows.select(_as_text(column, kind) for column, kind in rows.schema.items())
    buffer = io.BytesIO()
    texts.write_csv(buffer, include_header=False, quote_style="non_numeric", null_value="\\N")
    return buffer.getvalue()


def _as_text(column: str, kind: pl.DataType) -> pl.Expr:
    value = pl.col(column)
    if isinstance(kind, pl.Datetime):
        if kind.time_zone is None:
            return value.dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
        return value.dt.convert_time_zone("UTC").dt.strftime("%Y-%m-%d %H:%M:%S%.6f+00")
    if isinstance(kind, pl.Duration):
        return value.dt.total_microseconds().cast(pl.String) + " microseconds"
    if isinstance(kind, pl.Binary):
        return pl.concat_str(pl.lit("\\x"), value.bin.encode("hex"))
    if is_nested(kind):
        # The second time for those that follow each other.
        return json_texts(column).str.replace_all(_ZERO_IN_JSON, _NO_ZERO).str.replace_all(_ZERO_IN_JSON, _NO_ZERO)
    if isinstance(kind, pl.String | pl.Categorical | pl.Enum):
        # PostgreSQL's texts cannot hold the letter with the number 0.
        return value.cast(pl.String).str.replace_all("\0", "\ufffd", literal=True)
    return value
