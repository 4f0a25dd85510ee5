"""Compiled loops over bytes and texts do what their plain twins do, whatever lies there."""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.compiled import (
    avro_loops,
    byte_words,
    crc32c,
    fixed_layout_json_loops,
    json_strings,
    message_memory,
    record_memory,
    written_numbers,
    written_times,
)
from anabranch.compiled.plain import avro_loops as plain_avro
from anabranch.compiled.plain import byte_words as plain_words
from anabranch.compiled.plain import crc32c as plain_crc32c
from anabranch.compiled.plain import fixed_layout_json_loops as plain_layout
from anabranch.compiled.plain import json_strings as plain_strings
from anabranch.compiled.plain import message_memory as plain_messages
from anabranch.compiled.plain import record_memory as plain_records
from anabranch.compiled.plain import written_numbers as plain_numbers
from anabranch.compiled.plain import written_times as plain_times
from property_tests import tries
from unit.compiled.twins import INT64, UINT64, Memory, as_plain, callable_from_python, check_same, damaged

# -- words ------------------------------------------------------------------------------------------------------------

CHUNKS = st.binary(min_size=32, max_size=64) | st.text('"\\a\n\x1f é', min_size=32, max_size=40).map(str.encode)


@pytest.mark.parametrize("name", ["byte_at", "word_at", "find_marks"])
@given(content=CHUNKS)
def test_bytes_are_looked_at(name: str, content: bytes) -> None:
    memory = Memory(content)
    found = callable_from_python(getattr(byte_words, name))(memory.at)
    assert int(found) == getattr(plain_words, name)(memory.at)


@given(numbers=st.lists(INT64, min_size=1, max_size=9), data=st.data())
def test_whole_numbers_are_got_and_put(numbers: list[int], data: st.DataObject) -> None:
    place, value = data.draw(st.integers(0, len(numbers) - 1)), data.draw(INT64)
    held = [np.array(numbers, np.int64) for _ in range(2)]
    assert callable_from_python(byte_words.get_integer)(held[0].ctypes.data, place) == numbers[place]
    assert plain_words.get_integer(held[1].ctypes.data, place) == numbers[place]
    callable_from_python(byte_words.put_integer)(held[0].ctypes.data, place, value)
    plain_words.put_integer(held[1].ctypes.data, place, value)
    assert held[0].tolist() == held[1].tolist()


@given(numbers=st.lists(st.floats(), min_size=1, max_size=9), data=st.data())
def test_floats_are_got_and_put(numbers: list[float], data: st.DataObject) -> None:
    place, value = data.draw(st.integers(0, len(numbers) - 1)), data.draw(st.floats())
    held = [np.array(numbers) for _ in range(2)]
    found = callable_from_python(byte_words.get_float)(held[0].ctypes.data, place)
    assert repr(found) == repr(plain_words.get_float(held[1].ctypes.data, place))
    callable_from_python(byte_words.put_float)(held[0].ctypes.data, place, value)
    plain_words.put_float(held[1].ctypes.data, place, value)
    assert held[0].tobytes() == held[1].tobytes()


@given(content=CHUNKS, other=CHUNKS, byte=st.integers(0, 255))
def test_bytes_are_put_and_copied(content: bytes, other: bytes, byte: int) -> None:
    source, targets = Memory(other), [Memory(content), Memory(content)]
    callable_from_python(byte_words.put_byte)(targets[0].at + 3, byte)
    plain_words.put_byte(targets[1].at + 3, byte)
    assert bytes(targets[0]) == bytes(targets[1])
    callable_from_python(byte_words.copy_chunk)(targets[0].at, source.at)
    plain_words.copy_chunk(targets[1].at, source.at)
    assert bytes(targets[0]) == bytes(targets[1])


@given(word=UINT64 | st.integers(0, 64).map(lambda bit: 2**bit % 2**64))
def test_low_zeros_are_counted(word: int) -> None:
    assert callable_from_python(byte_words.count_low_zeros)(np.uint64(word)) == plain_words.count_low_zeros(word)


