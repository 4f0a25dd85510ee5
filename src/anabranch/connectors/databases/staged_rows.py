"""Rows on their way into a database: staged in tasks, read on the driver, the last of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, get_args

import polars as pl

from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.connectors.formats.json_texts import write_json_values
from anabranch.errors import SinkError
from anabranch.model import StagedFile

SUFFIX = ".arrow"
Mode = Literal["upsert", "append"]
"""Whether a later row of a key replaces the earlier one."""


@dataclass(frozen=True, slots=True)
class TaskSide:
    """What tasks get of a sink: enough to stage rows, and no address or password."""

    label: str
    suffix: str = SUFFIX

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise nothing: the driver has checked."""

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file."""
        return encode_arrow(frame)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> NoReturn:
        """Raise ``SinkError``: only the driver publishes."""
        msg = f"{self.label} is published by the driver; batch {batch} was asked of a task's copy"
        raise SinkError(msg)

    def retract(self, after_batch: int) -> NoReturn:
        """Raise ``SinkError``: only the driver takes back."""
        msg = f"{self.label} is changed by the driver; retracting after batch {after_batch} was asked of a task's copy"
        raise SinkError(msg)


class StagedByTasks:
    """What sinks have in common that the driver publishes: tasks get a ``TaskSide``, so that secrets stay here."""

    __slots__ = ()

    @property
    def label(self) -> str:
        """Name where the rows go, without secrets."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[type[TaskSide], tuple[str]]:
        return TaskSide, (self.label,)

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file."""
        return encode_arrow(frame)


def choose_mode(sink: str, keys: str | Sequence[str], mode: Mode | None) -> tuple[tuple[str, ...], Mode]:
    """Return the keys and the mode that are meant: rows of a key replace each other, unless told otherwise."""
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    chosen: Mode = mode or ("upsert" if names else "append")
    if chosen not in get_args(Mode):
        msg = f"mode of {sink} is 'upsert' or 'append', found {mode!r}"
        raise SinkError(msg)
    return names, chosen


def describe_mode(mode: Mode, keys: Sequence[str]) -> str:
    """Return how rows are written, as labels say it."""
    return f"upsert by {', '.join(keys)}" if mode == "upsert" else "append"


def last_of_each_key(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the last row of every key, in their order; all rows if there are no keys."""
    return frame.unique(subset=list(keys), keep="last", maintain_order=True) if keys else frame


def check_columns(schema: Mapping[str, pl.DataType], wanted: Sequence[str], what: str) -> None:
    """Raise ``SinkError`` if a column that is named does not exist."""
    strangers = [column for column in wanted if column not in schema]
    if strangers:
        msg = f"{what} names {', '.join(map(repr, strangers))}; the results have {', '.join(schema)}"
        raise SinkError(msg)


def json_texts(column: str) -> pl.Expr:
    """Return an expression that turns lists and structs into JSON, bytes in base64, nulls left as they are."""
    return pl.col(column).map_batches(write_json_values, return_dtype=pl.String)


def is_nested(kind: pl.DataType) -> bool:
    """Say whether a type holds other values."""
    return isinstance(kind, pl.List | pl.Array | pl.Struct)
