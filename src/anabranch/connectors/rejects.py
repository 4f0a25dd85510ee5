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
    find_fault: Callable[[bytes], str | None],
    explain: Callable[[bytes], str],
) -> ReadOutcome:
    """Parse what ``parse`` accepts and reject the rest line by line, in order.

    Blocks that fail are halved until single lines are left, so ``parse`` decides what is malformed, and the slow way
    accepts exactly what the fast one does. ``find_fault`` saves time where most lines are bad: it returns the reason
    for a line that ``parse`` would surely reject, and None when in doubt. ``explain`` finds the reason in any case.
    """
    frames, faults = set_faulty_lines_apart(lines, parse, find_fault, explain)
    frame = pl.concat(frames) if frames else _parse_nothing(parse)
    return ReadOutcome(frame, tuple((reason, shorten_raw(lines[index])) for index, reason in faults))


def set_faulty_lines_apart(
    lines: Sequence[bytes],
    parse: Callable[[bytes], pl.DataFrame | None],
    find_fault: Callable[[bytes], str | None],
    explain: Callable[[bytes], str],
) -> tuple[list[pl.DataFrame], list[tuple[int, str]]]:
    """Return the frames of what ``parse`` accepts, and the places of the other lines with the reasons, all in order."""
    frames: list[pl.DataFrame] = []
    faults: list[tuple[int, str]] = []
    waiting: list[tuple[int, int, str | None]] = [(0, len(lines), None)]
    while waiting:
        first, last, fault = waiting.pop()
        if first >= last:
            continue
        frame = None if fault else parse(b"".join(lines[first:last]))
        if frame is not None:
            frames.append(frame)
        elif last - first == 1:
            faults.append((first, fault or explain(lines[first])))
        elif last - first > _SIEVE_LINES:
            middle = (first + last) // 2
            waiting += [(middle, last, None), (first, middle, None)]
        else:
            waiting += reversed(_set_faults_apart(lines, first, last, find_fault))
    return frames, faults


def _set_faults_apart(
    lines: Sequence[bytes], first: int, last: int, find_fault: Callable[[bytes], str | None]
) -> list[tuple[int, int, str | None]]:
    """Cut a block at its faulty lines; at its middle if none is found."""
    pieces: list[tuple[int, int, str | None]] = []
    start = first
    for index in range(first, last):
        fault = find_fault(lines[index])
        if fault is not None:
            pieces += [(start, index, None), (index, index + 1, fault)]
            start = index + 1
    if not pieces:
        middle = (first + last) // 2
        return [(first, middle, None), (middle, last, None)]
    return [*pieces, (start, last, None)]


def _parse_nothing(parse: Callable[[bytes], pl.DataFrame | None]) -> pl.DataFrame:
    empty = parse(b"")
    assert empty is not None  # Nothing at all is never malformed.
    return empty
