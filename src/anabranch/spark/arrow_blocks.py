"""Blocks as Spark carries them: a row each, in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    Row,
    ShortType,
    StructType,
)

from anabranch.engine.tasks.blocks import TARGET_BLOCK_BYTES, Block, BlockKind
from anabranch.spark.prompt_input import promptly

EXCHANGE_SCHEMA = (
    StructType()
    .add("level", ShortType())
    .add("slot", IntegerType())
    .add("kind", ByteType())
    .add("operator", IntegerType())
    .add("input", ByteType())
    .add("seq", LongType())
    .add("combined", BooleanType())
    .add("payload", BinaryType())
    .add("rows", IntegerType())
)
"""The fields of a block, in their order."""
_ARROW_SCHEMA = pa.schema(
    [
        ("level", pa.int16()),
        ("slot", pa.int32()),
        ("kind", pa.int8()),
        ("operator", pa.int32()),
        ("input", pa.int8()),
        ("seq", pa.int64()),
        ("combined", pa.bool_()),
        ("payload", pa.binary()),
        ("rows", pa.int32()),
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
        _block(row)
        for batch in promptly(iter(batches))
        for row in zip(*(batch.column(name).to_pylist() for name in _ARROW_SCHEMA.names), strict=True)
    ]


def from_rows(rows: Iterable[Row]) -> list[Block]:
    """Read the blocks that a job ends with."""
    return [_block(row) for row in rows]


def _block(row: Sequence[Any]) -> Block:
    level, slot, kind, operator, input, seq, combined, payload, rows = row
    return Block(level, slot, BlockKind(kind), operator, input, seq, combined, bytes(payload), rows)


def _record_batch(blocks: list[Block]) -> pa.RecordBatch:
    columns = [
        _pack_payloads([block.payload for block in blocks])
        if field.name == "payload"
        else pa.array([getattr(block, field.name) for block in blocks], field.type)
        for field in _ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


def _pack_payloads(payloads: list[bytes]) -> pa.Array:
    """Return megabytes as a column: copied once if there are several, and not at all if there is one."""
    offsets = np.zeros(len(payloads) + 1, np.int32)
    np.cumsum([len(payload) for payload in payloads], out=offsets[1:])
    content = payloads[0] if len(payloads) == 1 else b"".join(payloads)
    return pa.Array.from_buffers(pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
