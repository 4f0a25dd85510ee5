"""Messages in the memory of librdkafka, copied by compiled code. Importing this takes as long as importing Numba.

A message is a ``rd_kafka_message_t``: error (4 bytes, padded to 8), topic, partition (padded to 8), value, its length,
key, its length, offset, private: nine words of 8 bytes on every 64-bit system.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from anabranch.compiled.jit import compile_loop

_WORDS = 9
_VALUE, _VALUE_BYTES, _KEY, _KEY_BYTES, _OFFSET = 3, 4, 5, 6, 7
_ERROR_MASK = 0xFFFFFFFF
_PARTITION_END = -191

_BYTE_POINTER = ir.IntType(8).as_pointer()
_Pointers = NDArray[np.uint64]


@intrinsic  # type: ignore[untyped-decorator]
def _to_pointer(context: Any, address: Any) -> Any:
    """Turn a number into the address that it is."""

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _BYTE_POINTER)

    return types.voidptr(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_memory(context: Any, target: Any, place: Any, address: Any, size: Any) -> Any:
    """Copy so many bytes from an address to a place in an array, all at once rather than one by one."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = inner.make_array(signature.args[0])(inner, builder, arguments[0])
        source = builder.inttoptr(arguments[2], _BYTE_POINTER)
        cgutils.raw_memcpy(builder, builder.gep(array.data, [arguments[1]]), source, arguments[3], 1)
        return inner.get_dummy_value()

    return types.void(target, types.int64, types.uint64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _call_with(context: Any, function: Any, address: Any) -> Any:
    """Call a C function, given by its address, with one pointer."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTE_POINTER])
        called = builder.inttoptr(arguments[0], kind.as_pointer())
        builder.call(called, [builder.inttoptr(arguments[1], _BYTE_POINTER)])
        return inner.get_dummy_value()

    return types.void(types.uint64, types.uint64), generate


def _measure(pointers: _Pointers, count: int, last: int, offsets: Any, sizes: Any, key_sizes: Any, faults: Any) -> Any:
    """Fill offsets and sizes (-1 for nulls) of the messages before an offset; note errors and the next offset.

    Returns (messages, value bytes, key bytes). ``faults`` becomes [the next offset, the last error].
    """
    kept = value_bytes = key_bytes = 0
    for index in range(count):
        words = carray(_to_pointer(pointers[index]), _WORDS, np.int64)
        error = np.int32(words[0] & _ERROR_MASK)
        if error != 0:
            if error == _PARTITION_END:  # At the offset of what will come next.
                faults[0] = max(faults[0], words[_OFFSET])
            else:
                faults[1] = error
            sizes[index] = -2
            continue
        offset = words[_OFFSET]
        faults[0] = max(faults[0], offset + 1)
        if offset >= last:
            sizes[index] = -2
            continue
        offsets[kept] = offset
        kept += 1
        sizes[index] = -1 if words[_VALUE] == 0 else words[_VALUE_BYTES]
        value_bytes += max(0, sizes[index])
        key_sizes[index] = -1 if words[_KEY] == 0 else words[_KEY_BYTES]
        key_bytes += max(0, key_sizes[index])
    return kept, value_bytes, key_bytes


def _copy_values(pointers: _Pointers, count: int, sizes: Any, text: Any, ends: Any, is_null: Any) -> Any:
    """Copy the values, each followed by a line end; return the number of nulls."""
    place = kept = nulls = 0
    for index in range(count):
        size = sizes[index]
        if size == -2:
            continue
        if size > 0:
            words = carray(_to_pointer(pointers[index]), _WORDS, np.uint64)
            copy_memory(text, place, words[_VALUE], size)
            place += size
        is_null[kept] = size == -1
        nulls += size == -1
        ends[kept] = place
        text[place] = 10
        place += 1
        kept += 1
    return nulls


def _copy_keys(pointers: _Pointers, count: int, sizes: Any, key_sizes: Any, text: Any, ends: Any, has_key: Any) -> Any:
    """Copy the keys of the messages that are kept, without anything between them."""
    place = kept = 0
    for index in range(count):
        if sizes[index] == -2:
            continue
        size = key_sizes[index]
        if size > 0:
            words = carray(_to_pointer(pointers[index]), _WORDS, np.uint64)
            copy_memory(text, place, words[_KEY], size)
            place += size
        has_key[kept] = size >= 0
        kept += 1
        ends[kept] = place
    return kept


def _free(pointers: _Pointers, count: int, destroy: Any) -> None:
    """Give messages back to the library."""
    for index in range(count):
        _call_with(destroy, pointers[index])


measure = compile_loop(_measure)
copy_values = compile_loop(_copy_values)
copy_keys = compile_loop(_copy_keys)
free = compile_loop(_free)
