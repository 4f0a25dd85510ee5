"""What crosses an exchange: Arrow blocks for one slot, and reports on their way to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.compiled.hash_order import order_by_number
from anabranch.engine.tasks.packing import pack, unpack

TARGET_BLOCK_BYTES = 8 << 20
NO_OPERATOR = -1
"""Stands for the operator of a block that is for a task or for the driver as a whole."""
DRIVER = (1 << 15) - 1
"""Stands for the level of a block that is for the driver: it goes through the tasks of all levels before."""


class BlockKind(IntEnum):
    """What a block holds. The numbers are the order in which a task has its blocks."""

    SHARED = 0
    """Unfinished rows of keys that slots share: they meet before they leave the operator."""
    REPORT = 1
    """What a task says to the driver."""
    ROWS = 2
    BUFFERED = 3
    """Rows that a task before held back in earlier batches."""
    TIMES = 4
    """What a task saw of event time, for all slots of a level."""
    FAILURE = 5
    """Why a task failed: whoever gets one does nothing but pass it on."""


@dataclass(frozen=True, slots=True)
class Block:
    """One row of an exchange."""

    level: int
    """The level whose tasks it is for; those of levels between pass it on."""
    slot: int
    """Which of these tasks it is for."""
    kind: BlockKind
    operator: int
    """The node that its rows are for."""
    input: int
    """Which of the node's inputs they come in by."""
    seq: int
    """Tells blocks apart, and orders those of a kind: by the level and number of the task that sent them."""
    combined: bool
    """Whether rows of a key were merged."""
    payload: bytes
    rows: int = 0
    """That the payload holds; 0 if it holds something else."""


def encode(frame: pl.DataFrame) -> bytes:
    """Return the frame as bytes."""
    return pack(frame)


def decode(payload: bytes) -> pl.DataFrame:
    """Read what ``encode`` wrote."""
    return unpack(payload)


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


def in_order(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks of a slot in an order that does not depend on which came first."""
    return sorted(blocks, key=lambda block: (block.kind, block.operator, block.input, block.seq))


def _chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rows = max(1, int(frame.height * TARGET_BLOCK_BYTES / max(1, frame.estimated_size())))
    for start in range(0, frame.height, rows):
        yield frame[start : start + rows]
