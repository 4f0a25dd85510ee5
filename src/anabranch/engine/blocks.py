"""What crosses an exchange: Arrow blocks for one slot, and ledgers on their way to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.compiled.hash_order import order_by_number
from anabranch.engine.packing import pack, unpack

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


def in_order(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks of a slot in an order that does not depend on which came first."""
    return sorted(blocks, key=lambda block: (block.head, block.seq))


def _chunks(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    rows = max(1, int(frame.height * TARGET_BLOCK_BYTES / max(1, frame.estimated_size())))
    for start in range(0, frame.height, rows):
        yield frame[start : start + rows]