@given(text=st.text("0123456789", min_size=8, max_size=8).map(str.encode) | st.binary(min_size=8, max_size=8))
def test_eight_digits_are_read(text: bytes) -> None:
    word = int.from_bytes(text, "little")
    assert byte_words.are_eight_digits(np.uint64(word)) == plain_words.are_eight_digits(word)
    if plain_words.are_eight_digits(word):
        assert byte_words.read_eight_digits(np.uint64(word)) == plain_words.read_eight_digits(word)


@given(
    text=st.text(max_size=40).map(str.encode) | st.binary(max_size=40),
    place=st.integers(0, 2),
    buffer=st.integers(0, 9),
)
def test_texts_are_noted(text: bytes, place: int, buffer: int) -> None:
    source = Memory(b"before" + text)
    views = [np.zeros(6, np.int64) for _ in range(2)]
    byte_words.put_view(views[0].ctypes.data, place, source.at + 6, len(text), source.at, buffer)
    plain_words.put_view(views[1].ctypes.data, place, source.at + 6, len(text), source.at, buffer)
    assert views[0].tolist() == views[1].tolist()


@given(target=st.binary(min_size=40, max_size=40), source=st.binary(max_size=20), place=st.integers(0, 20))
def test_memory_is_copied(target: bytes, source: bytes, place: int) -> None:
    memory, copy = Memory(source), callable_from_python(message_memory.copy_memory)
    check_same(
        copy, plain_messages.copy_memory, np.frombuffer(target, np.uint8), place, np.uint64(memory.at), len(source)
    )


@pytest.mark.parametrize("name", ["checksum_by_bytes", "checksum_of"])
@given(content=st.binary(max_size=100))
def test_checksums_are_made(name: str, content: bytes) -> None:
    check_same(getattr(crc32c, name), getattr(plain_crc32c, name), np.frombuffer(content, np.uint8))


