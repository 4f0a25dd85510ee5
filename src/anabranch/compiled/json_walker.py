"""The compiled half of ``declared_json``: one walk over each line. Importing this takes as long as importing Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.compiled.byte_words import (
    LINE_END,
    LOW_WORD,
    MINUS,
    QUOTE,
    SMALL_E,
    ZERO,
    byte_at,
    get_float,
    get_integer,
    pass_number,
    put_byte,
    put_float,
    put_integer,
    put_view,
    word_at,
)
from anabranch.compiled.jit import compile_loop
from anabranch.compiled.json_strings import pass_blanks, pass_string, write_unescaped
from anabranch.compiled.json_walk_layout import (
    AT,
    BUFFER,
    COUNT,
    DAY,
    DEEPEST,
    DONE,
    DOUBT_COUNT,
    DOUBT_ROOM,
    DOUBT_SIZE,
    DOUBTS,
    END,
    FLOAT,
    FRACTION_DIGITS,
    HIGH_BITS,
    HIGHEST,
    INTEGER,
    IS_HELD,
    KIND,
    LARGEST,
    LINE_ENDS,
    LINE_STARTS,
    LINES,
    LIST,
    LONG_FLOAT_COUNT,
    LONG_FLOAT_ROOM,
    LONG_FLOAT_SIZE,
    LONG_FLOATS,
    LOWEST,
    MOMENT,
    NAME,
    NAME_HASH_FACTOR,
    NAME_SIZE,
    NAME_WORD,
    NO_ROOM_FOR_NOTES,
    NO_ROOM_FOR_VALUES,
    NODE_COUNT,
    NODE_SIZE,
    NODES,
    NULLS,
    QUOTED,
    ROOM,
    ROW_STARTS,
    SAVED_COUNT,
    SIBLING,
    SIDE,
    SIDE_BUFFER,
    SIDE_BYTES,
    STACK,
    STRUCT,
    TABLE,
    TABLE_BITS,
    TEXT,
    TEXT_AT,
    TEXT_END,
    TRUTH,
    VALID,
    VALUES,
    WRITTEN,
)
from anabranch.compiled.written_numbers import MOST_INTEGER_DIGITS, read_digits, read_float
from anabranch.compiled.written_times import read_day, read_moment

_SKIPPED, _SKIPPED_OBJECT, _SKIPPED_ARRAY = -1, -1, -2
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY, _COLON, _COMMA, _BLANK = b"{}[]:, "
_NULL, _TRUE, _FALS = (np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"fals"))
_LARGEST_INTEGER = np.uint64(2**63 - 1)
_FACTOR = np.uint64(NAME_HASH_FACTOR)


def _find(nodes: int, struct: int, first: int, size: int) -> Any:
    """Return the field of a struct that has a name, -1 if it has none such."""
    word = word_at(first)
    if size < 8:
        word &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
    bits = get_integer(nodes, struct * NODE_SIZE + TABLE_BITS)
    table = get_integer(nodes, struct * NODE_SIZE + TABLE)
    slot = np.int64(((word + np.uint64(size)) * _FACTOR) >> np.uint64(64 - bits))
    while True:
        field = get_integer(table, slot)
        if field < 0:
            return -1
        at = field * NODE_SIZE
        if np.uint64(get_integer(nodes, at + NAME_WORD)) == word and get_integer(nodes, at + NAME_SIZE) == size:
            name = get_integer(nodes, at + NAME)
            step = 8
            while step < size and byte_at(first + step) == byte_at(name + step):
                step += 1
            if step >= size:
                return field
        slot = (slot + 1) & ((1 << bits) - 1)


_find_field = compile_loop(_find)


def _put_null(nodes: int, node: int) -> None:
    """Add a null to a column, and to all in it that have as many values."""
    end = get_integer(nodes, node * NODE_SIZE + END)
    while node < end:
        at = node * NODE_SIZE
        kind = get_integer(nodes, at + KIND)
        place = get_integer(nodes, at + COUNT)
        values = get_integer(nodes, at + VALUES)
        put_byte(get_integer(nodes, at + VALID) + place, 0)
        put_integer(nodes, at + NULLS, get_integer(nodes, at + NULLS) + 1)
        put_integer(nodes, at + COUNT, place + 1)
        node += 1
        if kind == LIST:
            put_integer(values, place, get_integer(nodes, at + NODE_SIZE + COUNT))
            node = get_integer(nodes, at + END)
        elif TEXT <= kind <= QUOTED:
            put_integer(values, 2 * place, 0)
            put_integer(values, 2 * place + 1, 0)
        elif kind != STRUCT:
            put_integer(values, place, 0)


_add_null = compile_loop(_put_null)


def _walk(job_array: NDArray[np.int64]) -> int:  # noqa: PLR0912, PLR0915 - one loop, compiled as a whole
    """Walk over lines from where the job is; say whether it came to the end or lacked room.

    There is a line end behind each line, which no step goes beyond, and 32 bytes and more behind the last one may be
    looked at. Whatever is not plainly right is a doubt.
    """
    job = job_array.ctypes.data
    text, end, buffer = get_integer(job, TEXT_AT), get_integer(job, TEXT_END), get_integer(job, BUFFER)
    line_starts, line_ends = get_integer(job, LINE_STARTS), get_integer(job, LINE_ENDS)
    lines, deepest = get_integer(job, LINES), get_integer(job, DEEPEST)
    nodes, node_count = get_integer(job, NODES), get_integer(job, NODE_COUNT)
    row_starts, side = get_integer(job, ROW_STARTS), get_integer(job, SIDE)
    side_at = side + get_integer(job, SIDE_BYTES)
    doubts, doubt_room = get_integer(job, DOUBTS), get_integer(job, DOUBT_ROOM)
    doubt_count = get_integer(job, DOUBT_COUNT)
    long_floats, float_room = get_integer(job, LONG_FLOATS), get_integer(job, LONG_FLOAT_ROOM)
    float_count = get_integer(job, LONG_FLOAT_COUNT)
    room = get_integer(nodes, ROOM)
    row_valid = get_integer(nodes, VALID)
    has_held = False
    for node in range(node_count):
        has_held |= get_integer(nodes, node * NODE_SIZE + IS_HELD) != 0
    stack = get_integer(job, STACK)
    seen = np.uint64(0)
    is_placed = lines > 0
    line = get_integer(job, AT) if is_placed else 0
    at = text if is_placed else text + get_integer(job, AT)
    status = DONE
    while (line < lines) if is_placed else (at < end):
        row = get_integer(nodes, COUNT)
        if is_placed:
            at = text + get_integer(line_starts, line)
        line_start = at
        at = pass_blanks(at)
        if byte_at(at) == LINE_END and not is_placed:
            at += 1
            continue
        if row >= room or doubt_count >= doubt_room:
            status = NO_ROOM_FOR_VALUES if row >= room else NO_ROOM_FOR_NOTES
            at = line_start
            break
        if has_held:
            for node in range(node_count):
                put_integer(nodes, node * NODE_SIZE + SAVED_COUNT, get_integer(nodes, node * NODE_SIZE + COUNT))
        side_before, floats_before = side_at, float_count
        depth = 0
        is_read = False
        if byte_at(at) == _OPEN_OBJECT:
            container = 0
            is_object = True
            put_integer(stack, 0, 0)
            depth = 1
            raw_depth, raw_first, raw_node = -1, 0, 0
            at = pass_blanks(at + 1)
            closes = byte_at(at) == _CLOSE_OBJECT
            put_byte(row_valid + row, 1)
            while True:
                if not closes:
                    node = _SKIPPED
                    if is_object:
                        if byte_at(at) != QUOTE:
                            break
                        first = at + 1
                        name_end, has_escapes, found = pass_string(first)
                        seen |= found
                        if name_end == 0:
                            break
                        if container >= 0:
                            if has_escapes:
                                side_end = write_unescaped(first, name_end, side_at)
                                if side_end != 0:
                                    node = _find_field(nodes, container, side_at, side_end - side_at)
                            else:
                                node = _find_field(nodes, container, first, name_end - first)
                            # Of a field that comes twice the first counts.
                            if node >= 0 and get_integer(nodes, node * NODE_SIZE + COUNT) > get_integer(
                                nodes, container * NODE_SIZE + COUNT
                            ):
                                node = _SKIPPED
                        at = name_end + 1
                        if byte_at(at) != _COLON:
                            at = pass_blanks(at)
                            if byte_at(at) != _COLON:
                                break
                        at = pass_blanks(at + 1)
                    elif container >= 0:
                        node = container + 1
                    byte = byte_at(at)
                    kind, node_at, place, values = -1, 0, 0, 0
                    if node >= 0:
                        node_at = node * NODE_SIZE
                        kind = get_integer(nodes, node_at + KIND)
                        place = get_integer(nodes, node_at + COUNT)
                        values = get_integer(nodes, node_at + VALUES)
                        if place >= get_integer(nodes, node_at + ROOM):
                            status = node
                            break
                    is_added = node >= 0
                    if byte == QUOTE:
                        first = at + 1
                        string_end, has_escapes, found = pass_string(first)
                        seen |= found
                        if string_end == 0:
                            break
                        at = string_end + 1
                        if TEXT <= kind <= QUOTED:
                            if has_escapes:
                                side_end = write_unescaped(first, string_end, side_at)
                                if side_end == 0:
                                    break
                                put_view(values, place, side_at, side_end - side_at, side, SIDE_BUFFER)
                                side_at = side_end
                            else:
                                put_view(values, place, first, string_end - first, text, buffer)
                        elif kind in (MOMENT, DAY):
                            if kind == MOMENT:
                                fits, ticks = read_moment(
                                    first, string_end, get_integer(nodes, node_at + FRACTION_DIGITS)
                                )
                            else:
                                fits, ticks = read_day(first, string_end)
                            if (
                                not fits
                                or ticks < get_integer(nodes, node_at + LOWEST)
                                or ticks > get_integer(nodes, node_at + HIGHEST)
                            ):
                                break
                            put_integer(values, place, ticks)
                        elif node >= 0:
                            break
                    elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
                        if depth >= deepest:
                            break
                        is_object = byte == _OPEN_OBJECT
                        if kind == (STRUCT if is_object else LIST):
                            put_byte(get_integer(nodes, node_at + VALID) + place, 1)
                            if kind == LIST:
                                put_integer(values, place, get_integer(nodes, node_at + NODE_SIZE + COUNT))
                        elif node < 0 or kind == TEXT:
                            if node >= 0:
                                raw_depth, raw_first, raw_node = depth, at, node
                            node = _SKIPPED_OBJECT if is_object else _SKIPPED_ARRAY
                        else:
                            break
                        container = node
                        put_integer(stack, depth, node)
                        depth += 1
                        at = pass_blanks(at + 1)
                        closes = byte_at(at) == (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY)
                        continue
                    elif byte == MINUS or np.uint8(byte - ZERO) <= 9:
                        first = at
                        if kind == FLOAT:
                            behind, is_known, value = read_float(first)
                            if behind == 0:
                                break
                            at = behind
                            if not is_known:
                                if float_count >= float_room:
                                    status = NO_ROOM_FOR_NOTES
                                    break
                                note = float_count * LONG_FLOAT_SIZE
                                put_integer(long_floats, note, node)
                                put_integer(long_floats, note + 1, place)
                                put_integer(long_floats, note + 2, first - text)
                                put_integer(long_floats, note + 3, at - text)
                                float_count += 1
                            elif abs(value) > get_float(nodes, node_at + LARGEST):
                                break
                            put_float(values, place, value)
                        elif kind in (INTEGER, MOMENT):
                            digits_at = first + (byte == MINUS)
                            behind, number = read_digits(digits_at, np.uint64(0))
                            digits = behind - digits_at
                            if (
                                digits == 0
                                or digits > MOST_INTEGER_DIGITS
                                or (digits > 1 and byte_at(digits_at) == ZERO)
                                or number > _LARGEST_INTEGER
                            ):
                                break
                            at = behind
                            whole = -np.int64(number) if byte == MINUS else np.int64(number)
                            if whole < get_integer(nodes, node_at + LOWEST) or whole > get_integer(
                                nodes, node_at + HIGHEST
                            ):
                                break
                            put_integer(values, place, whole)
                        else:
                            behind = pass_number(at)
                            if behind == 0 or (node >= 0 and kind not in (TEXT, WRITTEN)):
                                break
                            at = behind
                            if node >= 0:
                                put_view(values, place, first, at - first, text, buffer)
                    else:
                        word = word_at(at) & LOW_WORD
                        if word == _NULL:
                            at += 4
                            if node >= 0:
                                _add_null(nodes, node)
                                is_added = False
                        elif word == _TRUE or (word == _FALS and byte_at(at + 4) == SMALL_E):
                            size = 4 if word == _TRUE else 5
                            if kind == TRUTH:
                                put_integer(values, place, word == _TRUE)
                            elif kind == TEXT:
                                put_view(values, place, at, size, text, buffer)
                            elif node >= 0:
                                break
                            at += size
                        else:
                            break
                    if is_added:
                        put_byte(get_integer(nodes, node_at + VALID) + place, 1)
                        put_integer(nodes, node_at + COUNT, place + 1)
                # A value has ended, or a container is about to, at its closing bracket.
                is_broken = False
                while True:
                    if not closes:
                        byte = byte_at(at)
                        if byte <= _BLANK:
                            at = pass_blanks(at)
                            byte = byte_at(at)
                        if byte == _COMMA:
                            at = pass_blanks(at + 1)
                            break
                        if byte != (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
                            is_broken = True
                            break
                    closes = False
                    at += 1
                    if container >= 0:
                        place = get_integer(nodes, container * NODE_SIZE + COUNT)
                        if is_object:
                            field = container + 1
                            while field >= 0:
                                if get_integer(nodes, field * NODE_SIZE + COUNT) == place:
                                    _add_null(nodes, field)
                                field = get_integer(nodes, field * NODE_SIZE + SIBLING)
                        put_integer(nodes, container * NODE_SIZE + COUNT, place + 1)
                    depth -= 1
                    if depth == raw_depth:
                        node_at = raw_node * NODE_SIZE
                        place = get_integer(nodes, node_at + COUNT)
                        put_view(get_integer(nodes, node_at + VALUES), place, raw_first, at - raw_first, text, buffer)
                        put_byte(get_integer(nodes, node_at + VALID) + place, 1)
                        put_integer(nodes, node_at + COUNT, place + 1)
                        raw_depth = -1
                    if depth == 0:
                        break
                    container = get_integer(stack, depth - 1)
                    is_object = container == _SKIPPED_OBJECT or (
                        container >= 0 and get_integer(nodes, container * NODE_SIZE + KIND) == STRUCT
                    )
                if is_broken or depth == 0:
                    break
            if depth == 0:
                at = pass_blanks(at)
                is_read = byte_at(at) == LINE_END and (not is_placed or at == text + get_integer(line_ends, line))
        if is_read:
            put_integer(row_starts, row, line_start - text)
            at += 1
            line += 1
            continue
        # What the line has left in the columns is taken back.
        for node in range(node_count):
            is_held = get_integer(nodes, node * NODE_SIZE + IS_HELD) != 0
            before = get_integer(nodes, node * NODE_SIZE + SAVED_COUNT) if is_held else row
            put_integer(nodes, node * NODE_SIZE + COUNT, before)
        side_at, float_count = side_before, floats_before
        if status != DONE:
            at = line_start
            break
        if is_placed:
            at = text + get_integer(line_ends, line)
        else:
            while byte_at(at) != LINE_END:
                at += 1
        put_integer(doubts, doubt_count * DOUBT_SIZE, line_start - text)
        put_integer(doubts, doubt_count * DOUBT_SIZE + 1, at - text)
        put_integer(doubts, doubt_count * DOUBT_SIZE + 2, row)
        doubt_count += 1
        at += 1
        line += 1
    put_integer(job, AT, line if is_placed else at - text)
    put_integer(job, SIDE_BYTES, side_at - side)
    put_integer(job, DOUBT_COUNT, doubt_count)
    put_integer(job, LONG_FLOAT_COUNT, float_count)
    put_integer(job, HIGH_BITS, get_integer(job, HIGH_BITS) | np.int64(seen >> np.uint64(32)))
    return status


walk_lines = compile_loop(_walk)
