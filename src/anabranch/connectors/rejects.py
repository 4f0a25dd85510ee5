"""Rows that cannot be read, set apart without losing the good ones around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from anabranch.model import ReadOutcome

RAW_TEXT_LIMIT = 4096
"""Characters of a malformed row that are kept for the dead-letter sink."""

_SIEVE_LINES = 256


def shorten_raw(line: bytes) -> str:
    """Return a malformed line as text, cut to 4096 characters; bytes that are no UTF-8 show as ``\\xff``."""
    text = line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
    return text if len(text) <= RAW_TEXT_LIMIT else text[: RAW_TEXT_LIMIT - 1] + "…"


def sieve_lines(
    lines: Sequence[bytes],
    parse: Callable[[bytes], pl.DataFrame | None],
    looks_bad: Callable[[bytes], bool],
    explain: Callable[[bytes], str],
) -> ReadOutcome:
    """Parse what ``parse`` accepts and reject the rest line by line, in order.

    Blocks that fail are halved until single lines are left, so ``parse`` alone decides what is malformed, and the
    slow way accepts exactly what the fast one does. ``looks_bad`` only saves time, by setting suspects apart.
    """
    frames: list[pl.DataFrame] = []
    rejected: list[tuple[str, str]] = []
    waiting: list[tuple[int, int]] = [(0, len(lines))]
    while waiting:
        first, last = waiting.pop()
        if first >= last:
            continue
        frame = parse(b"".join(lines[first:last]))
        if frame is not None:
            frames.append(frame)
        elif last - first == 1:
            rejected.append((explain(lines[first]), shorten_raw(lines[first])))
        elif last - first > _SIEVE_LINES:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
        else:
            # Bad lines stand alone, the stretches between them are tried whole.
            pieces: list[tuple[int, int]] = []
            start = first
            for index in range(first, last):
                if looks_bad(lines[index]):
                    pieces += [(start, index), (index, index + 1)]
                    start = index + 1
            if start == first:
                middle = (first + last) // 2
                pieces = [(first, middle), (middle, last)]
            else:
                pieces.append((start, last))
            waiting += reversed(pieces)
    good = pl.concat(frames, how="vertical") if frames else None
    if good is None:
        good = parse(b"")
        assert good is not None  # Nothing at all is never malformed.
    return ReadOutcome(good, tuple(rejected))
