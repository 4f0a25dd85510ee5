"""The compiled half of ``hashing``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_MOST_CHARACTERS = 20
_ZERO, _MINUS = np.uint8(ord("0")), np.uint8(ord("-"))


def _hash_integers(numbers: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """Fill in the XXH64, with seed 0, of each number as decimal text; such a text has fewer than 32 bytes."""
    text = np.zeros(_MOST_CHARACTERS, np.uint8)
    for i in range(len(numbers)):
        number = numbers[i]
        # The smallest number has no opposite.
        rest = np.uint64(number) if number >= 0 else np.uint64(-(number + 1)) + np.uint64(1)
        start = _MOST_CHARACTERS
        while True:
            start -= 1
            tenth = rest // np.uint64(10)
            text[start] = _ZERO + np.uint8(rest - tenth * np.uint64(10))
            rest = tenth
            if rest == np.uint64(0):
                break
        if number < 0:
            start -= 1
            text[start] = _MINUS
        mixed = _PRIME_5 + np.uint64(_MOST_CHARACTERS - start)
        while start + 8 <= _MOST_CHARACTERS:
            word = np.uint64(0)
            for place in range(8):
                word |= np.uint64(text[start + place]) << np.uint64(8 * place)
            word *= _PRIME_2
            word = (word << np.uint64(31)) | (word >> np.uint64(33))
            mixed ^= word * _PRIME_1
            mixed = ((mixed << np.uint64(27)) | (mixed >> np.uint64(37))) * _PRIME_1 + _PRIME_4
            start += 8
        if start + 4 <= _MOST_CHARACTERS:
            word = np.uint64(0)
            for place in range(4):
                word |= np.uint64(text[start + place]) << np.uint64(8 * place)
            mixed ^= word * _PRIME_1
            mixed = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) * _PRIME_2 + _PRIME_3
            start += 4
        while start < _MOST_CHARACTERS:
            mixed ^= np.uint64(text[start]) * _PRIME_5
            mixed = ((mixed << np.uint64(11)) | (mixed >> np.uint64(53))) * _PRIME_1
            start += 1
        mixed = (mixed ^ (mixed >> np.uint64(33))) * _PRIME_2
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _PRIME_3
        hashes[i] = mixed ^ (mixed >> np.uint64(32))


hash_integers = compile_loop(_hash_integers)