def test_the_plain_checksum_is_that_of_the_definition() -> None:
    assert plain_crc32c.checksum_of(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283


# -- numbers and times as they are written ----------------------------------------------------------------------------

WRITTEN_NUMBERS = damaged(
    st.from_regex(rb"\A-?[0-9]{0,24}(\.[0-9]{0,24})?([eE][+-]?[0-9]{0,6})?\Z")
    | st.floats().map(lambda number: repr(number).encode())
    | INT64.map(lambda number: str(number).encode())
    | st.sampled_from([b"0", b"-0", b"00", b"9007199254740992", b"9007199254740993", b"1e22", b"1e23", b"1e00001"])
)


@tries(300)
@given(text=WRITTEN_NUMBERS)
def test_numbers_are_passed_over_and_read(text: bytes) -> None:
    memory = Memory(text)
    assert byte_words.pass_number(memory.at) == plain_words.pass_number(memory.at)
    assert as_plain(written_numbers.read_float(memory.at)) == as_plain(plain_numbers.read_float(memory.at))


@given(text=damaged(st.text("0123456789", max_size=30).map(str.encode)), number=UINT64)
def test_digits_are_read_behind_others(text: bytes, number: int) -> None:
    memory = Memory(text)
    found, value = written_numbers.read_digits(memory.at, np.uint64(number))
    assert (found, int(value)) == plain_numbers.read_digits(memory.at, number)


WRITTEN_TIMES = damaged(
    st.datetimes().map(lambda moment: moment.isoformat().encode())
    | st.dates().map(lambda day: day.isoformat().encode())
    | INT64.map(lambda ticks: str(ticks).encode())
    | st.from_regex(
        rb"\A[0-9]{4}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{0,10})?)?"
        rb"(Z|[+-][0-2][0-9]:?[0-6][0-9])?)?\Z"
    )
)


@tries(300)
@given(text=WRITTEN_TIMES, kept_digits=st.sampled_from([3, 6, 9]))
def test_days_and_moments_are_read(text: bytes, kept_digits: int) -> None:
    memory = Memory(text)
    assert as_plain(written_times.read_day(memory.at, memory.end)) == plain_times.read_day(memory.at, memory.end)
    found = written_times.read_moment(memory.at, memory.end, kept_digits)
    assert as_plain(found) == plain_times.read_moment(memory.at, memory.end, kept_digits)


@given(texts=st.lists(WRITTEN_TIMES | st.just(b""), max_size=9), kept_digits=st.sampled_from([3, 6, 9]))
def test_moments_behind_each_other_are_read(texts: list[bytes], kept_digits: int) -> None:
    ends = np.cumsum([len(text) + 1 for text in texts]).astype(np.int64)
    memory = Memory(b"".join(text + b"\n" for text in texts))
    found, expected = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
    read = written_times.read_moments(ends, memory.array, kept_digits, found)
    assert read == plain_times.read_moments(ends, memory.array, kept_digits, expected)
    assert found[:read].tolist() == expected[:read].tolist()


# -- JSON -------------------------------------------------------------------------------------------------------------

STRINGS = damaged(
    st.tuples(st.text(max_size=50), st.booleans()).map(
        lambda given: json.dumps(given[0], ensure_ascii=given[1])[1:].encode("utf-8", "surrogatepass")
    )
    | st.lists(
        st.sampled_from(["\\n", "\\u00e9", "\\ud83d", "\\ude00", "\\/", "ä", "x" * 31, "\\u0000", "\\"]), max_size=6
    ).map(lambda parts: "".join([*parts, '"']).encode())
)


@tries(300)
@given(text=STRINGS)
def test_strings_are_passed_over_and_unescaped(text: bytes) -> None:
    memory = Memory(text)
    end, has_escapes, marks = json_strings.pass_string(memory.at)
    expected_end, expected_escapes, is_ascii = plain_strings.pass_string(memory.at)
    assert end == expected_end
    if not end:
        return
    assert has_escapes == expected_escapes
    # What lies behind the string may be seen, too.
    assert is_ascii or int(marks) >> 32
    sides = [Memory(bytes(2 * memory.size + 64)) for _ in range(2)]
    ends = [
        module.write_unescaped(memory.at, end, side.at)
        for module, side in zip((json_strings, plain_strings), sides, strict=True)
    ]
    sizes = [found - side.at if found else None for found, side in zip(ends, sides, strict=True)]
    assert sizes[0] == sizes[1]
    assert sizes[0] is None or bytes(sides[0])[: sizes[0]] == bytes(sides[1])[: sizes[1]]


@given(text=st.text(" \t\r\v\na", max_size=40).map(str.encode))
def test_blanks_are_passed_over(text: bytes) -> None:
    memory = Memory(text)
    assert json_strings.pass_blanks(memory.at) == plain_strings.pass_blanks(memory.at)


_QUOTED = (fixed_layout_json_loops.SKIPPED_TEXT, fixed_layout_json_loops.TEXT, fixed_layout_json_loops.QUOTED_INTEGER)
_WRITTEN = {
    fixed_layout_json_loops.QUOTED_INTEGER: st.integers(-(10**18), 10**18).map(str),
    fixed_layout_json_loops.INTEGER: st.integers(-(10**18), 10**18).map(str) | st.sampled_from(["-0", "01", "-"]),
    fixed_layout_json_loops.FLOAT: st.sampled_from(["0.1", "-0", "9007199254740993", "1.", "1e3", "00.5"])
    | st.decimals(-(10**9), 10**9, places=6).map(str),
    fixed_layout_json_loops.WRITTEN_NUMBER: st.floats(allow_nan=False, allow_infinity=False).map(str)
    | st.integers().map(str),
}
_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=40)


