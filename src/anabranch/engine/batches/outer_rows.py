"""Rows that do not come by splits: whoever runs a flow's jobs reads them itself, as Spark reads its DataFrames."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

import polars as pl

from anabranch.errors import FlowError
from anabranch.query.nodes import Readable

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


def refuse_to_hold(sources: Mapping[int, Readable], held: Collection[int]) -> None:
    """Raise ``FlowError`` if one of the sources that may have to be held back is read by somebody else."""
    for number, source in sources.items():
        if number in held and isinstance(source, OuterSource):
            msg = (
                f"{source.label}: align holds a source back that runs ahead, and what Spark reads itself cannot be "
                "held back; read it by ab.kafka, ab.files or another source of Anabranch's own, or leave align out"
            )
            raise FlowError(msg)


def refuse_to_limit(sources: Mapping[int, Readable]) -> None:
    """Raise ``FlowError`` if somebody else reads every source, so that no batch could be made smaller."""
    if sources and all(isinstance(source, OuterSource) for source in sources.values()):
        labels = ", ".join(source.label for source in sources.values())
        msg = (
            f"{labels}: a target for latency makes batches smaller, and Spark alone says how large those of its own "
            "sources are; limit them there (maxOffsetsPerTrigger, maxFilesPerTrigger), or leave latency out"
        )
        raise FlowError(msg)


def decode_rows(block: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Read a block of rows, in the declared types."""
    frame = pl.read_ipc_stream(io.BytesIO(block))
    return frame.cast(pl.Schema(schema)) if dict(frame.schema) != dict(schema) else frame
