"""The sink in which partial results of all readers meet, and what reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import polars as pl

from anabranch.connectors.addresses import show_address
from anabranch.connectors.commit_markers import Mark, Place, Publication, claim, is_due, next_mark
from anabranch.connectors.databases.addresses import fill_in
from anabranch.connectors.databases.staged_rows import SUFFIX, StagedByTasks
from anabranch.connectors.databases.tables import Table
from anabranch.connectors.databases.transactions import HeldConnection, explained
from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.global_stores.packed_rows import name_rows, pack_rows, unpack_rows
from anabranch.connectors.global_stores.redis_hashes import RedisStore
from anabranch.connectors.global_stores.servers import MariadbStore, PostgresStore
from anabranch.connectors.global_stores.sqlite import SCHEME, SqliteStore, path_of
from anabranch.connectors.global_stores.stores import ID, PARTIALS, GlobalStore
from anabranch.connectors.retry import DEFAULT_PATIENCE_SECONDS, at_start, insist
from anabranch.errors import SinkError
from anabranch.model import HASH, WINDOW, Kernel, StagedFile
from anabranch.model.exchanges import StoreKernel

_NAME = re.compile(r"[\w$-]+(\.[\w$-]+)?")
_STORES: dict[str, Callable[[str], GlobalStore]] = {
    "sqlite": SqliteStore,
    "postgresql": PostgresStore,
    "postgres": PostgresStore,
    "mariadb": MariadbStore,
    "mysql": MariadbStore,
    "redis": RedisStore,
    "rediss": RedisStore,
    "unix": RedisStore,
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Operator:
    """Whose partial results they are."""

    name: str
    keys: tuple[str, ...]
    kernel: StoreKernel
    windowed: bool


@dataclass(slots=True)
class _Session:
    """What the driver holds of a sink: its connection, and what it has seen."""

    schema: Mapping[str, pl.DataType] | None = None
    held: HeldConnection[GlobalStore] = field(default_factory=HeldConnection)
    seen: str | None = None
    """The mark's own text: another one means that this is not the store it was."""


@dataclass(frozen=True, slots=True)
class GlobalStoreSink(StagedByTasks):
    """A table of results that grow by merging; made by ``global_store``."""

    url: str = field(repr=False)
    table: str
    patience_seconds: float
    operator: _Operator | None = None
    suffix: str = SUFFIX
    _session: _Session = field(default_factory=_Session, repr=False, compare=False)

    def bound(self, operator: str, keys: tuple[str, ...], kernel: Kernel, windowed: bool) -> GlobalStoreSink:
        """Return the sink of one operator, whose partial results it merges by its kernel."""
        whose = _Operator(operator, keys, cast("StoreKernel", kernel), windowed)
        return replace(self, operator=whose, _session=_Session())

    def moved_to(self, url: str | os.PathLike[str]) -> GlobalStoreSink:
        """Return the same sink in another store."""
        return replace(self, url=_checked_url(url), _session=_Session())

    @property
    def label(self) -> str:
        """Name the store and the table."""
        return f"global store {show_address(self.url)} {self.table}"

    @property
    def place(self) -> str:
        """Name the store and the table."""
        return f"{show_address(self.url)} {self.table}"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if the results have columns of the store's own names; asks no server."""
        taken = [column for column in schema if column in (ID, PARTIALS)]
        if taken:
            msg = f"{self.label} has columns {ID} and {PARTIALS} of its own, and so have the results; rename them"
            raise SinkError(msg)
        self._session.schema = dict(schema)

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the table for this flow: make it if it is absent; notice if it lost what it held."""
        insist(self.place, at_start(self.patience_seconds), lambda: self._in_transaction(self._claim, flow, last_batch))

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Merge the batch's partial results and its number in one transaction; a batch that is in is left alone."""
        flow, given = str(context["flow"]), Publication.of(batch, context)
        insist(self.place, self.patience_seconds, lambda: self._in_transaction(self._publish, flow, given, staged))

    def written(self) -> tuple[str, ...]:
        """Return the store's file, if it is one."""
        return (path_of(self.url),) if self.url.startswith(SCHEME) else ()

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: what was merged cannot be taken out again."""
        msg = (
            f"{self.label} has merged batches after {after_batch} into its rows, and cannot take them out again; "
            f"restore a copy of the table and of its mark as of batch {after_batch}, or begin with a new checkpoint "
            "and table"
        )
        raise SinkError(msg)

    def frame(self) -> pl.DataFrame:
        """Return what the table holds now."""
        return read_global_store(self.url, self.table)

    def close(self) -> None:
        """Give the connection back."""
        self._session.held.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _in_transaction(self, act: Callable[..., T], *arguments: Any) -> T:
        return self._session.held.run(
            lambda: _open(self.url), lambda store: act(store, *arguments), self.place, self.table
        )

    def _claim(self, store: GlobalStore, flow: str, last_batch: int | None) -> None:
        store.prepare_marks(self.table)
        store.prepare_table(self._described())
        mark = store.lock_mark(self.table)
        if last_batch is not None and (mark is None or (mark.flow == flow and mark.batch < last_batch - 1)):
            self._refuse_loss(mark, last_batch)
        wanted = claim(mark, Place(self.place, flow), last_batch)
        if wanted is not None:
            store.write_mark(self.table, wanted)
        held = wanted or mark
        self._session.seen = held.store if held is not None else None

    def _publish(
        self, store: GlobalStore, flow: str, given: Publication, staged: Sequence[tuple[StagedFile, str]]
    ) -> None:
        mark = store.lock_mark(self.table)
        if mark is None or mark.batch < given.batch - 1 or self._session.seen not in (None, mark.store):
            self._refuse_loss(mark, given.batch)
        place = Place(self.place, flow)
        if not is_due(mark, place, given, self._session.seen):
            return
        partials = [frame for one in staged if (frame := read_staged([one])) is not None]
        if partials:
            store.write_rows(self._described(), self._merged(store, partials))
        wanted = next_mark(mark, place, given)
        store.write_mark(self.table, wanted)
        self._session.seen = wanted.store

    def _merged(self, store: GlobalStore, partials: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows that the table is to have for the keys and windows of these partial results."""
        operator = self._bound()
        rows = operator.kernel.unite(partials)
        named = [WINDOW, *operator.keys] if operator.windowed else list(operator.keys)
        columns = sorted(column for column in rows.columns if column not in (WINDOW, HASH, *operator.keys))
        ids = name_rows(rows.select(named))
        known = store.fetch_partials(self._described(), ids)
        if known:
            here = pl.Series([name in known for name in ids])
            schema = {column: rows.schema[column] for column in columns}
            held = unpack_rows([known[name] for name in ids if name in known], schema)
            places = rows.filter(here).drop(columns)
            rows = operator.kernel.unite([places.hstack(held).select(rows.columns), rows])
            ids = name_rows(rows.select(named))
        packed = pack_rows(rows.select(columns))
        results = operator.kernel.results(rows)
        return results.with_columns(pl.Series(ID, ids), pl.Series(PARTIALS, packed, dtype=pl.Binary))

    def _described(self) -> Table:
        assert self._session.schema is not None, "check() comes before everything else"
        columns = {**self._session.schema, ID: pl.String(), PARTIALS: pl.Binary()}
        return Table(self.table, columns, (ID,))

    def _bound(self) -> _Operator:
        if self.operator is None:
            msg = f"{self.label} merges partial results: write to it right behind the agg() of a keyed stream"
            raise SinkError(msg)
        return self.operator

    def _refuse_loss(self, mark: Mark | None, batch: int) -> None:
        found = "its mark is gone" if mark is None else f"it ends with batch {mark.batch} (store {mark.store})"
        msg = (
            f"{self.place} lost results that were merged into it before batch {batch}: {found}; was it emptied, or set "
            "back to an older copy? They are nowhere else: restore a copy of the table and its mark that has them, or "
            "begin with a new checkpoint and table, so that the sources are read again"
        )
        raise SinkError(msg)


