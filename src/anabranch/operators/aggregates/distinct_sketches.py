"""HyperLogLog sketches of many groups of values at once, in the bytes that Apache DataSketches reads.

The library takes one value at a time. Its hash makes a *coupon* of a value, a place and how rare it is; a sketch is a
list or a set of coupons while they are few, and the rarest of each place when they are many.
"""

from __future__ import annotations

import struct

import numpy as np
import polars as pl
from datasketches import hll_sketch, hll_union, tgt_hll_type
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS
from anabranch.operators.aggregates.text_codes import code_texts

HLL_TYPE = tgt_hll_type.HLL_4
Coupons = NDArray[np.uint32]
_WHOLE_TYPES = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_VERSION, _FAMILY = 1, 7
_LIST, _SET, _REGISTERS = 0, 1, 2
_OF_FOUR_BITS, _OF_EIGHT_BITS = 0 << 2, 2 << 2
"""What a sketch is to become, and what one is that holds registers of a byte each."""
_COMPACT, _OUT_OF_ORDER = 8, 16
_MOST_LISTED = 8
_SMALLEST_WITH_SET = 8
"""Sketches with a smaller ``lg_k`` have no sets."""
_LG_OF_FIRST_SET = 5


def sketch_groups(groups: pl.Series, lg_k: int) -> pl.Series | None:
    """Return the sketch of each list of texts or numbers, null for lists without values; None for few or wide values.

    Lists hold no nulls.
    """
    values = groups.explode(empty_as_null=False, keep_nulls=False)
    if len(values) < WORTH_COMPILED_CODE_ROWS or values.dtype not in (pl.String, *_WHOLE_TYPES, pl.Float32, pl.Float64):
        return None
    from anabranch.compiled.distinct_sketch_loops import keep_different

    lengths = groups.list.len().fill_null(0).to_numpy()
    coupons = _hash_texts(values) if values.dtype == pl.String else _hash_numbers(values)
    kept, kept_ends = np.empty(len(coupons), np.uint32), np.empty(len(lengths), np.int64)
    keep_different(coupons, np.cumsum(lengths, dtype=np.int64), kept, kept_ends)
    starts = np.concatenate((np.zeros(1, np.int64), kept_ends[:-1]))
    sketches = [
        _write(kept[start:end], lg_k) if length else None
        for start, end, length in zip(starts.tolist(), kept_ends.tolist(), lengths.tolist(), strict=True)
    ]
    return pl.Series(sketches, dtype=pl.Binary)


def _hash_texts(texts: pl.Series) -> Coupons:
    """Return the coupon of each text, 0 for the empty text: the library does not count it."""
    coded = code_texts(texts)
    if coded is not None:
        return _hash_each_text(coded.texts)[coded.codes]
    return _hash_each_text(texts)


def _hash_each_text(texts: pl.Series) -> Coupons:
    array = texts.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, content = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    coupons = _hash_octets(ends, np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8))
    coupons[ends[1:] == ends[:-1]] = 0
    return coupons


def _hash_numbers(numbers: pl.Series) -> Coupons:
    """Return the coupon of each number: of its eight bytes, where zeros are alike, and so are those that are none."""
    if numbers.dtype.is_integer():
        words = np.ascontiguousarray(numbers.cast(pl.Int64).to_numpy())
    else:
        words = numbers.cast(pl.Float64).to_numpy() + 0.0
        words[np.isnan(words)] = np.nan
    return _hash_octets(np.arange(len(words) + 1, dtype=np.int64) * 8, words.view(np.uint8))


def _hash_octets(ends: NDArray[np.int64], octets: NDArray[np.uint8]) -> Coupons:
    from anabranch.compiled.distinct_sketch_loops import hash_octets

    coupons = np.empty(len(ends) - 1, np.uint32)
    hash_octets(ends, octets, coupons)
    return coupons


def _write(coupons: Coupons, lg_k: int) -> bytes:
    """Return a sketch of different coupons as bytes."""
    count = len(coupons)
    if count == 0:
        return bytes(hll_sketch(lg_k, HLL_TYPE).serialize_compact())
    if count < _MOST_LISTED:
        return bytes((2, _VERSION, _FAMILY, lg_k, 3, _COMPACT, count, _LIST | _OF_FOUR_BITS)) + coupons.tobytes()
    if lg_k >= _SMALLEST_WITH_SET and 4 * count <= 3 << (lg_k - 3):
        lg_places = _LG_OF_FIRST_SET
        while 4 * count > 3 << lg_places:
            lg_places += 1
        start = bytes((3, _VERSION, _FAMILY, lg_k, lg_places, _COMPACT, 0, _SET | _OF_FOUR_BITS))
        return start + struct.pack("<I", count) + coupons.tobytes()
    union = hll_union(lg_k)
    union.update(hll_sketch.deserialize(_write_registers(coupons, lg_k)))
    return bytes(union.get_result(HLL_TYPE).serialize_compact())


def _write_registers(coupons: Coupons, lg_k: int) -> bytes:
    from anabranch.compiled.distinct_sketch_loops import raise_registers

    registers = np.zeros(1 << lg_k, np.uint8)
    raise_registers(coupons, registers)
    inverses = 2.0 ** -registers.astype(np.float64)
    is_rare = registers >= 32
    sums = float(inverses[~is_rare].sum()), float(inverses[is_rare].sum())
    flags = _COMPACT | _OUT_OF_ORDER
    start = bytes((10, _VERSION, _FAMILY, lg_k, 0, flags, 0, _REGISTERS | _OF_EIGHT_BITS))
    # The first number is an estimate that only a sketch knows which saw its values in order.
    return start + struct.pack("<dddII", 0.0, *sums, int((registers == 0).sum()), 0) + registers.tobytes()
