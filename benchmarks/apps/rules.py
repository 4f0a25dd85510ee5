"""What the applications look for: limits and times, which every system is given alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LOW_VOLTAGE, VAULT = "low-voltage", "vault"
APPS = (LOW_VOLTAGE, VAULT)

WINDOW_MS = {LOW_VOLTAGE: 10_000, VAULT: 5_000}
DELAY_MS = 2_000

LEVELS = ("normal", "notice", "warning", "alarm")


@dataclass(frozen=True, slots=True)
class VaultRule:
    """When a vault's warning level is entered and left, by its means over windows."""

    drift_um: tuple[float, ...] = (5_000.0, 10_000.0, 20_000.0)
    """Since the first window, for each level but the first."""
    um_per_minute: tuple[float, ...] = (2_000.0, 4_000.0, 8_000.0)
    """Or so fast, against a window that is as old as the rate is to look back."""
    left_below: float = 0.75
    """A level is left when both are below this part of what it was entered for: noise must not make it flap."""
    rate_over_ms: int = 30_000

    def judge(self, drift_um: float, um_per_minute: float, level: int) -> int:
        """Return the level to be on now: the highest that is entered, or held because it was on and is not left."""
        for number in range(len(self.drift_um), 0, -1):
            part = self.left_below if number <= level else 1.0
            if drift_um >= part * self.drift_um[number - 1] or um_per_minute >= part * self.um_per_minute[number - 1]:
                return number
        return 0

    def judge_all(
        self, drift_um: NDArray[np.float64], um_per_minute: NDArray[np.float64], levels: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the levels of many crowns at once."""
        now = np.zeros_like(levels)
        for number, (most_um, most_um_per_minute) in enumerate(
            zip(self.drift_um, self.um_per_minute, strict=True), start=1
        ):
            part = np.where(number <= levels, self.left_below, 1.0)
            now[(drift_um >= part * most_um) | (um_per_minute >= part * most_um_per_minute)] = number
        return now


VAULT_RULE = VaultRule()
