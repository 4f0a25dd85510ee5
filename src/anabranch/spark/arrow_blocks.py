"""Blocks as Spark carries them: a row each, in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StructType

from anabranch.engine.blocks import TARGET_BLOCK_BYTES, Block
from anabranch.spark.prompt_input import promptly

EXCHANGE_SCHEMA = (
    StructType()
    .add("slot", IntegerType())
    .add("head", IntegerType())
    .add("seq", LongType())
    .add("combined", BooleanType())
    .add("block", BinaryType())
)
_ARROW_SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),
        ("head", pa.int32()),
        ("seq", pa.int64()),
        ("combined", pa.bool_()),
        ("block", pa.binary()),
    ]
)


def to_arrow(blocks: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """Pack blocks into Arrow batches of bounded size for Spark."""
    pending: list[Block] = []
    size = 0
    for block in blocks:
        pending.append(block)
        size += len(block.payload)
        if size >= 2 * TARGET_BLOCK_BYTES:
            yield _record_batch(pending)
            pending, size = [], 0
    if pending:
        yield _record_batch(pending)


def to_table(blocks: Iterable[Block]) -> pa.Table:
    """Pack blocks into one Arrow table, for the functions that take nothing else."""
    return pa.Table.from_batches(list(to_arrow(blocks)), schema=_ARROW_SCHEMA)


def from_arrow(batches: Iterable[pa.RecordBatch]) -> list[Block]:
    """Read blocks."""
    return [
        Block(*row)
        for batch in promptly(iter(batches))
        for row in zip(*(batch.column(name).to_pylist() for name in _ARROW_SCHEMA.names), strict=True)
    ]


def _record_batch(blocks: list[Block]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([block.slot for block in blocks], pa.int32()),
            pa.array([block.head for block in blocks], pa.int32()),
            pa.array([block.seq for block in blocks], pa.int64()),
            pa.array([block.combined for block in blocks], pa.bool_()),
            pa.array([block.payload for block in blocks], pa.binary()),
        ],
        schema=_ARROW_SCHEMA,
    )