@st.composite
def fixed_layout_lines(draw: st.DrawFn) -> list[Any]:
    """Return lines of one layout, of which one may be damaged."""
    kinds = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    prefixes, before = [], '{"'
    for number, kind in enumerate(kinds):
        prefixes.append(f'{before}f{number}": {chr(34) * (kind in _QUOTED)}'.encode())
        before = f'{chr(34) * (kind in _QUOTED)}, "'
    suffix = f"{chr(34) * (kinds[-1] in _QUOTED)}}}".encode()
    lines = []
    for _ in range(draw(st.integers(0, 5))):
        values = [draw(_WRITTEN.get(kind, _TEXTS)).encode() for kind in kinds]
        fields = [prefix + value for prefix, value in zip(prefixes, values, strict=True)]
        lines.append(b"".join([*fields, suffix, draw(st.sampled_from([b"", b"\r"]))]))
    if lines and draw(st.integers(0, 3)) == 0:
        lines[0] = draw(damaged(st.just(lines[0]))).replace(b"\n", b" ")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)]).astype(np.int64)
    ends = starts[1:] - 1
    if draw(st.booleans()):
        starts, ends = np.empty(1, np.int64), np.empty(0, np.int64)
    rows, fields_count, first_row = len(lines) + 2, len(kinds), draw(st.integers(0, 2))
    return [
        np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8),
        np.frombuffer(b"".join(prefixes), np.uint8),
        np.cumsum([0, *map(len, prefixes)]).astype(np.int64),
        np.frombuffer(suffix, np.uint8),
        np.array(kinds, np.int64),
        np.arange(fields_count, dtype=np.int64),
        np.zeros((fields_count, rows, 2), np.uint64),
        np.zeros((fields_count, rows), np.int64),
        np.zeros((fields_count, rows)),
        *(starts[:-1], ends, first_row, 3),
    ]


@tries(300)
@given(arguments=fixed_layout_lines())
def test_lines_of_one_layout_are_read(arguments: list[Any]) -> None:
    ways = []
    for read in (fixed_layout_json_loops.read_lines, plain_layout.read_lines):
        held = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
        rows, is_ascii = read(*held)
        ways.append((rows, bool(is_ascii), [array.tobytes() for array in held[6:9]] if rows >= 0 else []))
    assert ways[0] == ways[1]


# -- messages ---------------------------------------------------------------------------------------------------------


def write_number(number: int) -> bytes:
    """Return a number as Avro and Kafka write it: zigzag, seven bits a byte."""
    rest, written = (number << 1) ^ (number >> 63), bytearray()
    while rest >= 0x80:
        written.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*written, rest])


_AVRO_VALUES: dict[int, st.SearchStrategy[bytes]] = {
    1: st.sampled_from([b"\0", b"\1", b"\2"]),
    4: st.binary(min_size=4, max_size=4),
    8: st.binary(min_size=8, max_size=8),
    101: (st.integers(-(2**31), 2**31 - 1) | INT64).map(write_number),
    102: INT64.map(write_number),
    103: st.binary(max_size=12).map(lambda value: write_number(len(value)) + value),
}


@tries(300)
@given(data=st.data())
def test_records_of_avro_are_told_from_other_bytes(data: st.DataObject) -> None:
    fields = data.draw(
        st.lists(st.tuples(st.sampled_from(list(_AVRO_VALUES)), st.integers(-1, 1)), min_size=1, max_size=4)
    )

    def value(kind: int, null_place: int) -> st.SearchStrategy[bytes]:
        if null_place < 0:
            return _AVRO_VALUES[kind]
        null, other = bytes([2 * null_place]), bytes([2 * (1 - null_place)])
        return st.just(null) | _AVRO_VALUES[kind].map(lambda written: other + written)

    record = st.tuples(*(value(*field) for field in fields)).map(b"".join)
    messages = data.draw(st.lists(damaged(record) if data.draw(st.booleans()) else record, max_size=4))
    kinds, null_places = (np.array(column, np.int64) for column in zip(*fields, strict=True))
    ends = np.cumsum([len(message) for message in messages]).astype(np.int64)
    text = np.frombuffer(b"".join(messages), np.uint8)
    check_same(avro_loops.are_records, plain_avro.are_records, text, ends, kinds, null_places)


@st.composite
def kafka_records(draw: st.DrawFn) -> bytes:
    """Return records of a batch, of which one may be odd."""
    written = b""
    for number in range(draw(st.integers(0, 4))):
        parts = [b"\0", write_number(draw(INT64)), write_number(draw(st.just(number) | INT64))]
        for size_first in (draw(st.none() | st.binary(max_size=9)), draw(st.none() | st.binary(max_size=40))):
            parts.append(write_number(-1) if size_first is None else write_number(len(size_first)) + size_first)
        body = b"".join([*parts, write_number(0)])
        written += write_number(draw(st.sampled_from([len(body)] * 5 + [len(body) + 1, -3, 2**62]))) + body
    return written


