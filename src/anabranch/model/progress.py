"""What a batch did, as users and displays see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One committed batch in figures."""

    batch: int
    rows_in: int
    rows_out: int
    late_rows: int
    dead_rows: int
    batch_seconds: float
    """From the trigger's call to the commit, publishing included."""
    watermark_us: int | None
    slot_rows: tuple[int, ...]
    """Rows that each slot of the first stateful level received (after local merge)."""
    slot_seconds: tuple[float, ...]
    state_rows: int
    state_bytes: int
    exchanged_bytes: int
    moved_bytes: int = 0
    """State that was handed to other slots at the end of the batch."""
    slot_late_rows: int = 0
    """Rows that would be late if each slot followed its own rows only, beside ``late_rows`` under the chosen clock."""
    updated_rows: int = 0
    """Late rows that changed a result."""
    changes: tuple[str, ...] = ()
    """What changes about routes from the next batch on, and why."""
    phase_seconds: dict[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    replayed: bool = False
    drained: bool = False

    @property
    def max_over_mean(self) -> float | None:
        """The fullest slot's rows over the mean; 1 is even. None without rows."""
        total = sum(self.slot_rows)
        return max(self.slot_rows) * len(self.slot_rows) / total if total else None

    @property
    def rows_per_second(self) -> float:
        return self.rows_in / self.batch_seconds if self.batch_seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self) | {"rows_per_second": self.rows_per_second}
