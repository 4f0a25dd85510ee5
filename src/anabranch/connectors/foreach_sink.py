"""A callback that gets each batch as a Spark DataFrame, so that any Spark sink can be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from anabranch.connectors.formats.encodings import encode_parquet
from anabranch.errors import FlowError, SinkError
from anabranch.model import StagedFile
from anabranch.model.column_kinds import has_empty_struct, holds, with_leaves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_FORM = (pl.Int128, pl.UInt128, pl.Float16, pl.Time, pl.Null, pl.Object)


@dataclass(frozen=True, slots=True)
class ForeachSink:
    """Calls back after each commit; made by ``foreach``."""

    callback: Callable[[DataFrame, int], object]
    empty_batches: bool
    suffix: str = ".parquet"

    @property
    def label(self) -> str:
        """Name the callback."""
        return f"foreach {getattr(self.callback, '__qualname__', repr(self.callback))}"

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only encode; the callback stays on the driver and need not be picklable.
        return {"empty_batches": self.empty_batches, "suffix": self.suffix}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "callback", _refuse_to_run)
        object.__setattr__(self, "empty_batches", state["empty_batches"])
        object.__setattr__(self, "suffix", state["suffix"])

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise ``SinkError`` for a column that Spark has no type for."""
        for column, kind in schema.items():
            if holds(kind, *_NO_FORM) or has_empty_struct(kind):
                msg = f"column {column!r} is {kind}, which Spark has no type for; cast it before the sink"
                raise SinkError(msg)

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return a Parquet file that Spark can read."""
        kinds = {column: with_leaves(kind, _as_in_spark) for column, kind in frame.schema.items()}
        return encode_parquet(frame.cast(kinds))  # type: ignore[arg-type]

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Call back with the batch's rows; after a crash it may be called again with the same batch id.

        Batches without rows are skipped unless they were asked for.
        """
        # A plain path would be looked up in Spark's default file system, which may be another one.
        paths = [
            path if "://" in path else f"file://{path}" for file, path in staged if file.rows or self.empty_batches
        ]
        if not paths:
            return
        spark = context.get("spark")
        if spark is None:
            msg = "foreach needs a Spark session to make its DataFrame; use another sink outside of Spark"
            raise SinkError(msg)
        frame = spark.read.parquet(*paths)
        try:
            self.callback(frame, batch)
        except Exception as error:
            msg = f"the callback {self.label} failed at batch {batch}: {type(error).__name__}: {error}"
            raise SinkError(msg) from error

    def retract(self, after_batch: int) -> None:
        """Raise ``SinkError``: what a callback did cannot be taken back from here."""
        msg = f"{self.label} cannot take back what it did after batch {after_batch}; undo it where it was written"
        raise SinkError(msg)


def foreach(callback: Callable[[DataFrame, int], object], *, empty_batches: bool = False) -> ForeachSink:
    """Call ``callback(dataframe, batch_id)`` after each commit, with the results as a Spark DataFrame.

    A batch may come twice, with the same id and the same rows, if the driver dies in between: write it under its id.
    ``empty_batches`` asks for batches without rows, too, as far as some slot wrote an empty result file.

    Examples:
        >>> def keep(rows, batch_id):
        ...     rows.write.mode("overwrite").parquet(f"lowest/batch={batch_id}")
        >>> _ = readings.key_by("sensor").agg(lowest=ab.min("volts")).write(ab.foreach(keep))
        >>> flow.sinks[0].label
        'foreach keep'
    """
    _check_callback(callback)
    return ForeachSink(callback, empty_batches)


def _as_in_spark(kind: pl.DataType) -> pl.DataType:
    # Spark's times are microseconds, and it refuses files with others.
    return pl.Datetime("us", kind.time_zone) if isinstance(kind, pl.Datetime) else kind


def _check_callback(found: object) -> None:
    if not callable(found):
        msg = f"foreach calls a function with each batch, found {found!r}; give def save(dataframe, batch_id): …"
        raise FlowError(msg)


def _refuse_to_run(frame: object, batch: int) -> None:
    msg = f"the callback of batch {batch} lives on the driver; it is not sent to tasks"
    raise SinkError(msg)
