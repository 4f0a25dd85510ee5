"""The compiled half of ``distinct_sketches``. Importing this takes as long as importing Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_SEED = np.uint64(9001)
_ADDRESS = np.uint64(0x3FFFFFF)
_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)


def _hash_octets(offsets: NDArray[np.int64], content: NDArray[np.uint8], coupons: NDArray[np.uint32]) -> None:
    """Fill in the coupon of each value: by MurmurHash3 of 128 bits, a place of 26 bits and how rare it is."""
    for i in range(len(coupons)):
        start, end = offsets[i], offsets[i + 1]
        h1, h2 = _SEED, _SEED
        at = start
        while at + 16 <= end:
            k1, k2 = np.uint64(0), np.uint64(0)
            for b in range(8):
                k1 |= np.uint64(content[at + b]) << np.uint64(8 * b)
                k2 |= np.uint64(content[at + 8 + b]) << np.uint64(8 * b)
            k1 *= _C1
            k1 = (k1 << np.uint64(31)) | (k1 >> np.uint64(33))
            h1 ^= k1 * _C2
            h1 = (h1 << np.uint64(27)) | (h1 >> np.uint64(37))
            h1 = (h1 + h2) * np.uint64(5) + np.uint64(0x52DCE729)
            k2 *= _C2
            k2 = (k2 << np.uint64(33)) | (k2 >> np.uint64(31))
            h2 ^= k2 * _C1
            h2 = (h2 << np.uint64(31)) | (h2 >> np.uint64(33))
            h2 = (h2 + h1) * np.uint64(5) + np.uint64(0x38495AB5)
            at += 16
        k1, k2 = np.uint64(0), np.uint64(0)
        for b in range(end - at):
            if b < 8:
                k1 |= np.uint64(content[at + b]) << np.uint64(8 * b)
            else:
                k2 |= np.uint64(content[at + b]) << np.uint64(8 * (b - 8))
        if end - at > 8:
            k2 *= _C2
            k2 = (k2 << np.uint64(33)) | (k2 >> np.uint64(31))
            h2 ^= k2 * _C1
        if end - at > 0:
            k1 *= _C1
            k1 = (k1 << np.uint64(31)) | (k1 >> np.uint64(33))
            h1 ^= k1 * _C2
        length = np.uint64(end - start)
        h1, h2 = h1 ^ length, h2 ^ length
        h1 += h2
        h2 += h1
        h1 = (h1 ^ (h1 >> np.uint64(33))) * _MIX_1
        h1 = (h1 ^ (h1 >> np.uint64(33))) * _MIX_2
        h1 ^= h1 >> np.uint64(33)
        h2 = (h2 ^ (h2 >> np.uint64(33))) * _MIX_1
        h2 = (h2 ^ (h2 >> np.uint64(33))) * _MIX_2
        h2 ^= h2 >> np.uint64(33)
        h1 += h2
        h2 += h1
        zeros = 0
        while zeros < 62 and not (h2 >> np.uint64(63 - zeros)) & np.uint64(1):
            zeros += 1
        coupons[i] = np.uint32(h1 & _ADDRESS) | (np.uint32(zeros + 1) << np.uint32(26))


def _keep_different(
    coupons: NDArray[np.uint32], ends: NDArray[np.int64], kept: NDArray[np.uint32], kept_ends: NDArray[np.int64]
) -> None:
    """Keep the different coupons of each group, in the order in which they come; none is 0, 0 is no value."""
    table = np.zeros(16, np.uint32)
    start = count = 0
    for group in range(len(ends)):
        places = 16
        while places < 2 * (ends[group] - start):
            places *= 2
        if places > len(table):
            table = np.zeros(places, np.uint32)
        else:
            table[:places] = 0
        mask = np.uint64(places - 1)
        for i in range(start, ends[group]):
            coupon = coupons[i]
            if coupon == 0:
                continue
            place = (np.uint64(coupon) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) & mask
            while table[place] != 0 and table[place] != coupon:
                place = (place + np.uint64(1)) & mask
            if table[place] == 0:
                table[place] = coupon
                kept[count] = coupon
                count += 1
        start = ends[group]
        kept_ends[group] = count


def _raise_registers(coupons: NDArray[np.uint32], registers: NDArray[np.uint8]) -> None:
    """Let each register have the largest value of the coupons that fall on it."""
    mask = np.uint32(len(registers) - 1)
    for i in range(len(coupons)):
        place = coupons[i] & mask
        registers[place] = max(registers[place], np.uint8(coupons[i] >> np.uint32(26)))


hash_octets = compile_loop(_hash_octets)
keep_different = compile_loop(_keep_different)
raise_registers = compile_loop(_raise_registers)
