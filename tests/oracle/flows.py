"""Operators in a row, driven batch by batch: rows are judged by the watermark that their batch begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from oracle.rows import BEGINNING_US, END_US, Placed, to_microseconds

NEVER = 10**9
"""The number of no batch."""


class Operator(Protocol):
    """A stateful operator of the oracle."""

    windowed: bool

    def advance(self, rows: Sequence[Placed], closed_us: int, fire_us: int) -> tuple[list[dict[str, Any]], int]: ...

    def is_due(self, watermark_us: int) -> bool: ...


@dataclass
class Answer:
    """What a flow emits, by batch; batches without output are left out."""

    batches: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    late_rows: int = 0
    batch_count: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All results, in order of batch."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def answer_flow(
    batches: Sequence[Sequence[Mapping[str, Any]]],
    operators: Sequence[Operator],
    *,
    time: str | None = None,
    delay_us: int = 0,
    drain: bool = False,
    at_once_from: int = 0,
) -> Answer:
    """Return what the operators, one behind the other, emit for these batches.

    The watermark is the largest time so far, less the delay. A row is late by the watermark that the batches before its
    own left; windows fire by the one that their batch leaves, or, before the batch ``at_once_from``, by the one that it
    began with. After the data come batches without rows while windows are due, or the drain. Behind a window, a row's
    time is the last instant of its window; it is late only if a window of the next operator has fired without it.
    """
    answer = Answer()
    current_us = fired_us = BEGINNING_US
    number = 0
    while True:
        has_rows = number < len(batches)
        draining = drain and number == len(batches)
        if not has_rows and not draining and not any(operator.is_due(current_us) for operator in operators):
            answer.batch_count = number
            return answer
        given = batches[number] if has_rows else ()
        rows = [Placed(_time_of(row, time), number, order, dict(row)) for order, row in enumerate(given)]
        next_us = current_us
        if time is not None and rows:
            next_us = max(current_us, max(placed.time_us for placed in rows) - delay_us)
        fire_us = next_us if number >= at_once_from else current_us
        results, late = _advance(operators, rows, time, fired_us, current_us, END_US if draining else fire_us)
        answer.late_rows += late
        if results:
            answer.batches[number] = results
        fired_us, current_us = fire_us, next_us
        number += 1
        if draining:
            answer.batch_count = number
            return answer


def _advance(
    operators: Sequence[Operator],
    rows: list[Placed],
    time: str | None,
    fired_us: int,
    current_us: int,
    fire_us: int,
) -> tuple[list[dict[str, Any]], int]:
    late = 0
    behind_windows = False
    batch = rows[0].batch if rows else 0
    results: list[dict[str, Any]] = [placed.row for placed in rows]
    for operator in operators:
        closed_us = fired_us if behind_windows else current_us
        results, late_here = operator.advance(rows, closed_us, fire_us)
        late += late_here
        behind_windows |= operator.windowed
        rows = [Placed(_time_behind(operator, row, time), batch, order, row) for order, row in enumerate(results)]
    return results, late


def _time_behind(operator: Operator, row: Mapping[str, Any], time: str | None) -> int:
    if operator.windowed:
        return to_microseconds(row["window_end"]) - 1
    return _time_of(row, time if time in row else None)


def _time_of(row: Mapping[str, Any], column: str | None) -> int:
    if column is None:
        return 0
    moment = row[column]
    assert isinstance(moment, datetime)
    return to_microseconds(moment)
