"""Texts as small whole numbers, which group, sort and pack many times as fast.

Columns of texts hold them as views: length, beginning, and where the rest lies. Rows of a file that keeps each text
once, as Parquet does, have equal views if they have equal texts, so that most texts need not even be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import WORTH_COMPILED_CODE_ROWS

Codes = NDArray[np.int32]
_MOST_ROWS = 2**30
_FIRST_PLACES = 1 << 13
_GIVES_UP_ABOVE = 0.7
"""Where more of the views than this are different, they say too little about texts."""
_HOPELESS_ABOVE = 0.95
_JUDGED_PART = 8
"""Where nearly all of the first eighth are different, the others are not looked at."""
_LOOKED_AT = 1024
_LOW_HALF = np.uint64(0xFFFFFFFF)
_LONGEST_WITHIN_VIEW = np.uint64(12)


@dataclass(frozen=True, slots=True)
class CodedTexts:
    """A column of texts as numbers from 0, in the order in which its texts first come."""

    codes: Codes
    texts: pl.Series
    """The different texts, by number."""


def code_texts(column: pl.Series) -> CodedTexts | None:
    """Return a column without nulls as numbers, or None where texts are as fast.

    That is so for few rows, and for texts that hardly repeat or of which each row has bytes of its own: to compare
    those takes as long as grouping by them does. Texts of up to twelve bytes are views all by themselves.
    """
    if column.dtype != pl.String or not WORTH_COMPILED_CODE_ROWS <= len(column) <= _MOST_ROWS or column.null_count():
        return None
    by_view = _code_views(column)
    by_text = _code_by_hash(by_view.texts) if by_view is not None else None
    if by_view is None or by_text is None:
        return None
    return CodedTexts(by_text.codes[by_view.codes], by_text.texts)


@dataclass(frozen=True, slots=True)
class CodedNumbers:
    """Numbers as numbers from 0, in the order in which they first come."""

    codes: Codes
    firsts: Codes
    """Where each of them first comes."""


def code_numbers(numbers: NDArray[np.int64]) -> CodedNumbers:
    """Return whole numbers, however far apart, as small ones."""
    pairs = np.zeros(2 * len(numbers), np.uint64)
    pairs[::2] = numbers.view(np.uint64)
    codes, firsts = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int32)
    count = _code_pairs(pairs, codes, firsts)
    return CodedNumbers(codes, firsts[:count])


@dataclass(frozen=True, slots=True)
class CodedRows:
    """Rows whose texts, in some columns, are numbers."""

    frame: pl.DataFrame
    texts: Mapping[str, pl.Series]
    """The different texts of each such column, by number."""

    def restore(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows that were made of these with their texts again."""
        columns = [texts[rows.get_column(name)].alias(name) for name, texts in self.texts.items()]
        return rows.with_columns(columns) if columns else rows


def code_columns(frame: pl.DataFrame, columns: Sequence[str]) -> CodedRows:
    """Return rows with the texts of these columns as numbers, where that is worth it."""
    coded = {name: found for name in columns if (found := code_texts(frame.get_column(name))) is not None}
    if not coded:
        return CodedRows(frame, {})
    numbers = [pl.Series(name, found.codes) for name, found in coded.items()]
    return CodedRows(frame.with_columns(numbers), {name: found.texts for name, found in coded.items()})


def _code_views(column: pl.Series) -> CodedTexts | None:
    """Return numbers for different views: equal texts may have several of them; None if too many are different."""
    codes = np.empty(len(column), np.int32)
    distinct: list[pl.Series] = []
    start = found = 0
    # Each piece by itself: its views are few enough to stay in the processor's cache.
    for piece in column.get_chunks():
        firsts = np.empty(len(piece), np.int32)
        here = codes[start : start + len(piece)]
        views = _views_of(piece)
        count = -1 if _follow_each_other(views) else _code_pairs(views, here, firsts, gives_up=True)
        if count < 0:
            return None
        here += found
        distinct.append(piece[firsts[:count]])
        start, found = start + len(piece), found + count
    return CodedTexts(codes, pl.concat(distinct, rechunk=True))


def _code_by_hash(column: pl.Series) -> CodedTexts | None:
    """Return numbers for different texts by their hash; None where two have the same."""
    pairs = np.zeros(2 * len(column), np.uint64)
    pairs[::2] = _hashes_of(column)
    codes, firsts = np.empty(len(column), np.int32), np.empty(len(column), np.int32)
    texts = column[firsts[: _code_pairs(pairs, codes, firsts)]]
    return CodedTexts(codes, texts) if (texts[codes] == column).all() else None


def _hashes_of(column: pl.Series) -> NDArray[np.uint64]:
    # Any hash will do: numbers go by which text comes first.
    hashes: NDArray[np.uint64] = column.hash().to_numpy()
    return hashes


def _views_of(piece: pl.Series) -> NDArray[np.uint64]:
    """Return the two words that each text of a piece is kept as."""
    array = piece.to_arrow(compat_level=pl.CompatLevel.newest())
    words: NDArray[np.uint64] = np.frombuffer(array.buffers()[1], np.uint64)
    return words[2 * array.offset : 2 * (array.offset + len(array))]


def _follow_each_other(views: NDArray[np.uint64]) -> bool:
    """Say whether each of the first texts has bytes of its own, behind those of the one before, as lines of JSON do."""
    firsts = views[: 2 * _LOOKED_AT]
    # A view is length, beginning, number of a buffer and place in it, in four bytes each; short texts have no place.
    lengths, buffers, places = firsts[::2] & _LOW_HALF, firsts[1::2] & _LOW_HALF, firsts[1::2] >> np.uint64(32)
    is_long = lengths > _LONGEST_WITHIN_VIEW
    buffers, places = buffers[is_long], places[is_long]
    rises = (places[1:] > places[:-1]) | (buffers[1:] != buffers[:-1])
    return 2 * len(places) > len(lengths) and bool(rises.all())


def _code_pairs(pairs: NDArray[np.uint64], codes: Codes, firsts: Codes, gives_up: bool = False) -> int:
    """Number pairs of words in the order in which they first come; return how many there are.

    Fills in the number of each pair, and where each number first comes. One that gives up returns -1 where most pairs
    are different.
    """
    from anabranch.compiled.text_code_loops import code_pairs, fill_table

    places, done, found = _FIRST_PLACES, 0, 0
    known = np.empty(places, np.uint64)
    while True:
        table = np.zeros(places, np.uint32)
        fill_table(table, known, found)
        done, found = code_pairs(pairs, done, table, known, found, codes, firsts)
        if done == len(codes):
            return -1 if gives_up and found > _GIVES_UP_ABOVE * done else found
        if gives_up and _JUDGED_PART * done > len(codes) and found > _HOPELESS_ABOVE * done:
            return -1
        places *= 4
        known = np.concatenate((known[: 2 * found], np.empty(places - 2 * found, np.uint64)))
