"""Operators in a row, driven batch by batch under a frozen watermark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from oracle.rows import BEGINNING_US, END_US, Placed, to_microseconds


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
) -> Answer:
    """Return what the operators, one behind the other, emit for these batches.

    Every batch runs under the watermark that the batches before it left: the largest time less the delay. After the
    data come batches without rows while windows are due, or the drain. Behind a window, a row's time is the last
    instant of its window, and it is late by the watermark of the batch before: its window closed in this very batch.
    """
    answer = Answer()
    current_us = previous_us = BEGINNING_US
    number = 0
    while True:
        has_rows = number < len(batches)
        draining = drain and number == len(batches)
        if not has_rows and not draining and not any(operator.is_due(current_us) for operator in operators):
            answer.batch_count = number
            return answer
        given = batches[number] if has_rows else ()
        rows = [Placed(_time_of(row, time), number, order, dict(row)) for order, row in enumerate(given)]
        results, late = _advance(operators, rows, time, previous_us, current_us, draining)
        answer.late_rows += late
        if results:
            answer.batches[number] = results
        previous_us = current_us
        if time is not None and rows:
            current_us = max(current_us, max(placed.time_us for placed in rows) - delay_us)
        number += 1
        if draining:
            answer.batch_count = number
            return answer


def _advance(
    operators: Sequence[Operator],
    rows: list[Placed],
    time: str | None,
    previous_us: int,
    current_us: int,
    draining: bool,
) -> tuple[list[dict[str, Any]], int]:
    late = 0
    behind_windows = False
    batch = rows[0].batch if rows else 0
    results: list[dict[str, Any]] = [placed.row for placed in rows]
    for operator in operators:
        closed_us = previous_us if behind_windows else current_us
        results, late_here = operator.advance(rows, closed_us, END_US if draining else current_us)
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
