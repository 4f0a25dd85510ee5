"""A table of a SQL database: PostgreSQL, MariaDB or MySQL, SQLite."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import polars as pl

from anabranch.connectors.addresses import show_address
from anabranch.connectors.extras import import_extra
from anabranch.connectors.lookups.keys import check_key_types, several_rows
from anabranch.connectors.lookups.waiting import Patience
from anabranch.errors import AnabranchError, FlowError, SourceError

KEYS_AT_ONCE = 5_000
ANSWER_SECONDS = 10
LOOK_SECONDS = 3.0
"""How long the look for keys with several rows may take before the first batch: tables may be large."""
_CONNECTIONS: dict[str, Any] = {}
"""One connection a database and process: tables are unpickled anew for every flow."""
_NAME = re.compile(r"^[^\x00-\x1f\"`]+$")


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What differs from database to database."""

    connect: Callable[[str], Any]
    quote: str
    placeholder: str
    most_parameters: int
    tuples: str
    """What stands before a list of keys of several columns: SQLite wants VALUES."""
    away: Callable[[Exception], bool]
    """Whether an error says that the server is out of reach, rather than that the question is wrong."""
    as_it_is: str
    """How a key is grouped by what it is, and not by what the database takes for the same text."""
    any_of: str
    """What stands for one of a group's keys."""
    limited: Callable[[Any, float], AbstractContextManager[None]]
    """Lets a question take so many seconds at most; it raises what the database says if it took longer."""
    stored_as: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What values are kept as that the database has no type for."""


@dataclass(frozen=True, slots=True)
class SqlTable:
    """Rows of a database table or view, fetched by ``SELECT … WHERE key IN (…)``."""

    url: str = field(repr=False)
    table: str
    key: tuple[str, ...]
    """The table's key columns, in the order of the lookup's; empty where they have the same names."""
    patience_seconds: float

    @property
    def label(self) -> str:
        return f"{show_address(self.url)} {self.table}"

    def known_columns(self) -> None:
        return None

    def check(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None:
        if self.key and len(self.key) != len(keys):
            msg = f"lookup: {self.label} is found by {', '.join(self.key)}, and the lookup is on {', '.join(keys)}"
            raise FlowError(msg)
        try:
            self._select(pl.DataFrame(schema=dict(keys)).clear(1), columns)
            self._check_keys(keys)
        except ConnectionError as error:
            msg = f"{self.label} cannot be used: {error}; see that the server runs and that user and password are right"
            raise SourceError(msg) from error

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        patience = Patience(self.patience_seconds)
        at_once = max(1, min(KEYS_AT_ONCE, _dialect_of(self.url).most_parameters // len(keys.columns)))
        parts = [patience.ask(self.label, partial(self._select, part, columns)) for part in keys.iter_slices(at_once)]
        return pl.concat(parts)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _check_keys(self, keys: Mapping[str, pl.DataType]) -> None:
        """Raise ``FlowError`` for keys of another type, ``SourceError`` for one of several rows if it is soon found."""
        dialect = _dialect_of(self.url)
        quoted = [_quote(name, dialect.quote) for name in self.key or keys]
        there = " AND ".join(f"{name} IS NOT NULL" for name in quoted)
        source = f"FROM {self._quoted_table(dialect)} WHERE {there}"
        one = self._query(dialect, f"SELECT {', '.join(quoted)} {source} LIMIT 1", [])
        if not one:
            return
        self._check_types(keys, one[0], FlowError)
        grouped = ", ".join(dialect.as_it_is.format(name) for name in quoted)
        columns = ", ".join(dialect.any_of.format(name) for name in quoted)
        repeated = self._query_soon(
            dialect, f"SELECT {columns} {source} GROUP BY {grouped} HAVING COUNT(*) > 1 LIMIT 1"
        )
        if repeated:
            raise several_rows(self.label, dict(zip(keys, repeated[0], strict=True)))

    def _check_types(self, keys: Mapping[str, pl.DataType], row: tuple[Any, ...], error: type[AnabranchError]) -> None:
        found = pl.DataFrame([row[: len(keys)]], schema=list(keys), orient="row")
        check_key_types(self.label, keys, found.schema, _dialect_of(self.url).stored_as, error)

    def _query_soon(self, dialect: _Dialect, query: str) -> list[tuple[Any, ...]]:
        """Return the rows, or none if they take long to find."""
        connection = _CONNECTIONS[self.url]
        try:
            with dialect.limited(connection, LOOK_SECONDS):
                return self._query(dialect, query, [])
        except Exception:
            # Workers look at the keys that they fetch, and find it then.
            _close(_CONNECTIONS.pop(self.url, connection))
            return []

    def _quoted_table(self, dialect: _Dialect) -> str:
        return ".".join(_quote(part, dialect.quote) for part in self.table.split("."))

    def _select(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        dialect = _dialect_of(self.url)
        names = self.key or tuple(keys.columns)
        quoted = [_quote(name, dialect.quote) for name in (*names, *columns)]
        key = ", ".join(quoted[: len(names)])
        one = ", ".join([dialect.placeholder] * len(names))
        if len(names) == 1:
            wanted = ", ".join([one] * keys.height)
            condition = f"{key} IN ({wanted})"
        else:
            wanted = ", ".join([f"({one})"] * keys.height)
            condition = f"({key}) IN ({dialect.tuples}{wanted})"
        query = f"SELECT {', '.join(quoted)} FROM {self._quoted_table(dialect)} WHERE {condition}"
        parameters = [value for row in keys.rows() for value in row]
        rows = self._query(dialect, query, parameters)
        if rows:
            self._check_types(keys.schema, rows[0], SourceError)
        schema: dict[str, Any] = {**keys.schema, **columns}
        try:
            return pl.DataFrame(rows, schema=schema, orient="row", strict=True)
        except (TypeError, pl.exceptions.PolarsError):
            pass
        try:
            # Databases have types of their own, such as decimals: what converts without a loss is taken.
            loose = pl.DataFrame(rows, schema=list(schema), orient="row", infer_schema_length=None)
            return loose.select(pl.col(name).cast(dtype, strict=True) for name, dtype in schema.items())
        except (TypeError, pl.exceptions.PolarsError) as error:
            declared = ", ".join(f"{name} {dtype}" for name, dtype in schema.items())
            msg = f"{self.label} holds values that are not as declared ({declared}): {str(error).splitlines()[0]}"
            raise SourceError(msg) from error

    def _query(self, dialect: _Dialect, query: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
        try:
            if self.url not in _CONNECTIONS:
                _CONNECTIONS[self.url] = dialect.connect(self.url)
            cursor = _CONNECTIONS[self.url].cursor()
            try:
                cursor.execute(query, parameters)
                return list(cursor.fetchall())
            finally:
                cursor.close()
        except (FlowError, SourceError):
            raise
        except Exception as error:
            connection = _CONNECTIONS.pop(self.url, None)
            if connection is not None:
                _close(connection)
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if dialect.away(error):
                raise ConnectionError(reason) from error
            msg = f"{self.label} cannot be asked for {query.partition(' WHERE ')[0]}: {reason}"
            raise SourceError(msg) from error


def sql_table(url: str, table: str, *, key: str | tuple[str, ...] = (), patience_seconds: float = 300.0) -> SqlTable:
    """Look rows up in a table or view of a database: ``postgresql://``, ``mariadb://``, ``mysql://``, ``sqlite:///``.

    ``key`` names the table's key columns where they are called otherwise than the stream's; an index on them is worth
    having. A server that goes away is waited for as long as ``patience_seconds``.

    Examples:
        >>> places = ab.sql_table("postgresql://flows:${PGPASSWORD}@db/plants", "places", key="sensor_id")
        >>> readings.lookup(places, on="sensor", columns={"town": pl.String}, missing="drop").schema["town"]
        String
    """
    _dialect_of(url)
    names = (key,) if isinstance(key, str) else tuple(key)
    for name in (*names, *table.split(".")):
        if not _NAME.match(name):
            msg = f"sql_table: {name!r} is no name of a table or column"
            raise FlowError(msg)
    return SqlTable(url, table, names, patience_seconds)


def _quote(name: str, quote: str) -> str:
    if not _NAME.match(name):
        msg = f"lookup: {name!r} is no name of a table or column"
        raise FlowError(msg)
    return f"{quote}{name}{quote}"


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:
        # It is gone already, and the reason is on its way to the user.
        return


def _connect_postgres(url: str) -> Any:
    psycopg = import_extra("psycopg", "postgres", "lookups in PostgreSQL need its driver", FlowError)
    return psycopg.connect(url, autocommit=True, connect_timeout=ANSWER_SECONDS)


def _is_postgres_away(error: Exception) -> bool:
    import psycopg

    # A wrong password or database has a state code, too, but not one of a broken or refused connection.
    state = getattr(error, "sqlstate", None) or ""
    if "authentication failed" in str(error) or "does not exist" in str(error):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        not state or state[:2] in ("08", "57")
    )


def _connect_mariadb(url: str) -> Any:
    pymysql = import_extra("pymysql", "mariadb", "lookups in MariaDB and MySQL need their driver", FlowError)
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/"),
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=ANSWER_SECONDS,
        read_timeout=ANSWER_SECONDS,
    )


_MARIADB_AWAY = (1053, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055)
"""Shutting down, aborted, network errors, connection killed, cannot connect, gone, lost."""


def _is_mariadb_away(error: Exception) -> bool:
    import pymysql

    known = isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError)
    return isinstance(error, OSError) or (known and bool(error.args) and error.args[0] in (0, *_MARIADB_AWAY))


def _connect_sqlite(url: str) -> Any:
    path = Path(unquote(urlsplit(url).path.removeprefix("/")))
    if not path.exists():
        msg = f"{url}: there is no file {path}; write sqlite:///relative.db or sqlite:////absolute.db"
        raise SourceError(msg)
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=ANSWER_SECONDS, check_same_thread=False)


def _is_sqlite_away(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


@contextmanager
def _limit_postgres(connection: Any, seconds: float) -> Iterator[None]:
    connection.execute(f"SET statement_timeout = {int(seconds * 1000)}")
    yield
    connection.execute("RESET statement_timeout")


@contextmanager
def _limit_mariadb(connection: Any, seconds: float) -> Iterator[None]:
    # MySQL counts in milliseconds, under another name.
    is_mariadb = "mariadb" in str(connection.get_server_info()).lower()
    name, limit = ("max_statement_time", seconds) if is_mariadb else ("max_execution_time", int(seconds * 1000))
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {name} = {limit}")
        yield
        cursor.execute(f"SET SESSION {name} = DEFAULT")


@contextmanager
def _limit_sqlite(connection: Any, seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


_WHOLE = frozenset({"integer"})
_TEXT = frozenset({"text"})
_POSTGRES = _Dialect(_connect_postgres, '"', "%s", 60_000, "", _is_postgres_away, "{}", "{}", _limit_postgres)
_MARIADB = _Dialect(
    _connect_mariadb,
    "`",
    "%s",
    60_000,
    "",
    _is_mariadb_away,
    "CAST({} AS BINARY)",
    "MIN({})",
    _limit_mariadb,
    {"boolean": _WHOLE},
)
_SQLITE = _Dialect(
    _connect_sqlite,
    '"',
    "?",
    900,
    "VALUES ",
    _is_sqlite_away,
    "{} COLLATE BINARY",
    "{}",
    _limit_sqlite,
    {"boolean": _WHOLE, "date": _TEXT, "time without a zone": _TEXT, "time with a zone": _TEXT, "decimal": _TEXT},
)
_DIALECTS: dict[str, _Dialect] = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "mariadb": _MARIADB,
    "mysql": _MARIADB,
    "sqlite": _SQLITE,
}


def _dialect_of(url: str) -> _Dialect:
    scheme = urlsplit(url).scheme
    if scheme not in _DIALECTS:
        msg = f"sql_table: unknown database {scheme!r} in {show_address(url)}; there are {', '.join(_DIALECTS)}"
        raise FlowError(msg)
    return _DIALECTS[scheme]
