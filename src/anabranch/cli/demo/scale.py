"""How large the demo is, and what it looks for."""

from __future__ import annotations

from dataclasses import dataclass

LOW_VOLTS = 207.0
"""Ten per cent below 230 V: what a grid may give at the least."""
WINDOW_SECONDS = 5
DELAY_SECONDS = 2


@dataclass(frozen=True, slots=True)
class DemoScale:
    """How large the demo is."""

    sensors: int = 20_000
    rows_per_second: int = 150_000
    seconds: int = 35
    slots: int = 4
    seed: int = 7

    @property
    def rows(self) -> int:
        return self.rows_per_second * self.seconds
