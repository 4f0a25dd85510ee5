"""Delta Lake tables: a batch is one version of the table, with the batch's number as application transaction."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from anabranch.connectors.commit_markers import NOTHING
from anabranch.connectors.databases.staged_rows import (
    SUFFIX,
    Mode,
    StagedByTasks,
    check_columns,
    choose_mode,
    describe_mode,
    last_of_each_key,
)
from anabranch.connectors.extras import import_extra
from anabranch.connectors.filesystem.sinks import check_writable
from anabranch.connectors.filesystem.staged_frames import read_staged, real_place
from anabranch.connectors.retry import DEFAULT_PATIENCE_SECONDS, ServerAway, at_start, insist
from anabranch.connectors.sink_ownership import refuse_newer
from anabranch.errors import SinkError
from anabranch.model import StagedFile
from anabranch.model.column_kinds import has_empty_struct, holds, with_leaves
from anabranch.state.objects import is_url

_FORMS: dict[type[pl.DataType], pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
    pl.Duration: pl.Int64(),
    pl.Categorical: pl.String(),
    pl.Enum: pl.String(),
}
"""What has no type there → what it is written as."""
_NO_FORM = (pl.Time, pl.Object, pl.Null, pl.Int128, pl.UInt128, pl.Float16)


@dataclass(slots=True)
class _Session:
    """What the driver has seen: whose table it is, and the last batch it holds."""

    flow: str | None = None
    seen: int = NOTHING


@dataclass(frozen=True, slots=True)
class DeltaSink(StagedByTasks):
    """A Delta table; made by ``delta``."""

    path: str
    keys: tuple[str, ...]
    mode: Mode
    partition_by: tuple[str, ...]
    storage_options: Mapping[str, str] = field(repr=False)
    patience_seconds: float
    suffix: str = SUFFIX
    _session: _Session = field(default_factory=_Session, repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name the table."""
        return f"delta {self.path} ({describe_mode(self.mode, self.keys)})"

    @property
    def place(self) -> str:
        """Name the table, by its real path where there is one."""
        return real_place(self.path)

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` if keys are no columns, a column has no form in Delta, or the place is not writable."""
        check_columns(schema, self.keys, f"keys of {self.label}")
        check_columns(schema, self.partition_by, f"partition_by of {self.label}")
        for column, kind in schema.items():
            if holds(kind, *_NO_FORM) or has_empty_struct(kind):
                msg = f"column {column!r} is {kind}, which Delta Lake has no type for; cast it before the sink"
                raise SinkError(msg)
        if not is_url(self.path):
            check_writable(self.path)

    def claim(self, flow: str, last_batch: int | None) -> None:
        """Take the table for this flow; refuse later batches than the checkpoint's."""

        def look() -> None:
            self._session.flow, self._session.seen = flow, _published_by(flow, self._find_table())
            # Batches without rows leave no trace in the table: one that is behind need not have lost anything.
            refuse_newer(self.label, self._session.seen, last_batch)

        insist(self.place, at_start(self.patience_seconds), look)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Make the batch's rows a version of the table, unless it has that batch; one without rows leaves no trace."""
        if any(file.rows for file, _ in staged):
            flow = str(context["flow"])
            insist(self.place, self.patience_seconds, lambda: self._publish(batch, staged, flow))

    def written(self) -> tuple[str, ...]:
        """Return the path or URL of a data file, as an example."""
        folders = "".join(f"{column}=0/" for column in self.partition_by)
        return (f"{self.path}/{folders}part-00000-0-c000.snappy.parquet",)

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: Delta restores tables to versions, which a person should choose."""
        msg = (
            f"{self.label} is not changed: RESTORE it to the version before batch {after_batch + 1} (its history names "
            "the batches), and run the flow with a new table, or a new flow name, from there"
        )
        raise SinkError(msg)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], flow: str) -> None:
        deltalake = _import_deltalake()
        table = self._find_table()
        published = _published_by(flow, table)
        if self._session.flow == flow and self._session.seen > published:
            found = "is gone" if table is None else f"ends with {published}"
            msg = (
                f"{self.label} held batch {self._session.seen} and now {found}: it was deleted or set back; restore "
                "it, or write to another table"
            )
            raise SinkError(msg)
        if published >= batch:
            return
        rows = read_staged(staged)
        assert rows is not None, "some staged file has rows"
        rows = last_of_each_key(rows, self.keys if self.mode == "upsert" else ()).select(
            _as_delta(column, kind) for column, kind in rows.schema.items()
        )
        if table is None:
            # Rows that come with a new table would be added to one that another driver made meanwhile, unlooked at.
            table = self._make_table(rows.schema)
            if _published_by(flow, table) >= batch:
                return
        properties = deltalake.CommitProperties(
            custom_metadata={"anabranch.flow": flow, "anabranch.batch": str(batch)},
            app_transactions=[deltalake.Transaction(_application(flow), batch)],
        )
        self._write(table, rows, properties)
        self._session.flow, self._session.seen = flow, batch

    def _write(self, table: Any, rows: pl.DataFrame, properties: Any) -> None:
        """Commit on top of the version that was looked at: refused if this flow's number was written since."""
        with self._explained():
            if self.mode == "append":
                _import_deltalake().write_deltalake(table, rows, mode="append", commit_properties=properties)
                return
            same = " AND ".join(f"target.`{key}` IS NOT DISTINCT FROM source.`{key}`" for key in self.keys)
            (
                table.merge(
                    rows, predicate=same, source_alias="source", target_alias="target", commit_properties=properties
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )

    def _make_table(self, schema: pl.Schema) -> Any:
        """Return a new table without rows, or the one that somebody else made just now."""
        with self._explained():
            return _import_deltalake().DeltaTable.create(
                self.path,
                schema=schema,
                mode="ignore",
                partition_by=list(self.partition_by) or None,
                storage_options=dict(self.storage_options),
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        exceptions = _import_deltalake().exceptions
        try:
            yield
        except exceptions.CommitFailedError as error:
            # Another writer came first: look at the table again.
            raise ServerAway(_first_line(error)) from None
        except (exceptions.DeltaError, OSError) as error:
            reason = _first_line(error)
            if is_url(self.path) and isinstance(error, OSError):
                raise ServerAway(reason) from None
            msg = f"{self.label} does not take the rows: {reason}; change the table, or the results by select()"
            raise SinkError(msg) from None

    def _find_table(self) -> Any:
        """Return the table as it is now, None if there is none."""
        deltalake = _import_deltalake()
        options = dict(self.storage_options)
        try:
            if not deltalake.DeltaTable.is_deltatable(self.path, storage_options=options):
                return None
            return deltalake.DeltaTable(self.path, storage_options=options)
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise ServerAway(_first_line(error)) from None


def delta(
    path: str | os.PathLike[str],
    *,
    keys: Sequence[str] = (),
    mode: Mode | None = None,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
) -> DeltaSink:
    """Write results into a Delta Lake table at a path or URL, exactly once: every batch is one version of it.

    With ``keys`` a later row of a key replaces the earlier one, by a merge. The table is made before the first rows.

    Examples:
        >>> ab.delta("s3://lake/lowest", keys=["sensor"]).label
        'delta s3://lake/lowest (upsert by sensor)'
    """
    _import_deltalake()
    names, chosen = choose_mode("delta", keys, mode)
    parts = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    if chosen == "upsert" and not names:
        msg = f"upsert into {os.fspath(path)} needs keys, such as keys=('sensor', 'window_start'); or use mode='append'"
        raise SinkError(msg)
    place = os.fspath(path)
    place = place.rstrip("/") if is_url(place) else os.path.abspath(place)
    return DeltaSink(place, names, chosen, parts, dict(storage_options or {}), patience_seconds)


def _import_deltalake() -> Any:
    import_extra("deltalake.exceptions", "delta", "Delta Lake needs its package", SinkError)
    return import_extra("deltalake", "delta", "Delta Lake needs its package", SinkError)


def _published_by(flow: str, table: Any) -> int:
    """Return the last batch of a flow that a table has, as of the version that was looked at."""
    batch = None if table is None else table.transaction_version(_application(flow))
    return NOTHING if batch is None else int(batch)


def _application(flow: str) -> str:
    return f"anabranch/{flow}"


def _as_delta(column: str, kind: pl.DataType) -> pl.Expr:
    in_microseconds = with_leaves(kind, _in_microseconds)
    return pl.col(column).cast(in_microseconds).cast(with_leaves(in_microseconds, _form_of))


def _in_microseconds(kind: pl.DataType) -> pl.DataType:
    if isinstance(kind, pl.Datetime):
        return pl.Datetime("us", None if kind.time_zone is None else "UTC")
    return pl.Duration("us") if isinstance(kind, pl.Duration) else kind


def _form_of(kind: pl.DataType) -> pl.DataType:
    return _FORMS.get(kind.base_type(), kind)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
