"""What a window is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

LatePolicy = Literal["drop", "side", "update"]
LATE_POLICIES: tuple[LatePolicy, ...] = get_args(LatePolicy)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window in event time; all lengths in microseconds."""

    kind: Literal["tumbling", "sliding", "session"]
    size_us: int
    """The length, or the gap of a session."""
    slide_us: int
    offset_us: int = 0
    late: LatePolicy = "drop"
    lateness_us: int = 0
    """For so long after a window closed, late rows still change its result (*update*)."""
    early_us: int | None = None
    """Results so far are emitted whenever the watermark passes a multiple of this."""

    @property
    def marks_emissions(self) -> bool:
        """Whether a window may be emitted more than once, so that results say which emission they are."""
        return self.late == "update" or self.early_us is not None


UnfilledPolicy = Literal["emit", "drop"]
UNFILLED_POLICIES: tuple[UnfilledPolicy, ...] = get_args(UnfilledPolicy)


@dataclass(frozen=True, slots=True)
class CountWindowSpec:
    """Windows of so many rows of a key, in the order they come, a new one every so many."""

    size_rows: int
    slide_rows: int
    idle_us: int | None = None
    """A key that had no row for so long, by the wall clock, is forgotten; None: no key ever is."""
    unfilled: UnfilledPolicy = "emit"
    """What becomes of the windows that it had begun."""