@tries(400)
@given(batch=damaged(kafka_records()), count=st.integers(0, 6), base=st.integers(0, 2**40), data=st.data())
def test_values_are_found_in_records(batch: bytes, count: int, base: int, data: st.DataObject) -> None:
    first, last = sorted(base + data.draw(st.integers(-1, 5)) for _ in range(2))
    places = [np.zeros(count, np.int64) for _ in range(3)]
    arguments = (np.frombuffer(batch, np.uint8), count, base, first, last, *places)
    check_same(record_memory.find_values, plain_records.find_values, *arguments)


@given(values=st.lists(st.binary(max_size=20), max_size=8), gap=st.integers(0, 3), place=st.integers(0, 5))
def test_values_are_gathered(values: list[bytes], gap: int, place: int) -> None:
    source = Memory(b"".join(value + bytes(gap) for value in values))
    ends = (np.cumsum([len(value) + gap for value in values]) - gap).astype(np.int64)
    starts = ends - np.array([len(value) for value in values], np.int64)
    text, new_ends = np.zeros(place + sum(map(len, values)) + len(values), np.uint8), np.zeros(len(values), np.int64)
    arguments = (np.uint64(source.at), starts, ends, text, place, new_ends)
    check_same(record_memory.gather_values, plain_records.gather_values, *arguments)


PART = st.none() | st.binary(max_size=20)
MESSAGES = st.lists(
    st.tuples(st.sampled_from([0] * 6 + [-191, -185, 1]), PART, PART, st.integers(0, 2**40)), max_size=9
)


@given(messages=MESSAGES, last=st.integers(0, 2**40), padding=st.integers(0, 2**31 - 1))
def test_messages_are_measured_and_copied(
    messages: list[tuple[int, bytes | None, bytes | None, int]], last: int, padding: int
) -> None:
    held = [[None if part is None else Memory(part) for part in message[1:3]] for message in messages]
    words = np.zeros((len(messages), 9), np.int64)
    for row, (error, value, key, offset) in enumerate(messages):
        words[row, 0] = (padding << 32) | (error & 0xFFFFFFFF)
        for column, (part, memory) in zip((3, 5), zip((value, key), held[row], strict=True), strict=True):
            words[row, column] = 0 if memory is None else memory.at
            words[row, column + 1] = 0 if part is None else len(part)
        words[row, 7] = offset
    pointers = (words.ctypes.data + 72 * np.arange(len(messages))).astype(np.uint64)
    count = len(messages)
    offsets, sizes, key_sizes, faults = (np.zeros(size, np.int64) for size in (count, count, count, 2))
    arguments = (pointers, count, last, offsets, sizes, key_sizes, faults)
    kept, value_bytes, key_bytes = check_same(message_memory.measure, plain_messages.measure, *arguments)
    plain_messages.measure(*arguments)
    text, ends, is_null = np.zeros(value_bytes + kept, np.uint8), np.zeros(kept, np.int64), np.zeros(kept, bool)
    check_same(message_memory.copy_values, plain_messages.copy_values, pointers, count, sizes, text, ends, is_null)
    text, ends, has_key = np.zeros(key_bytes, np.uint8), np.zeros(kept + 1, np.int64), np.zeros(kept, bool)
    check_same(
        message_memory.copy_keys, plain_messages.copy_keys, pointers, count, sizes, key_sizes, text, ends, has_key
    )


@given(pointers=st.lists(st.integers(1, 2**47), max_size=9), data=st.data())
def test_messages_are_given_back(pointers: list[int], data: st.DataObject) -> None:
    given_back: list[int] = []
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(given_back.append)
    address = ctypes.cast(destroy, ctypes.c_void_p).value
    assert address is not None
    count = data.draw(st.integers(0, len(pointers)))
    for free in (message_memory.free, plain_messages.free):
        free(np.array(pointers, np.uint64), count, np.uint64(address) if free is message_memory.free else address)
        assert given_back == pointers[:count]
        given_back.clear()
