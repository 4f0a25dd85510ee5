"""Plain twins of ``byte_words``."""

from __future__ import annotations

import ctypes
import re
import struct

from anabranch.compiled.plain.memory import bytes_at, length_of, line_at, write_bytes

_LANES = 32
_INLINE_BYTES = 12
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
NUMBER_LIKE = rb"-?[0-9]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?"
"""As far as a number is read, be it one or not."""


def byte_at(address: int) -> int:
    """Return the byte at an address."""
    return ctypes.c_uint8.from_address(address).value


def word_at(address: int) -> int:
    """Return the eight bytes from an address on as one number."""
    return int.from_bytes(bytes_at(address, 8), "little")


def get_integer(address: int, number: int) -> int:
    """Return one of the whole numbers of 64 bits that lie from an address on."""
    return ctypes.c_int64.from_address(address + 8 * number).value


def get_float(address: int, number: int) -> float:
    """Return one of the floats that lie from an address on."""
    return ctypes.c_double.from_address(address + 8 * number).value


def put_integer(address: int, number: int, value: int) -> None:
    """Set one of the whole numbers of 64 bits that lie from an address on."""
    ctypes.c_int64.from_address(address + 8 * number).value = value


def put_float(address: int, number: int, value: float) -> None:
    """Set one of the floats that lie from an address on."""
    ctypes.c_double.from_address(address + 8 * number).value = value


def put_byte(address: int, value: int) -> None:
    """Set the byte at an address."""
    ctypes.c_uint8.from_address(address).value = value


def copy_chunk(target: int, source: int) -> None:
    """Copy 32 bytes from one address to another."""
    write_bytes(target, bytes_at(source, _LANES))


def find_marks(address: int) -> int:
    """Return a bit for each of 32 bytes: low, if it ends a text or is not allowed in one; high, if it is not ASCII."""
    marks = 0
    for lane, byte in enumerate(bytes_at(address, _LANES)):
        marks |= (byte < 0x20 or byte in b'"\\') << lane
        marks |= (byte >= 0x80) << (_LANES + lane)
    return marks


def count_low_zeros(word: int) -> int:
    """Return how many of the lowest bits are zero."""
    return (word & -word).bit_length() - 1 if word else 64


def are_eight_digits(word: int) -> bool:
    """Say whether eight bytes are digits."""
    return word.to_bytes(8, "little").isdigit()


def read_eight_digits(word: int) -> int:
    """Return the number that eight digits are, the first of them in the lowest byte."""
    return int(word.to_bytes(8, "little"))


def pass_number(address: int) -> int:
    """Return the address behind a JSON number, 0 if there is none."""
    size = length_of(NUMBER_LIKE, address)
    return address + size if re.fullmatch(_NUMBER, line_at(address)[:size]) else 0


def put_view(views: int, place: int, first: int, size: int, text: int, buffer: int) -> None:
    """Note a text: its length, then the text itself, or its beginning and where it lies in its buffer."""
    content = bytes_at(first, size)
    if size > _INLINE_BYTES:
        view = struct.pack("<I4sII", size, content[:4], buffer, first - text)
    else:
        view = struct.pack("<I12s", size, content)
    write_bytes(views + 16 * place, view)
