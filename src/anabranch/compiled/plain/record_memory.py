"""Plain twins of ``record_memory``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.plain.avro_loops import read_number
from anabranch.compiled.plain.memory import bytes_at
from anabranch.compiled.record_memory import HAS_NULL, MALFORMED

Ints = NDArray[np.int64]
_HIGHEST_DELTA = 2**31 - 1


def find_values(
    batch: NDArray[np.uint8],
    count: int,
    base_offset: int,
    first: int,
    last: int,
    starts: Ints,
    ends: Ints,
    offsets: Ints,
) -> int:
    """Note where the values of offsets from first to before last lie; return how many there are, or what is wrong."""
    at = kept = 0
    for _ in range(count):
        found = _read_record(bytes(batch), at)
        if found is None:
            return MALFORMED
        delta, start, size, at = found
        if first <= base_offset + delta < last:
            if size < 0:
                return HAS_NULL
            starts[kept], ends[kept], offsets[kept] = start, start + size, base_offset + delta
            # Over the number of headers, which nobody reads.
            batch[start + size] = ord("\n")
            kept += 1
    return kept


def _read_record(batch: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return the offset, less the batch's, where the value begins, its size and where the record ends."""
    numbers: list[int] = []
    record_end = 0
    for highest in (len(batch), 2**63 - 1, _HIGHEST_DELTA, len(batch), len(batch)):
        found = read_number(batch[at:])
        if found is None:
            return None
        # Zigzag: even numbers are positive ones.
        number = found[0] // 2 if found[0] % 2 == 0 else -(found[0] // 2) - 1
        at += found[1]
        if number > highest:
            return None
        numbers.append(number)
        if len(numbers) == 1:
            # One byte of attributes lies behind the length.
            record_end, at = at + number, at + 1
        elif len(numbers) == 4:
            at += max(0, number)
    _, _, delta, _, size = numbers
    # At least the number of headers lies behind the value.
    is_whole = delta >= 0 and at + max(0, size) < record_end <= len(batch)
    return (delta, at, size, record_end) if is_whole else None


def gather_values(address: int, starts: Ints, ends: Ints, text: NDArray[np.uint8], place: int, new_ends: Ints) -> int:
    """Copy values from behind an address, each followed by a line end; return where the next one goes."""
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        value = bytes_at(int(address) + start, end - start) + b"\n"
        text[place : place + len(value)] = list(value)
        place += len(value)
        new_ends[index] = place - 1
    return place
