"""Rows that cannot be read, set apart without losing the good ones around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from anabranch.model import ReadOutcome

RAW_TEXT_LIMIT = 4096
"""Characters of a malformed row that are kept for the dead-letter sink."""

_FEW_LINES = 256
"""As many are read one by one in the time that a parser takes to be called."""

QuickReader = Callable[[Sequence[bytes]], pl.DataFrame | None]
"""Returns the rows of lines, or None if one of them is malformed or out of the ordinary."""
ExactReader = Callable[[Sequence[bytes]], tuple[pl.DataFrame, list[tuple[int, str]]]]
"""Returns the rows of the lines that are well formed, and the places and reasons of all others."""


def shorten_raw(line: bytes) -> str:
    """Return a malformed line as text, cut to 4096 characters; bytes that are no UTF-8 show as ``\\xff``."""
    text = line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
    return text if len(text) <= RAW_TEXT_LIMIT else text[: RAW_TEXT_LIMIT - 1] + "…"


def sieve_lines(lines: Sequence[bytes], read_quickly: QuickReader, read_exactly: ExactReader) -> ReadOutcome:
    """Return the rows of all well-formed lines, in order, and the other lines with the reasons."""
    frame, faults = set_faulty_lines_apart(lines, read_quickly, read_exactly)
    return ReadOutcome(frame, tuple((reason, shorten_raw(lines[place])) for place, reason in faults))


def set_faulty_lines_apart(
    lines: Sequence[bytes], read_quickly: QuickReader, read_exactly: ExactReader
) -> tuple[pl.DataFrame, list[tuple[int, str]]]:
    """Return the rows of all well-formed lines, and the places of the others with the reasons, all in order.

    Blocks that cannot be read quickly are halved until few lines are left, which are read one by one. So speed never
    decides what is malformed: a quick reader answers what the exact one would, or nothing.
    """
    frames: list[pl.DataFrame] = []
    faults: list[tuple[int, str]] = []
    waiting = [(0, len(lines))]
    while waiting:
        first, last = waiting.pop()
        if last - first > _FEW_LINES:
            frame = read_quickly(lines[first:last])
            if frame is None:
                middle = (first + last) // 2
                waiting += [(middle, last), (first, middle)]
                continue
        else:
            frame, found = read_exactly(lines[first:last])
            faults += [(first + place, reason) for place, reason in found]
        frames.append(frame)
    return pl.concat(frames), faults
