"""What crosses an exchange: Arrow blocks for one slot, and ledgers on their way to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StructType

from anabranch.compiled.hash_order import order_by_number
from anabranch.engine.packing import pack, unpack
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
LEDGER = -1
"""The head of rows that carry a ledger, plain JSON for the driver."""
FAILURE = 1 << 22
"""The head of rows that say why a task failed: whoever gets one does nothing but pass it on."""
_HELD = 1 << 20
_TIMES = 1 << 21


def meeting_of(head: int) -> int:
    """Return what blocks have as their head whose rows meet before they leave the stateful node ``head``."""
    return LEDGER - 1 - head


def held_of(head: int) -> int:
    """Return what blocks have as their head whose rows, for the stateful node ``head``, were held back by a reader."""
    return _HELD + head


def times_of(level: int) -> int:
    """Return what rows have as their head that tell the slots of a level, in plain JSON, what a task saw of time."""
    return _TIMES + level


TARGET_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """One row of an exchange."""

    slot: int
    head: int
    seq: int
    combined: bool
    payload: bytes


def encode(frame: pl.DataFrame) -> bytes:
    """Return the frame as bytes."""
    return pack(frame)


def decode(payload: bytes) -> pl.DataFrame:
    """Read what ``encode`` wrote."""
    return unpack(payload)


def ledger(slot: int, seq: int, content: dict[str, Any]) -> Block:
    """Wrap a report for its way to the driver."""
    return Block(slot, LEDGER, seq, False, write_json(content))


def write_json(content: Any) -> bytes:
    """Return plain JSON data as bytes; equal data give equal bytes."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def cut(frame: pl.DataFrame, slots: npt.NDArray[np.int32], slot_count: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """Cut a frame into the parts of each slot, in slot order, rows in their old order; ``slots`` has each row's."""
    if slot_count == 1:
        yield from ((0, part) for part in _chunks(frame))
        return
    order, edges = order_by_number(slots, slot_count)
    gathered = frame[order]
    for slot in range(slot_count):
        start, end = int(edges[slot]), int(edges[slot + 1])
        if end > start:
            yield from ((slot, part) for part in _chunks(gathered[start:end]))


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
    """Read the blocks of a slot, in an order that does not depend on which came first."""
    blocks = [
        Block(*row)
        for batch in promptly(iter(batches))
        for row in zip(*(batch.column(name).to_pylist() for name in _ARROW_SCHEMA.names), strict=True)
    ]
    return sorted(blocks, key=lambda block: (block.head, block.seq))


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


def _chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rows = max(1, int(frame.height * TARGET_BLOCK_BYTES / max(1, frame.estimated_size())))
    for start in range(0, frame.height, rows):
        yield frame[start : start + rows]
