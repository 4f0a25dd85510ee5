"""JSON lines of any layout, of which compiled code reads what is declared and passes over the rest.

A JSON parser builds a tree for every line, whatever is asked of it. Here one walk over the bytes looks up each name
among the declared ones, at any depth, puts their values straight into columns, and only checks everything else. Texts
stay where they are, but for those with escapes. A line with anything that is not plainly right (malformed, a value of
another type, half of a surrogate pair, a number out of range) is a doubt: it is left to the readers that were there
before, line by line, so that what is exact about JSON is decided in one place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.connectors.formats.declared_fields import DeclaredFields, Ints, plan_fields
from anabranch.connectors.formats.fixed_layout_json import PlacedLines
from anabranch.connectors.formats.text_values import is_utf8
from anabranch.connectors.formats.walked_columns import WalkedColumns

_MOST_BYTES = 2**31 - 1 - 1024
"""Places in a column of texts have 32 bits."""
_BYTES_BEHIND = 64
"""So many bytes behind a line may be looked at."""
_SAMPLE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WalkedLines:
    """The rows that were read, and the lines that were not; rows and lines have places in the order of all."""

    frame: pl.DataFrame
    doubts: list[bytes]
    doubt_places: Ints

    def put_in(self, frame: pl.DataFrame, doubts_read: Sequence[int]) -> pl.DataFrame:
        """Return all rows in their order, given those of some doubts and which doubts these are."""
        if not len(doubts_read):
            return self.frame
        is_doubt = np.zeros(self.frame.height + len(self.doubts), bool)
        is_doubt[self.doubt_places] = True
        places = np.concatenate([np.flatnonzero(~is_doubt), self.doubt_places[doubts_read]])
        return pl.concat([self.frame, frame])[np.argsort(places)]


def walk_text(text: bytes, schema: Mapping[str, pl.DataType]) -> WalkedLines | None:
    """Return what is read of all lines but blank ones; None if it is left to others altogether."""
    fields = _plan_for(schema, len(text))
    if fields is None:
        return None
    # Behind the last lines there is no more that may be looked at: they are read from a copy.
    cut = text.rfind(b"\n", 0, max(0, len(text) - _BYTES_BEHIND)) + 1
    tail = text[cut:] if text.endswith(b"\n") else text[cut:] + b"\n"
    sample = text[:_SAMPLE_BYTES]
    rows = int((sample.count(b"\n") + 1) * (len(text) / max(1, len(sample))) * 1.05) + 64
    columns = WalkedColumns(fields, rows, len(text))
    if cut:
        columns.walk(np.frombuffer(text, np.uint8), cut)
    columns.walk(np.frombuffer(tail + bytes(_BYTES_BEHIND), np.uint8), len(tail))
    return _finish(columns, lambda: text)


def walk_placed_lines(
    pieces: Sequence[PlacedLines], join: Callable[[], bytes], schema: Mapping[str, pl.DataType]
) -> WalkedLines | None:
    """Return what is read of lines that lie in several places, as ``walk_text`` does; blank ones are doubts.

    No piece is empty. ``join`` gives the text of all lines, which is asked for only where they are not plain ASCII.
    """
    bytes_in_all = sum(len(piece.memory) for piece in pieces)
    fields = _plan_for(schema, bytes_in_all)
    if fields is None:
        return None
    columns = WalkedColumns(fields, sum(len(piece.starts) for piece in pieces), bytes_in_all)
    for piece in pieces:
        safe = int(np.searchsorted(piece.ends, len(piece.memory) - _BYTES_BEHIND))
        if safe:
            columns.walk(piece.memory, 0, PlacedLines(piece.memory, piece.starts[:safe], piece.ends[:safe]))
        if safe < len(piece.starts):
            first = int(piece.starts[safe])
            rest = np.concatenate([piece.memory[first:], np.zeros(_BYTES_BEHIND, np.uint8)])
            columns.walk(rest, 0, PlacedLines(rest, piece.starts[safe:] - first, piece.ends[safe:] - first))
    return _finish(columns, join)


def _plan_for(schema: Mapping[str, pl.DataType], bytes_in_all: int) -> DeclaredFields | None:
    if sys.byteorder != "little" or bytes_in_all > _MOST_BYTES:
        return None
    return plan_fields(schema)


def _finish(columns: WalkedColumns, join: Callable[[], bytes]) -> WalkedLines:
    """Return rows and doubts in their order; the columns know of each doubt how many rows come before it."""
    frame, misfits = columns.make()
    if columns.has_high_bits and not is_utf8(join()):
        misfits = np.union1d(misfits, columns.find_broken_rows(0, columns.rows))
    unread = columns.doubtful_lines()
    rows_before = np.array([row for row, _ in unread], np.int64)
    places = rows_before + np.arange(len(unread))
    doubts = [line for _, line in unread]
    if not len(misfits):
        return WalkedLines(frame, doubts, places)
    # A row that does not fit after all comes behind the rows and the doubts before it.
    places = np.concatenate([places, misfits + np.searchsorted(rows_before, misfits, side="right")])
    doubts += [columns.line_of(row) for row in misfits.tolist()]
    order = np.argsort(places)
    fits = np.ones(columns.rows, bool)
    fits[misfits] = False
    return WalkedLines(frame.filter(fits), [doubts[place] for place in order], places[order])
