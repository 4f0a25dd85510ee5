"""Redis as a store: a hash a row, all of a batch and its mark in one MULTI."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from anabranch.connectors.commit_markers import Mark
from anabranch.connectors.databases.addresses import read_address
from anabranch.connectors.databases.tables import Table
from anabranch.connectors.global_stores.shown_values import as_meant, as_shown, form_of
from anabranch.connectors.global_stores.stores import ID, PARTIALS
from anabranch.connectors.redis.servers import EXAMPLE, SCHEMES, advise, connect_redis, import_redis, is_away
from anabranch.errors import SinkError

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 120.0
_ROWS_AT_ONCE = 5_000
_COMMANDS = "HSET, HGET, HMGET, DEL, SADD, SMEMBERS, TYPE, GET, SET, WATCH, MULTI and EXEC"


class RedisStore:
    """One connection to Redis.

    The row of an ID is the hash ``<table>:row:<id>``, its fields are the columns; ``<table>:ids`` is the set of all
    IDs, ``<table>:columns`` and ``<table>:mark`` are texts of JSON. What is written waits here until the commit, which
    Redis refuses if the mark changed since it was looked at.
    """

    def __init__(self, url: str) -> None:
        self._address = read_address(url, SCHEMES, EXAMPLE)
        self._client = connect_redis(url, SinkError, answer_seconds=ANSWER_SECONDS, connect_seconds=CONNECT_SECONDS)
        self._pipe = self._client.pipeline(transaction=True)
        self._waiting: list[tuple[Any, ...]] = []

    def prepare_marks(self, table: str) -> None:
        """Do nothing: a mark is a key of its own."""

    def prepare_table(self, table: Table) -> None:
        """Note the columns; raise ``SinkError`` if others are noted."""
        wanted = {column: form_of(kind) for column, kind in table.columns.items()}
        found = self._client.get(f"{table.name}:columns")
        if found is None:
            self._waiting.append(("SET", f"{table.name}:columns", json.dumps(wanted)))
        elif json.loads(found) != wanted:
            now = json.dumps(wanted)
            msg = f"{table.name} in Redis has the columns {found.decode()}; the results have {now}; name another"
            raise SinkError(msg)

    def lock_mark(self, table: str) -> Mark | None:
        """Return a table's mark; the commit fails if anybody changes it meanwhile."""
        self._pipe.watch(f"{table}:mark", f"{table}:ids")
        # In the MULTI, nothing else can fail: rows are deleted before they are written, texts replace what is there.
        kind = self._pipe.type(f"{table}:ids").decode()
        if kind not in ("set", "none"):
            msg = f"the key {table}:ids in Redis holds a {kind}, not a set; delete it, or name another table"
            raise SinkError(msg)
        found = self._pipe.get(f"{table}:mark")
        return None if found is None else Mark(**json.loads(found))

    def write_mark(self, table: str, mark: Mark) -> None:
        """Write a table's mark."""
        self._waiting.append(("SET", f"{table}:mark", json.dumps(asdict(mark))))

    def fetch_partials(self, table: Table, ids: Sequence[str]) -> Mapping[str, bytes]:
        """Return the partial results of those of the rows that there are, by ID."""
        found: dict[str, bytes] = {}
        for start in range(0, len(ids), _ROWS_AT_ONCE):
            some = ids[start : start + _ROWS_AT_ONCE]
            asked = self._client.pipeline(transaction=False)
            for name in some:
                asked.hget(f"{table.name}:row:{name}", PARTIALS)
            answers = zip(some, asked.execute(), strict=True)
            found |= {name: partials for name, partials in answers if partials is not None}
        return found

    def write_rows(self, table: Table, rows: pl.DataFrame) -> None:
        """Add rows, or replace those of the same ID; nulls are fields that are not there."""
        shown = rows.select(as_shown(name, dtype) for name, dtype in rows.schema.items())
        for row in shown.iter_rows(named=True):
            name = f"{table.name}:row:{row.pop(ID)}"
            fields = [part for column, value in row.items() if value is not None for part in (column, _as_field(value))]
            self._waiting += [("DEL", name), ("HSET", name, *fields)]
        for start in range(0, rows.height, _ROWS_AT_ONCE):
            self._waiting.append(("SADD", f"{table.name}:ids", *rows.get_column(ID)[start : start + _ROWS_AT_ONCE]))

    def read_rows(self, table: str) -> pl.DataFrame:
        """Return all rows, without ID and PARTIALS; no columns if there is no such table."""
        columns = self._client.get(f"{table}:columns")
        if columns is None:
            return pl.DataFrame()
        forms = {name: form for name, form in json.loads(columns).items() if name not in (ID, PARTIALS)}
        ids = sorted(name.decode() for name in self._client.smembers(f"{table}:ids"))
        asked = self._client.pipeline(transaction=False)
        for name in ids:
            asked.hmget(f"{table}:row:{name}", list(forms))
        found = pl.DataFrame(asked.execute(), schema={name: pl.Binary() for name in forms}, orient="row")
        texts = [pl.col(name) if form == "BLOB" else pl.col(name).cast(pl.String) for name, form in forms.items()]
        return found.select(texts).select(_read_field(name, form) for name, form in forms.items())

    def commit(self) -> None:
        """Make it last, all of it or nothing."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._pipe.multi()
            for command in waiting:
                self._pipe.execute_command(*command)
            self._pipe.execute()
        self._pipe.reset()

    def close(self) -> None:
        """Close it; what was not committed is forgotten."""
        self._waiting = []
        self._pipe.reset()
        self._client.close()

    def explain(self, error: BaseException) -> str | None:
        """Return what Redis said, without secrets; None if the error is none of its own."""
        redis = import_redis(SinkError)
        ours = isinstance(error, redis.RedisError | OSError) and not isinstance(error, FileNotFoundError)
        return self._address.scrub(error) if ours else None

    def is_away(self, error: BaseException) -> bool:
        """Say whether the same may work later."""
        return is_away(error)

    def advise(self, error: BaseException, table: str) -> str:
        """Say what a user can do about an error."""
        return advise(error, _COMMANDS)


def _as_field(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    # The shortest text that gives the same number again.
    return repr(value) if isinstance(value, float) else value


def _read_field(name: str, form: str) -> pl.Expr:
    if form == "BOOLEAN":
        return pl.col(name) == "1"
    return as_meant(name, form)