def global_store(
    url: str | os.PathLike[str], *, table: str, patience_seconds: float = DEFAULT_PATIENCE_SECONDS
) -> GlobalStoreSink:
    """Let partial results meet in a table, one row a key and window, exactly once: Global Merge, without an exchange.

    The store is a file of SQLite (a path, or ``sqlite:///path``), ``postgresql://…``, ``mariadb://…`` or ``redis://…``;
    ``${NAME}`` in a URL is an environment variable of the driver. The table is made if it is absent.

    Examples:
        >>> lowest = readings.key_by("sensor", exchange="global").agg(lowest=ab.min("volts"))
        >>> _ = lowest.write(ab.global_store("lowest.sqlite", table="lowest"))
        >>> _ = flow.backfill("state")
        >>> ab.read_global_store("lowest.sqlite", "lowest").select("sensor", "lowest").sort("sensor").rows()
        [(1, 206.25), (2, 229.5)]
    """
    if not _NAME.fullmatch(table):
        msg = f"{table!r} is no table; give a name, or schema.name"
        raise SinkError(msg)
    return GlobalStoreSink(_checked_url(url), table, patience_seconds)


def read_global_store(url: str | os.PathLike[str], table: str) -> pl.DataFrame:
    """Return the rows of a table that ``global_store`` made: keys, windows and values, in no order.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.global_store("rows.sqlite", table="rows"))
        >>> _ = flow.backfill("state")
        >>> ab.read_global_store("rows.sqlite", "rows")["rows"].sum()
        4
    """
    checked = _checked_url(url)
    place = show_address(checked)

    def read() -> pl.DataFrame:
        store = _open(checked)
        with closing(store), explained(store, lambda _, reason: f"{place} {table} cannot be read: {reason}"):
            return store.read_rows(table)

    return insist(place, at_start(DEFAULT_PATIENCE_SECONDS), read)


def _checked_url(url: str | os.PathLike[str]) -> str:
    text = os.fspath(url)
    scheme, separator, _ = text.partition("://")
    if not separator or scheme == "sqlite":
        return f"{SCHEME}{path_of(text)}"
    if scheme not in _STORES:
        known = ", ".join(f"{name}://" for name in ("sqlite", "postgresql", "mariadb", "redis"))
        msg = f"a global store is a file of SQLite or a URL of {known}; found one that begins with {scheme}://"
        raise SinkError(msg)
    return text


def _open(url: str) -> GlobalStore:
    filled = fill_in(url)
    return _STORES[filled.partition("://")[0]](filled)
