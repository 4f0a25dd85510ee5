"""Rows that do not come by splits: whoever runs a flow's jobs reads them itself, as Spark reads its DataFrames."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import polars as pl

OUTER_STREAM = "Spark stream"
"""The kind of source that brings such rows in every batch, as checkpoints name it."""


@runtime_checkable
class OuterSource(Protocol):
    """A source whose rows come with the batch, packed into blocks, and not by splits."""

    streaming: bool
    """Whether rows come in every batch; else all of them come in the first."""


class OuterRows(Protocol):
    """The rows of a batch that come in blocks."""

    def take_blocks(self, count: int) -> list[tuple[int, bytes]]:
        """Return some blocks, as (source, block): the first few, for a look at them."""
        ...


def decode_rows(block: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Read a block of rows, in the declared types."""
    frame = pl.read_ipc_stream(io.BytesIO(block))
    return frame.cast(pl.Schema(schema)) if dict(frame.schema) != dict(schema) else frame
