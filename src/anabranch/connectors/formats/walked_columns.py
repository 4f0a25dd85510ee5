"""Columns that ``json_walker`` fills: room for them while lines are walked over, and Polars columns behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.compiled import json_walk_layout as layout
from anabranch.connectors.formats.declared_fields import DeclaredFields, Ints, Node
from anabranch.connectors.formats.exact_json import DEEPEST_NESTING
from anabranch.connectors.formats.fixed_layout_json import PlacedLines
from anabranch.connectors.formats.text_columns import convert_text
from anabranch.connectors.formats.text_values import TIMES, WORDS, is_utf8

_ROOM_FOR_NOTES = 1024
_FEW_VALUES = 64
"""Among so many values, that which does not fit is not looked for."""


class WalkedColumns:
    """The values of lines while they are read, text by text."""

    def __init__(self, fields: DeclaredFields, rows: int, text_bytes: int) -> None:
        from anabranch.compiled.json_walker import walk_lines

        self._walk_lines = walk_lines
        self._fields = fields
        self._nodes = fields.table.copy()
        self._values: list[Ints] = []
        self._valid: list[NDArray[np.uint8]] = []
        for node in fields.nodes:
            # Items are not counted beforehand: pages that nothing is written to cost nothing, and room can be made.
            self._values.append(np.empty(_count_words(node, rows), np.int64))
            self._valid.append(np.empty(rows, np.uint8))
        self._nodes[:, layout.ROOM] = rows
        self._row_starts = np.empty(rows, np.int64)
        self._side = np.empty(text_bytes + 64, np.uint8)
        self._doubts = np.empty((_ROOM_FOR_NOTES, layout.DOUBT_SIZE), np.int64)
        self._long_floats = np.empty((_ROOM_FOR_NOTES, layout.LONG_FLOAT_SIZE), np.int64)
        self._stack = np.empty(DEEPEST_NESTING + 1, np.int64)
        self._job = np.zeros(layout.JOB_SIZE, np.int64)
        self._texts: list[_WalkedText] = []

    @property
    def rows(self) -> int:
        """How many lines were read."""
        return self._count(0)

    @property
    def has_high_bits(self) -> bool:
        """Whether there may be a byte that is not ASCII."""
        return bool(self._job[layout.HIGH_BITS])

    def walk(self, memory: NDArray[np.uint8], end: int, lines: PlacedLines | None = None) -> None:
        """Read the lines of a text up to a place, or those that lie in it; 64 bytes behind them may be looked at."""
        job = self._job
        counts = (self.rows, int(job[layout.DOUBT_COUNT]), int(job[layout.LONG_FLOAT_COUNT]))
        self._texts.append(_WalkedText(memory, lines is not None, *counts))
        job[layout.TEXT_AT], job[layout.TEXT_END] = memory.ctypes.data, memory.ctypes.data + end
        # The first buffer is that of texts with escapes.
        job[layout.BUFFER] = len(self._texts)
        job[layout.LINES] = job[layout.AT] = 0
        if lines is not None:
            starts, ends = np.ascontiguousarray(lines.starts, np.int64), np.ascontiguousarray(lines.ends, np.int64)
            job[layout.LINE_STARTS], job[layout.LINE_ENDS] = starts.ctypes.data, ends.ctypes.data
            job[layout.LINES] = len(starts)
        self._show_places()
        while (status := self._walk_lines(job)) != layout.DONE:
            self._grow(status)
            self._show_places()

    def _show_places(self) -> None:
        """Tell the compiled code where everything goes."""
        job = self._job
        for number, (values, valid) in enumerate(zip(self._values, self._valid, strict=True)):
            self._nodes[number, layout.VALUES], self._nodes[number, layout.VALID] = (
                values.ctypes.data,
                valid.ctypes.data,
            )
        job[layout.DEEPEST] = DEEPEST_NESTING
        job[layout.NODES], job[layout.NODE_COUNT] = self._nodes.ctypes.data, len(self._nodes)
        job[layout.ROW_STARTS], job[layout.STACK] = self._row_starts.ctypes.data, self._stack.ctypes.data
        job[layout.SIDE] = self._side.ctypes.data
        job[layout.DOUBTS], job[layout.DOUBT_ROOM] = self._doubts.ctypes.data, len(self._doubts)
        job[layout.LONG_FLOATS], job[layout.LONG_FLOAT_ROOM] = self._long_floats.ctypes.data, len(self._long_floats)

    def _grow(self, status: int) -> None:
        """Make room for twice as many rows, items or notes."""
        if status == layout.NO_ROOM_FOR_NOTES:
            self._doubts, self._long_floats = _double(self._doubts), _double(self._long_floats)
            return
        list_node = self._fields.nodes[status].list_node
        for number, node in enumerate(self._fields.nodes):
            if node.list_node == list_node:
                self._nodes[number, layout.ROOM] *= 2
                self._values[number], self._valid[number] = _double(self._values[number]), _double(self._valid[number])
        if list_node < 0:
            self._row_starts = _double(self._row_starts)

    def doubtful_lines(self) -> list[tuple[int, bytes]]:
        """Return the lines that were not read, and how many rows there are before each."""
        found = []
        lasts = [*(text.first_doubt for text in self._texts[1:]), int(self._job[layout.DOUBT_COUNT])]
        for text, last in zip(self._texts, lasts, strict=True):
            for start, end, row in self._doubts[text.first_doubt : last].tolist():
                found.append((row, text.memory[start:end].tobytes()))
        return found

    def line_of(self, row: int) -> bytes:
        """Return the line that a row was read from."""
        memory = next(text for text in reversed(self._texts) if text.first_row <= row).memory
        start = int(self._row_starts[row])
        return memory[start : start + _find_line_end(memory, start)].tobytes()

    def find_broken_rows(self, first: int, last: int) -> Ints:
        """Return those of some rows whose lines are not UTF-8."""
        if last - first == 1:
            return np.array([] if is_utf8(self.line_of(first)) else [first], np.int64)
        if is_utf8(self._text_of(first, last)):
            return np.empty(0, np.int64)
        middle = (first + last) // 2
        return np.concatenate([self.find_broken_rows(first, middle), self.find_broken_rows(middle, last)])

    def make(self) -> tuple[pl.DataFrame, Ints]:
        """Return the columns, and the rows with a value that is not plainly of its column's type."""
        doubtful = self._read_long_floats()
        nodes = self._fields.nodes
        columns = []
        for number in self._fields.children(0):
            array = self._assemble(number, doubtful)
            # What does not fit is null here, and its row is not kept.
            column = pl.Series(nodes[number].name, array).cast(nodes[number].type, strict=not doubtful)
            columns.append(column)
        return pl.DataFrame(columns), np.unique(np.concatenate([np.empty(0, np.int64), *doubtful]))

    def _text_of(self, first: int, last: int) -> bytes:
        """Return the lines of some rows, and what lies between them where nothing else does."""
        if self._texts[0].is_placed or last - first < _FEW_VALUES:
            return b"\n".join(map(self.line_of, range(first, last)))
        edges = [max(first, min(row, last)) for row in (*(text.first_row for text in self._texts), self.rows)]
        parts = []
        for text, begin, end in zip(self._texts, edges, edges[1:], strict=False):
            if end > begin:
                parts.append(text.memory[self._row_starts[begin] : self._row_starts[end - 1]].tobytes())
                parts.append(self.line_of(end - 1))
        return b"\n".join(parts)

    def _assemble(self, number: int, doubtful: list[Ints]) -> pa.Array:
        """Return the values of a node in the type that they are kept as, and note which rows do not fit."""
        node = self._fields.nodes[number]
        count = self._count(number)
        if node.kind == layout.STRUCT:
            inner = [self._assemble(child, doubtful) for child in self._fields.children(number)]
            names = [self._fields.nodes[child].name for child in self._fields.children(number)]
            types = [pa.field(name, array.type) for name, array in zip(names, inner, strict=True)]
            return pa.Array.from_buffers(pa.struct(types), count, [self._bitmap(number)], children=inner)
        if node.kind == layout.LIST:
            items = self._assemble(number + 1, doubtful)
            offsets = self._values[number][: count + 1]
            offsets[count] = len(items)
            buffers = [self._bitmap(number), pa.py_buffer(offsets)]
            return pa.Array.from_buffers(pa.large_list(items.type), count, buffers, children=[items])
        if layout.TEXT <= node.kind <= layout.QUOTED:
            buffers = [self._bitmap(number), pa.py_buffer(self._values[number])]
            buffers += [pa.py_buffer(self._side), *(pa.py_buffer(text.memory) for text in self._texts)]
            array = pa.Array.from_buffers(pa.string_view(), count, buffers)
            is_any_text = isinstance(node.type, pl.String | pl.Categorical)
            return array if is_any_text else self._convert(number, array, doubtful)
        words = self._values[number][:count]
        if node.kind == layout.TRUTH:
            bits = pa.py_buffer(np.packbits(words.view(np.uint8)[::8], bitorder="little"))
            return pa.Array.from_buffers(pa.bool_(), count, [self._bitmap(number), bits])
        kind = pa.float64() if node.kind == layout.FLOAT else pa.int64()
        return pa.Array.from_buffers(kind, count, [self._bitmap(number), pa.py_buffer(words)])

    def _convert(self, number: int, array: pa.Array, doubtful: list[Ints]) -> pa.Array:
        """Return texts as values of the node's type, those that are none as nulls."""
        node = self._fields.nodes[number]
        text = pl.Series(array)
        converted, misfits = convert_what_fits(text, node.type)
        if len(misfits):
            doubtful.append(self._to_rows(number, misfits))
        if isinstance(node.type, WORDS):
            return array
        if isinstance(node.type, TIMES):
            converted = converted.to_physical().cast(pl.Int64)
        return converted.to_arrow()

    def _read_long_floats(self) -> list[Ints]:
        """Put the nearest floats to long numbers where they belong; return the rows of those that are too large."""
        rows = []
        lasts = [*(text.first_float for text in self._texts[1:]), int(self._job[layout.LONG_FLOAT_COUNT])]
        for text, last in zip(self._texts, lasts, strict=True):
            if last == text.first_float:
                continue
            numbers, places, starts, ends = self._long_floats[text.first_float : last].T
            offsets = np.concatenate([[0], np.cumsum(ends - starts)])
            wanted = np.repeat(starts - offsets[:-1], ends - starts) + np.arange(offsets[-1])
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.memory[wanted])]
            written = pl.Series(pa.Array.from_buffers(pa.large_string(), len(starts), buffers))
            values = written.cast(pl.Float64).to_numpy()
            for number in np.unique(numbers).tolist():
                is_here = numbers == number
                self._values[number].view(np.float64)[places[is_here]] = values[is_here]
                largest = self._nodes[number, layout.LARGEST].view(np.float64)
                is_too_large = is_here & ~(np.isfinite(values) & (np.abs(values) <= largest))
                if is_too_large.any():
                    rows.append(self._to_rows(number, places[is_too_large]))
        return rows

    def _to_rows(self, number: int, places: Ints) -> Ints:
        """Return the rows that values of a node belong to."""
        node = self._fields.nodes[number]
        while node.list_node >= 0:
            starts = self._values[node.list_node][: self._count(node.list_node)]
            # Of several lists that begin at the same place, the last is the one that is not empty.
            places = np.searchsorted(starts, places, side="right") - 1
            node = self._fields.nodes[node.list_node]
        return places

    def _count(self, number: int) -> int:
        return int(self._nodes[number, layout.COUNT])

    def _bitmap(self, number: int) -> pa.Buffer | None:
        if not self._nodes[number, layout.NULLS]:
            return None
        return pa.py_buffer(np.packbits(self._valid[number][: self._count(number)], bitorder="little"))


