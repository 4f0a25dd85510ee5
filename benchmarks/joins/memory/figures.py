"""From what a long join kept, batch by batch, to the figures that are claimed; pure, so that each can be tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from benchmarks.shared.answers import AnswerCheck

MEMORY = "memory"
MEMORY_SUMMARY = (
    "whether state and memory of the interval join stay as large as its window over 50 million generated rows, and "
    "with two sides of which one is ten times as fast"
)
"""What the part of the bench measures."""
LIVE, ALIGNED, FREE = "live", "aligned", "free"
"""On Spark, side by side; in process with one side ten times as fast, which waits, or does not."""
LAST_PART = 0.75
"""From here on, the run's last part."""


@dataclass(frozen=True, slots=True)
class MemorySample:
    """What a flow kept after a batch."""

    rows: int
    """That had come by then."""
    lengths: float
    """By how many times as long as a row is kept the watermark has risen by then."""
    state_bytes: int
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Resident, by role: driver, jvm, workers."""
    batch_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryRun:
    """One long run of the join."""

    way: str
    """``LIVE``, ``ALIGNED`` or ``FREE``."""
    rows: int
    lengths: int
    answer: AnswerCheck
    samples: Sequence[MemorySample]
    run_seconds: float
    other_cpu_share: float = 0.0

    @property
    def most_state_bytes(self) -> int:
        """The most that was kept after any batch."""
        return max(sample.state_bytes for sample in self.samples)

    @property
    def batch_seconds(self) -> float:
        """The longest batch of the run's last part."""
        steady = [sample for sample in self.samples if sample.lengths >= LAST_PART * self.lengths]
        return max(sample.batch_seconds for sample in steady or self.samples)


@dataclass(frozen=True, slots=True)
class Growth:
    """A mean when the window had been filled once, and in the last part of the run."""

    then: float
    now: float

    @property
    def percent(self) -> float:
        """By how much it grew; below zero: it shrank."""
        return 100 * (self.now / self.then - 1)


def find_growth(run: MemoryRun, measure: Callable[[MemorySample], float]) -> Growth | None:
    """Return how a measure went from the second window length on to the last quarter; none where a run has no such."""
    second = [measure(sample) for sample in run.samples if 1 <= sample.lengths < 2]
    last = [measure(sample) for sample in run.samples if sample.lengths >= LAST_PART * run.lengths]
    return Growth(mean(second), mean(last)) if second and last and any(second) else None


def find_state_growth(run: MemoryRun) -> Growth | None:
    """Return how committed state grew."""
    return find_growth(run, lambda sample: sample.state_bytes)


def find_memory_growth(run: MemoryRun, *roles: str) -> Growth | None:
    """Return how resident memory grew, of some roles or of all."""
    return find_growth(
        run,
        lambda sample: sum(size for role, size in sample.memory_bytes.items() if not roles or role in roles),
    )


def compute_memory_figures(runs: Sequence[MemoryRun]) -> dict[str, float]:
    """Return the figures by name; those of what was not run, or too short, are absent."""
    figures: dict[str, float] = {}
    by_way = {run.way: run for run in runs}
    if LIVE in by_way:
        live = by_way[LIVE]
        growths = {
            "state_growth_pct": find_state_growth(live),
            "memory_growth_pct": find_memory_growth(live),
            "python_memory_growth_pct": find_memory_growth(live, "driver", "workers"),
        }
        figures |= {name: growth.percent for name, growth in growths.items() if growth is not None}
        figures["most_state_bytes"] = live.most_state_bytes
    if ALIGNED in by_way:
        aligned = find_state_growth(by_way[ALIGNED])
        if aligned is not None:
            figures["aligned_state_growth_pct"] = aligned.percent
        if FREE in by_way:
            figures["free_x_aligned_state"] = by_way[FREE].most_state_bytes / by_way[ALIGNED].most_state_bytes
    return figures
