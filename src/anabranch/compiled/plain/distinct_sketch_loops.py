"""Plain twins of ``distinct_sketch_loops``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WORD = (1 << 64) - 1
_C1, _C2, _SEED = 0x87C37B91114253D5, 0x4CF5AD432745937F, 9001
_MIX_1, _MIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
_ADDRESS_BITS = 26
_MOST_ZEROS = 62


def hash_octets(offsets: NDArray[np.int64], content: NDArray[np.uint8], coupons: NDArray[np.uint32]) -> None:
    """Fill in the coupon of each value: by MurmurHash3 of 128 bits, a place of 26 bits and how rare it is."""
    octets = bytes(content)
    for place in range(len(coupons)):
        low, high = _murmur(octets[offsets[place] : offsets[place + 1]])
        zeros = min(64 - high.bit_length(), _MOST_ZEROS)
        coupons[place] = (low & ((1 << _ADDRESS_BITS) - 1)) | (zeros + 1) << _ADDRESS_BITS


def _murmur(octets: bytes) -> tuple[int, int]:
    """Return the two halves of MurmurHash3_x64_128."""
    low = high = _SEED
    whole = len(octets) // 16 * 16
    for start in range(0, whole, 16):
        low ^= _scramble(octets[start : start + 8], _C1, 31, _C2)
        low = ((_rotate(low, 27) + high) * 5 + 0x52DCE729) & _WORD
        high ^= _scramble(octets[start + 8 : start + 16], _C2, 33, _C1)
        high = ((_rotate(high, 31) + low) * 5 + 0x38495AB5) & _WORD
    # Nothing scrambled is nothing: no rest needs no step.
    high ^= _scramble(octets[whole + 8 :], _C2, 33, _C1)
    low ^= _scramble(octets[whole : whole + 8], _C1, 31, _C2)
    low, high = low ^ len(octets), high ^ len(octets)
    low = (low + high) & _WORD
    high = (high + low) & _WORD
    low, high = _finish(low), _finish(high)
    low = (low + high) & _WORD
    return low, (high + low) & _WORD


def _scramble(octets: bytes, first: int, bits: int, second: int) -> int:
    return _rotate(int.from_bytes(octets, "little") * first & _WORD, bits) * second & _WORD


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _WORD


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * _MIX_1 & _WORD
    word = (word ^ word >> 33) * _MIX_2 & _WORD
    return word ^ word >> 33


def keep_different(
    coupons: NDArray[np.uint32], ends: NDArray[np.int64], kept: NDArray[np.uint32], kept_ends: NDArray[np.int64]
) -> None:
    """Keep the different coupons of each group, in the order in which they come; none is 0, 0 is no value."""
    start = count = 0
    for group, end in enumerate(ends.tolist()):
        different = [coupon for coupon in dict.fromkeys(coupons[start:end].tolist()) if coupon]
        kept[count : count + len(different)] = different
        start, count = end, count + len(different)
        kept_ends[group] = count


def raise_registers(coupons: NDArray[np.uint32], registers: NDArray[np.uint8]) -> None:
    """Let each register have the largest value of the coupons that fall on it."""
    np.maximum.at(registers, coupons % len(registers), (coupons >> _ADDRESS_BITS).astype(np.uint8))