@dataclass(frozen=True, slots=True)
class _WalkedText:
    """A text, and how many rows and notes there were before it."""

    memory: NDArray[np.uint8]
    is_placed: bool
    first_row: int
    first_doubt: int
    first_float: int


def _count_words(node: Node, rows: int) -> int:
    # One more: a list ends where the next one begins.
    return (rows + 1) * {layout.STRUCT: 0, layout.TEXT: 2, layout.WRITTEN: 2, layout.QUOTED: 2}.get(node.kind, 1)


def _double(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, np.empty_like(values)])


def _find_line_end(text: NDArray[np.uint8], start: int) -> int:
    size = 256
    while True:
        ends = np.flatnonzero(text[start : start + size] == ord("\n"))
        if len(ends):
            return int(ends[0])
        size *= 4


def convert_what_fits(text: pl.Series, kind: pl.DataType) -> tuple[pl.Series, Ints]:
    """Return a text column as another type, and the places of values that may be none of it, which are null there."""
    converted = convert_text(text, kind)
    if converted is not None:
        return converted, np.empty(0, np.int64)
    if len(text) <= _FEW_VALUES:
        return pl.Series([None] * len(text), dtype=kind), np.flatnonzero(text.is_not_null().to_numpy())
    middle = len(text) // 2
    first, of_first = convert_what_fits(text[:middle], kind)
    second, of_second = convert_what_fits(text[middle:], kind)
    return pl.concat([first, second]), np.concatenate([of_first, of_second + middle])
