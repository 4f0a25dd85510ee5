"""MariaDB and MySQL by PyMySQL: rows come in by many-row INSERTs that replace by key."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from anabranch.connectors.commit_markers import Mark
from anabranch.connectors.databases.addresses import Address, read_address
from anabranch.connectors.databases.quoting import BACKTICKS, Quoting
from anabranch.connectors.databases.sql_database import Form, SqlDatabase
from anabranch.connectors.databases.staged_rows import is_nested, json_texts
from anabranch.connectors.databases.tables import FoundColumn, Table
from anabranch.connectors.extras import import_extra
from anabranch.connectors.retry import ServerAway
from anabranch.errors import SinkError

EXAMPLE = "mariadb://user:password@host:3306/database"
SCHEMES = ("mariadb", "mysql")
CONNECT_SECONDS = 10
ANSWER_SECONDS = 300
ROWS_A_STATEMENT = 5_000
LONGEST_KEY_LETTERS = 255

_TEXTS = ("varchar", "char", "text", "mediumtext", "longtext", "tinytext", "enum", "json", "uuid")
_BYTES = ("varbinary", "binary", "blob", "mediumblob", "longblob", "tinyblob")
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
_FORMS: dict[type[pl.DataType], Form] = {
    pl.Boolean: ("boolean", ("tinyint", "bit")),
    pl.Int8: ("tinyint", _WHOLE),
    pl.Int16: ("smallint", _WHOLE[1:]),
    pl.Int32: ("int", _WHOLE[3:]),
    pl.Int64: ("bigint", _WHOLE[4:]),
    pl.UInt8: ("tinyint unsigned", _WHOLE),
    pl.UInt16: ("smallint unsigned", _WHOLE[1:]),
    pl.UInt32: ("int unsigned", _WHOLE[3:]),
    pl.UInt64: ("bigint unsigned", _WHOLE[4:]),
    pl.Int128: ("decimal(39, 0)", ("decimal",)),
    pl.Float32: ("double", ("double", "float", "decimal")),
    pl.Float64: ("double", ("double", "decimal")),
    pl.String: ("longtext", _TEXTS),
    pl.Categorical: ("longtext", _TEXTS),
    pl.Enum: ("longtext", _TEXTS),
    pl.Null: ("longtext", ()),
    pl.Binary: ("longblob", _BYTES),
    pl.Date: ("date", ("date", "datetime")),
    pl.Time: ("time(6)", ("time",)),
    pl.Datetime: ("datetime(6)", ("datetime", "timestamp")),
    pl.Duration: ("bigint", ("bigint",)),
}
_AWAY = (1040, 1053, 1152, 1158, 1159, 1160, 1161, 1180, 1205, 1213, 1290, 1836, 1927, 2002, 2003, 2006, 2013, 2055)
"""Too many connections, shutdown, broken connections, lock waits, deadlocks, read-only while roles change."""
_DENIED = (1044, 1045, 1142, 1143, 1227, 1370)


class MariadbDatabase(SqlDatabase):
    """One connection to MariaDB or MySQL."""

    product: ClassVar[str] = "MariaDB"
    home: ClassVar[str] = "database"
    quoting: ClassVar[Quoting] = BACKTICKS
    forms: ClassVar[Mapping[type[pl.DataType], Form]] = _FORMS
    decimal: ClassVar[str] = "decimal"
    nested: ClassVar[Form] = ("longtext", ("longtext", "json", "text", "mediumtext"))

    def __init__(self, url: str) -> None:
        pymysql = _import_driver()
        self._address = read_address(url, SCHEMES, EXAMPLE)
        try:
            self._connection = pymysql.connect(**_settings_of(self._address))
        except (pymysql.err.MySQLError, OSError) as error:
            reason = self._address.scrub(_text_of(error))
            # A certificate that is not trusted now will not be later: waiting does not help.
            if "certificate" not in reason.lower() and (isinstance(error, OSError) or self.is_away(error)):
                raise ServerAway(reason) from None
            raise self._refused(reason) from None

    @classmethod
    def check_url(cls, url: str) -> None:
        """Raise ``SinkError`` for a URL that cannot be one, or for want of a driver."""
        _import_driver()
        if not read_address(url, SCHEMES, EXAMPLE).database:
            msg = f"the URL names no database; write it as {EXAMPLE}"
            raise SinkError(msg)

    def prepare_marks(self, table: str) -> None:
        """Make the table of marks unless it is there."""
        marks = self.marks_table(table)
        if self._exists(marks):
            return
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self.quoting.path(marks)} ("
            "target varchar(190) COLLATE utf8mb4_bin PRIMARY KEY, flow varchar(255) COLLATE utf8mb4_bin NOT NULL, "
            "batch bigint NOT NULL, epoch bigint NOT NULL, store varchar(64) NOT NULL, "
            "published_at timestamp NOT NULL DEFAULT current_timestamp "
            "ON UPDATE current_timestamp) ENGINE=InnoDB CHARACTER SET utf8mb4"
        )

    def write_mark(self, table: str, mark: Mark) -> None:
        """Write a table's mark."""
        self._run(
            f"REPLACE INTO {self.quoting.path(self.marks_table(table))} (target, flow, batch, epoch, store) "
            "VALUES (%s, %s, %s, %s, %s)",
            *(table, mark.flow, mark.batch, mark.epoch, mark.store),
        )

    def write_rows(self, table: Table, rows: pl.DataFrame) -> None:
        """Add rows, or replace those of the same keys."""
        quote, target = self.quoting.name, self.quoting.path(table.name)
        names = self.quoting.names(rows.columns).replace("%", "%%")
        holes = ", ".join(["%s"] * rows.width)
        statement = f"INSERT INTO {target} ({names}) VALUES ({holes})"
        if not table.keys:
            self._insert(statement, rows)
            return
        columns = table.values or list(table.keys)
        changes = ", ".join(f"{quote(column)} = VALUES({quote(column)})" for column in columns).replace("%", "%%")
        has_null = pl.any_horizontal(pl.col(*table.keys).is_null())
        self._insert(f"{statement} ON DUPLICATE KEY UPDATE {changes}", rows.filter(~has_null))
        nameless = rows.filter(has_null)
        if nameless.height:
            # A null equals nothing in a unique index: such rows are replaced by hand.
            same = " AND ".join(f"{quote(key)} <=> %s" for key in table.keys)
            with self._connection.cursor() as cursor:
                cursor.executemany(f"DELETE FROM {target} WHERE {same}", _as_values(nameless.select(table.keys)))
            self._insert(statement, nameless)

    def close(self) -> None:
        """Close it; what was not committed is undone."""
        # Saying goodbye to a server that is gone would only raise once more.
        self._connection._force_close()

    def explain(self, error: BaseException) -> str | None:
        """Return what the database said, without secrets; None if the error is none of its own."""
        if isinstance(error, _import_driver().err.MySQLError | OSError) and not isinstance(error, FileNotFoundError):
            return self._address.scrub(_text_of(error))
        return None

    def is_away(self, error: BaseException) -> bool:
        """Say whether the same may work later."""
        err = _import_driver().err
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        return isinstance(error, OSError | err.InterfaceError) or (isinstance(error, err.MySQLError) and code in _AWAY)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def _insert(self, statement: str, rows: pl.DataFrame) -> None:
        with self._connection.cursor() as cursor:
            for part in rows.iter_slices(ROWS_A_STATEMENT):
                cursor.executemany(statement, _as_values(part))

    def _locate(self, table: str) -> tuple[str, str]:
        database, _, name = table.rpartition(".")
        return database or self._address.database, name

    def _exists(self, table: str) -> bool:
        query = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        return bool(self._run(query, *self._locate(table)))

    def _create(self, table: Table, wanted: Mapping[str, str]) -> None:
        columns = ", ".join(f"{self.quoting.name(column)} {form} NULL" for column, form in wanted.items())
        unique = f", UNIQUE KEY ({self.quoting.names(table.keys)})" if table.keys else ""
        # The default ways to compare texts take 'a' and 'A' for the same key.
        collation = "utf8mb4_nopad_bin" if self._is_mariadb() else "utf8mb4_0900_bin"
        self._run(
            f"CREATE TABLE {self.quoting.path(table.name)} ({columns}{unique}) "
            f"ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE {collation}"
        )

    def _find_columns(self, table: str) -> list[FoundColumn]:
        place = self._locate(table)
        engines = self._run(
            "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s", *place
        )
        if engines and engines[0][0] not in ("InnoDB", None):
            engine = engines[0][0]
            msg = f"the table {table} has the engine {engine}, without transactions; ALTER TABLE … ENGINE=InnoDB"
            raise SinkError(msg)
        return [
            FoundColumn(column, kind.lower(), nullable == "NO" and default is None and not extra)
            for column, kind, nullable, default, extra in self._run(
                "SELECT column_name, data_type, is_nullable, column_default, extra FROM information_schema.columns "
                "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                *place,
            )
        ]

    def _find_unique_keys(self, table: str) -> Sequence[Collection[str]]:
        unique_sets = self._run(
            "SELECT group_concat(column_name SEPARATOR '\\n') FROM information_schema.statistics "
            "WHERE table_schema = %s AND table_name = %s AND non_unique = 0 GROUP BY index_name",
            *self._locate(table),
        )
        return [str(columns).split("\n") for (columns,) in unique_sets]

    def _as_key(self, form: str) -> str:
        sizes = {"longtext": f"varchar({LONGEST_KEY_LETTERS})", "longblob": f"varbinary({LONGEST_KEY_LETTERS})"}
        return sizes.get(form, form)

    def _is_denied(self, error: BaseException) -> bool:
        return bool(error.args) and error.args[0] in _DENIED

    def _is_mariadb(self) -> bool:
        return "mariadb" in str(self._run("SELECT version()")[0][0]).lower()


