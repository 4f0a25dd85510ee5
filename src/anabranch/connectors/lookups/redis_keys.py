"""A Redis server as a table: one Redis key a row, found by a template such as ``ad:{ad_id}``."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl

from anabranch.connectors.addresses import show_address
from anabranch.connectors.lookups.waiting import Patience
from anabranch.connectors.redis.servers import connect_redis
from anabranch.errors import FlowError, SourceError

if TYPE_CHECKING:
    import redis

Holds = Literal["text", "json", "hash"]
KEYS_AT_ONCE = 10_000
ANSWER_SECONDS = 5.0
_CLIENTS: dict[str, redis.Redis] = {}
"""One connection a server and process: tables are unpickled anew for every flow."""


@dataclass(frozen=True, slots=True)
class RedisTable:
    """Values of a Redis server, fetched by MGET, or HMGET in one pipeline."""

    url: str = field(repr=False)
    key: str
    holds: Holds
    patience_seconds: float

    @property
    def label(self) -> str:
        return f"redis {show_address(self.url)} {self.key}"

    def known_columns(self) -> None:
        return None

    def check(self, keys: Mapping[str, pl.DataType], columns: Mapping[str, pl.DataType]) -> None:
        named = _fields_of(self.key)
        if set(named) != set(keys):
            msg = (
                f"lookup: the Redis key {self.key!r} is made of {', '.join(named) or 'no column'}, and the lookup is "
                f"on {', '.join(keys)}; name the same columns, such as key='ad:{{{next(iter(keys))}}}'"
            )
            raise FlowError(msg)
        if self.holds == "text" and len(columns) != 1:
            msg = (
                f"lookup: a text value fills one column, and {', '.join(columns)} are asked for; "
                "say holds='hash' or holds='json'"
            )
            raise FlowError(msg)
        import redis

        try:
            self._client().ping()
        except (redis.RedisError, OSError) as error:
            msg = f"{self.label} cannot be used: {error}; see that the server runs and that user and password are right"
            raise SourceError(msg) from error

    def fetch(self, keys: pl.DataFrame, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        names = keys.select(pl.format(_to_format(self.key), *_fields_of(self.key))).to_series().to_list()
        patience = Patience(self.patience_seconds)
        parts = [
            patience.ask(self.label, partial(self._get, names[start : start + KEYS_AT_ONCE], columns))
            for start in range(0, len(names), KEYS_AT_ONCE)
        ]
        values = pl.concat(parts)
        found = values.get_column(_HAS)
        return pl.concat([keys, values.drop(_HAS)], how="horizontal").filter(found)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _get(self, names: list[str], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        import redis

        try:
            if self.holds == "hash":
                with self._client().pipeline(transaction=False) as pipeline:
                    for name in names:
                        pipeline.hmget(name, list(columns))
                    rows: list[list[bytes | None]] = pipeline.execute()
            else:
                rows = [[value] for value in self._client().mget(names)]
        except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
            raise ConnectionError(str(error)) from error
        except redis.RedisError as error:
            msg = f"{self.label} does not answer as declared (holds={self.holds!r}): {error}"
            raise SourceError(msg) from error
        if self.holds == "json":
            return self._read_json([row[0] for row in rows], columns)
        has = pl.Series(_HAS, [any(value is not None for value in row) for row in rows], pl.Boolean)
        texts = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
        return pl.DataFrame([has, *(self._read(name, texts[name], dtype) for name, dtype in columns.items())])

    def _read(self, name: str, values: list[bytes | None], dtype: pl.DataType) -> pl.Series:
        raw = pl.Series(name, values, pl.Binary)
        if dtype == pl.Binary:
            return raw
        try:
            text = raw.cast(pl.String, strict=True)
            if isinstance(dtype, pl.Boolean):
                return text.replace_strict(
                    {"true": True, "1": True, "false": False, "0": False}, return_dtype=pl.Boolean
                )
            if isinstance(dtype, pl.Datetime | pl.Date):
                return text.str.strptime(dtype, strict=True)
            return text.cast(dtype, strict=True)
        except pl.exceptions.PolarsError as error:
            msg = f"{self.label}: {name!r} is declared as {dtype}, and a value is not: {str(error).splitlines()[0]}"
            raise SourceError(msg) from error

    def _read_json(self, values: list[bytes | None], columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
        has = pl.Series(_HAS, [value is not None for value in values], pl.Boolean)
        try:
            text = pl.Series("json", values, pl.Binary).cast(pl.String, strict=True)
            rows = text.str.json_decode(pl.Struct(dict(columns))).struct.unnest()
        except pl.exceptions.PolarsError as error:
            msg = f"{self.label}: a value is no JSON object of the declared columns: {str(error).splitlines()[0]}"
            raise SourceError(msg) from error
        return pl.DataFrame([has, *rows.get_columns()])

    def _client(self) -> Any:
        if self.url not in _CLIENTS:
            _CLIENTS[self.url] = connect_redis(
                self.url, FlowError, answer_seconds=ANSWER_SECONDS, connect_seconds=ANSWER_SECONDS
            )
        return _CLIENTS[self.url]


_HAS = "__anabranch_has"


def redis_table(url: str, key: str, *, holds: Holds = "text", patience_seconds: float = 300.0) -> RedisTable:
    """Look rows up in a Redis server, by keys such as ``ad:{ad_id}``, whose braces name the stream's columns.

    ``holds`` says what lies there: a ``text`` (one column), a ``json`` object, or a ``hash`` with a field a column. A
    server that goes away is waited for as long as ``patience_seconds``.

    Examples:
        >>> towns = ab.redis_table("redis://cache:6379/0", "sensor:{sensor}", holds="hash")
        >>> readings.lookup(towns, on="sensor", columns={"town": pl.String}, expires="1m").schema["town"]
        String
    """
    if holds not in get_args(Holds):
        msg = f"redis_table: holds={holds!r} is unknown; a key holds {', '.join(get_args(Holds))}"
        raise FlowError(msg)
    if not _fields_of(key):
        msg = f"redis_table: the key {key!r} names no column; write it in braces, such as 'ad:{{ad_id}}'"
        raise FlowError(msg)
    return RedisTable(url, key, holds, patience_seconds)


def _fields_of(template: str) -> list[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(template) if name]
    except ValueError as error:
        msg = f"the Redis key {template!r} is no template: {error}; write columns in braces, such as 'ad:{{ad_id}}'"
        raise FlowError(msg) from error


def _to_format(template: str) -> str:
    """Return the template as Polars takes it: a pair of braces for each column."""
    return "".join(text + ("{}" if name else "") for text, name, _, _ in string.Formatter().parse(template))
