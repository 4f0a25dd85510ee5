"""Records inside of unpacked batches, found and copied by compiled code. Importing this takes as long as Numba.

A record is: length, attributes (a byte), time, offset less the batch's, key length, key, value length, value, headers;
all numbers but the attributes are variable-length and zigzag-coded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop
from anabranch.compiled.message_memory import copy_memory

Ints = NDArray[np.int64]
MALFORMED, HAS_NULL = -1, -2
_MORE = np.uint8(0x80)
_BITS = np.uint8(0x7F)
_LONGEST_BYTES = 10
_LINE_END = ord("\n")
_HIGHEST_DELTA, _ANY_TIME = 2**31 - 1, 2**63 - 1


def _find(
    batch: NDArray[np.uint8],
    count: int,
    base_offset: int,
    first: int,
    last: int,
    starts: Ints,
    ends: Ints,
    offsets: Ints,
) -> Any:
    """Note where the values of offsets from first to before last lie; return how many there are, or what is wrong.

    Behind each value a line end is written over the number of its headers, which nobody reads.
    """
    at = kept = 0
    numbers = np.zeros(5, np.int64)
    for _ in range(count):
        place = 0
        record_end = 0
        # Length, time, offset, key length, value length; one byte of attributes behind the first.
        while place < 5:
            number = np.uint64(0)
            shift = np.uint64(0)
            for step in range(_LONGEST_BYTES + 1):
                if at >= len(batch) or step == _LONGEST_BYTES:
                    return MALFORMED
                byte = batch[at]
                if step == _LONGEST_BYTES - 1 and byte > 1:
                    return MALFORMED
                at += 1
                number |= np.uint64(byte & _BITS) << shift
                if byte < _MORE:
                    break
                shift += np.uint64(7)
            numbers[place] = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
            # A sum with a wild length would overflow, and the loop read and write anywhere.
            if numbers[place] > (_HIGHEST_DELTA if place == 2 else _ANY_TIME if place == 1 else len(batch)):
                return MALFORMED
            if place == 0:
                record_end = at + numbers[0]
                at += 1
            elif place == 3:
                at += max(0, numbers[3])
            place += 1
        size = numbers[4]
        if record_end > len(batch) or at + max(0, size) >= record_end or numbers[2] < 0:
            return MALFORMED
        offset = base_offset + numbers[2]
        if first <= offset < last:
            if size < 0:
                return HAS_NULL
            starts[kept] = at
            ends[kept] = at + size
            batch[at + size] = _LINE_END
            offsets[kept] = offset
            kept += 1
        at = record_end
    return kept


def _gather(address: Any, starts: Ints, ends: Ints, text: NDArray[np.uint8], place: int, new_ends: Ints) -> Any:
    """Copy values from behind an address, each followed by a line end; return where the next one goes."""
    for index in range(len(starts)):
        size = ends[index] - starts[index]
        copy_memory(text, place, address + np.uint64(starts[index]), size)
        place += size
        new_ends[index] = place
        text[place] = _LINE_END
        place += 1
    return place


find_values = compile_loop(_find)
gather_values = compile_loop(_gather)
