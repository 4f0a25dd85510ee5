"""Windows and sessions whose keys, or groups of keys, have watermarks of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Clock, OperatorTime, WindowSpec
from oracle.rows import END_US, Placed, key_of, to_moment
from oracle.windows import Shape
from unit.operators.key_time_oracle import KeyTimeOracle, KeyTimeSessions

GroupOf = Callable[[tuple[Any, ...]], int]


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A row as the oracle of single keys wants it."""

    key: tuple[Any, ...]
    placed: Placed


class OwnTime:
    """An operator of the oracle; ``group_of`` says which keys share a watermark, without it each has its own."""

    windowed = True

    def __init__(
        self, keys: Sequence[str], shape: Shape, window: WindowSpec, clock: Clock, group_of: GroupOf | None = None
    ) -> None:
        self._keys = keys
        self._shape = shape
        self._marks = window.marks_emissions
        self._delay_us = clock.delay_us
        self._group_of = group_of
        self._fired: dict[int, int] = {}
        self._closed: dict[int, int] = {}
        make = KeyTimeSessions if window.kind == "session" else KeyTimeOracle
        self._oracle = make(window, clock, None if group_of is None else self._shared)

    def advance(self, rows: Sequence[Placed], closed_us: int, fire_us: int) -> tuple[list[dict[str, Any]], int]:
        """Return results and the number of late rows; the flow's own watermark does not matter, but for a drain."""
        keyed = [(p.time_us, p.batch, p.order, _Keyed(key_of(p, self._keys), p)) for p in rows]
        time = OperatorTime(0, fire_us=END_OF_TIME if fire_us == END_US else BEGINNING_OF_TIME)
        emitted, late, _ = self._oracle.advance(keyed, time)  # type: ignore[arg-type]
        self._fired = dict(self._closed)
        if self._group_of is not None:
            for placed in rows:
                group = self._group_of(key_of(placed, self._keys))
                self._closed[group] = max(self._closed.get(group, BEGINNING_OF_TIME), placed.time_us - self._delay_us)
        results = []
        for start, end, key, emission, group_rows in emitted:
            window = {"window_start": to_moment(start), "window_end": to_moment(end)}
            mark = {"emission": emission} if self._marks else {}
            named = dict(zip(self._keys, key, strict=True))  # type: ignore[call-overload]
            for result in self._shape([keyed.placed for *_, keyed in group_rows]):  # type: ignore[attr-defined]
                results.append({**window, **mark, **named, **result})
        return results, late

    def is_due(self, watermark_us: int) -> bool:
        """Say whether a group's watermark rose: only then may something fire without rows."""
        return self._group_of is not None and self._fired != self._closed

    def _shared(self, key: tuple[Any, ...], time: OperatorTime) -> tuple[int, int]:
        assert self._group_of is not None
        group = self._group_of(key)
        return self._fired.get(group, BEGINNING_OF_TIME), self._closed.get(group, BEGINNING_OF_TIME)
