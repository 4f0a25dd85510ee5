"""What compiled readers of text share: many bytes at a time. Importing this takes as long as importing Numba.

Places are addresses in memory, plain numbers: nothing is asked about bounds, and nothing is counted for arrays that are
handed on. Whoever calls compiled code holds on to the arrays meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from anabranch.compiled.jit import compile_loop

LANES = 32
"""Bytes of a text that are looked at together."""
LARGEST_EXACT = 2**53
"""Up to here, a whole number divided by a power of ten is the nearest float to the decimal, if both are exact."""
INLINE_BYTES = 12
"""A view of no more bytes holds them itself."""
LOW_WORD = np.uint64(0xFFFFFFFF)
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
MINUS, PLUS, POINT, ZERO, QUOTE, BACKSLASH, BLANK, RETURN, LINE_END = b'-+.0"\\ \r\n'
SMALL_E, LARGE_E = b"eE"
_HIGH_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES = np.uint64(0x0606060606060606)
_EIGHT_DIGITS = np.uint64(0x3333333333333333)
_BYTE, _WORD, _DOUBLE = ir.IntType(8), ir.IntType(64), ir.DoubleType()
_CHUNK = ir.VectorType(_BYTE, LANES)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _store(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _nth(builder: Any, address: Any, number: Any) -> Any:
    return builder.add(address, builder.shl(number, ir.Constant(_WORD, 3)))


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(context: Any, address: Any) -> Any:
    """Return the byte at an address."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, arguments[0], _BYTE)

    return types.uint8(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def word_at(context: Any, address: Any) -> Any:
    """Return the eight bytes from an address on as one number."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, arguments[0], _WORD)

    return types.uint64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def get_integer(context: Any, address: Any, number: Any) -> Any:
    """Return one of the whole numbers of 64 bits that lie from an address on."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, _nth(builder, *arguments), _WORD)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def get_float(context: Any, address: Any, number: Any) -> Any:
    """Return one of the floats that lie from an address on."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(builder, _nth(builder, *arguments), _DOUBLE)

    return types.float64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def put_integer(context: Any, address: Any, number: Any, value: Any) -> Any:
    """Set one of the whole numbers of 64 bits that lie from an address on."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(builder, _nth(builder, *arguments[:2]), arguments[2])
        return inner.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def put_float(context: Any, address: Any, number: Any, value: Any) -> Any:
    """Set one of the floats that lie from an address on."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(builder, _nth(builder, *arguments[:2]), arguments[2])
        return inner.get_dummy_value()

    return types.void(types.int64, types.int64, types.float64), generate


@intrinsic  # type: ignore[untyped-decorator]
def put_byte(context: Any, address: Any, value: Any) -> Any:
    """Set the byte at an address."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(builder, *arguments)
        return inner.get_dummy_value()

    return types.void(types.int64, types.uint8), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_chunk(context: Any, target: Any, source: Any) -> Any:
    """Copy 32 bytes from one address to another."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _store(builder, arguments[0], _load(builder, arguments[1], _CHUNK))
        return inner.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def find_marks(context: Any, address: Any) -> Any:
    """Return a bit for each of 32 bytes: in the low half whether it ends a text or is not allowed in one, in the high
    half whether it is not ASCII."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        chunk = _load(builder, arguments[0], _CHUNK)

        def all_lanes(byte: int) -> Any:
            return ir.Constant(_CHUNK, [byte] * LANES)

        def to_bits(lanes: Any) -> Any:
            return builder.zext(builder.bitcast(lanes, ir.IntType(LANES)), _WORD)

        quotes = builder.icmp_unsigned("==", chunk, all_lanes(QUOTE))
        slashes = builder.icmp_unsigned("==", chunk, all_lanes(BACKSLASH))
        controls = builder.icmp_unsigned("<", chunk, all_lanes(BLANK))
        marks = to_bits(builder.or_(builder.or_(quotes, slashes), controls))
        high = to_bits(builder.icmp_signed("<", chunk, all_lanes(0)))
        return builder.or_(marks, builder.shl(high, ir.Constant(_WORD, LANES)))

    return types.uint64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def count_low_zeros(context: Any, word: Any) -> Any:
    """Return how many of the lowest bits are zero."""

    def generate(inner: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _are_digits(word: Any) -> Any:
    """Say whether eight bytes are digits."""
    return (word & _HIGH_HALVES) | (((word + _SIXES) & _HIGH_HALVES) >> np.uint64(4)) == _EIGHT_DIGITS


are_eight_digits: Callable[..., Any] = compile_loop(_are_digits)


def _read_digits(word: Any) -> Any:
    """Return the number that eight digits are, the first of them in the lowest byte: pairs, fours, all eight."""
    pairs = ((word & np.uint64(0x0F0F0F0F0F0F0F0F)) * np.uint64(2561)) >> np.uint64(8)
    fours = ((pairs & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    return ((fours & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)


read_eight_digits = compile_loop(_read_digits)


def _skip_digits(at: int) -> int:
    """Return the address behind digits; there is something else somewhere behind them."""
    while np.uint8(byte_at(at) - ZERO) <= 9:
        at += 1
    return at


_pass_digits = compile_loop(_skip_digits)


def _skip_number(at: int) -> int:
    """Return the address behind a JSON number, 0 if there is none; there is a line end somewhere behind it."""
    at += byte_at(at) == MINUS
    first = at
    at = _pass_digits(at)
    if at == first or (at > first + 1 and byte_at(first) == ZERO):
        return 0
    if byte_at(at) == POINT:
        first = at + 1
        at = _pass_digits(first)
        if at == first:
            return 0
    if byte_at(at) == SMALL_E or byte_at(at) == LARGE_E:
        at += 1
        at += byte_at(at) == MINUS or byte_at(at) == PLUS
        first = at
        at = _pass_digits(first)
        if at == first:
            return 0
    return at


pass_number = compile_loop(_skip_number)


def _put_view(views: int, place: int, first: int, size: int, text: int, buffer: int) -> None:
    """Note a text: four bytes of length, then the text itself, or its beginning and where it lies in its buffer.

    Twelve bytes from its beginning on may be looked at, however short it is.
    """
    low, high = np.uint64(size), np.uint64(0)
    if size > INLINE_BYTES:
        low |= word_at(first) << np.uint64(32)
        high = (np.uint64(first - text) << np.uint64(32)) | np.uint64(buffer)
    elif size > 0:
        low |= (word_at(first) & (ALL_BITS >> np.uint64(64 - 8 * min(size, 4)))) << np.uint64(32)
        if size > 4:
            high = word_at(first + 4) & (ALL_BITS >> np.uint64(96 - 8 * size))
    put_integer(views, 2 * place, np.int64(low))
    put_integer(views, 2 * place + 1, np.int64(high))


put_view = compile_loop(_put_view)