def _import_driver() -> Any:
    return import_extra("pymysql", "mariadb", "MariaDB and MySQL need their driver", SinkError)


def _settings_of(address: Address) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "host": address.host,
        "port": address.port or 3306,
        "user": address.user,
        "password": address.password,
        "database": address.database,
        "charset": "utf8mb4",
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": ANSWER_SECONDS,
        "write_timeout": ANSWER_SECONDS,
        "autocommit": False,
        # A value that does not fit is an error: by default some servers cut it, and two keys become one.
        "sql_mode": "STRICT_ALL_TABLES,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
        # Times are UTC whatever the server's zone is.
        "init_command": "SET time_zone = '+00:00'",
    }
    if "unix_socket" in address.options:
        settings["unix_socket"] = address.options["unix_socket"]
    if "ssl_ca" in address.options:
        settings["ssl"] = ssl.create_default_context(cafile=address.options["ssl_ca"])
    return settings


def _text_of(error: BaseException) -> str:
    """Return what an error says, without its number."""
    return str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__


def _as_values(rows: pl.DataFrame) -> Sequence[tuple[Any, ...]]:
    return rows.select(_as_value(column, kind) for column, kind in rows.schema.items()).rows()


def _as_value(column: str, kind: pl.DataType) -> pl.Expr:
    value = pl.col(column)
    if isinstance(kind, pl.Datetime):
        instant = value if kind.time_zone is None else value.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return instant.dt.cast_time_unit("us")
    if isinstance(kind, pl.Duration):
        return value.dt.total_microseconds()
    if isinstance(kind, pl.Float32 | pl.Float64):
        # There is no NaN and no infinity in MariaDB.
        return pl.when(value.is_finite()).then(value).otherwise(None).alias(column)
    if is_nested(kind):
        return json_texts(column)
    return value
