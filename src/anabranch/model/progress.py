"""What a batch did, as users and displays see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from anabranch.model.exchanges import ExchangeFigures
from anabranch.model.measures import BatchMeasures
from anabranch.model.power import EnergyFigure
from anabranch.model.replicas import ReplicaProgress


@dataclass(frozen=True, slots=True)
class Admitted:
    """How many rows a batch may have, so that its latency holds the flow's target.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
        >>> progress = flow.run("state", trigger="available-now", latency="2s")[0]
        >>> progress.admitted.rows, progress.admitted.target_seconds, progress.admitted.reason
        (10000, 2.0, 'no batch has been measured yet')
    """

    rows: int
    """Of all sources together; their own limits hold besides."""
    target_seconds: float
    expected_seconds: float | None
    """What a batch of so many rows takes in the mean, by the batches before; None before the first."""
    reason: str


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One committed batch in figures.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
        >>> progress = flow.run("state", trigger="available-now")[0]
        >>> progress.batch, progress.rows_in, progress.rows_out, progress.late_rows, progress.state_rows
        (0, 4, 2, 0, 2)
    """

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
    sampled_rows: int = 0
    """Rows that slots looked at for hot keys, of all operators together."""
    plan_costs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Operator → what the plan behind its change costs: ``planning_seconds``, ``table_rows``, ``moved_bytes`` as told
    beforehand, and ``split_load``, the rows of a batch whose results have to meet because slots share their keys."""
    strategies: dict[str, str] = field(default_factory=dict)
    """Operator → the strategy that its keys go by; ``plan`` is a planner's plan over hashes."""
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    """Operator → strategy → the busiest slot's load over the mean that it would have given on the last sample."""
    phase_seconds: dict[str, float] = field(default_factory=dict)
    exchanges: tuple[ExchangeFigures, ...] = ()
    """How rows came to each stateful operator's slots, what that took, and how they will come in the next batch."""
    held_back: dict[str, float] = field(default_factory=dict)
    """Source → by how many seconds it is ahead of another that it waits for, from the next batch on."""
    admitted: Admitted | None = None
    """What the batch was allowed to read, where the run has a target for its ``latency``."""
    waiting_rows: int | None = None
    """Rows that sources had besides, when the batch was planned; None if one of them cannot tell."""
    measures: BatchMeasures | None = None
    """What tasks took, by slot, executor and host, and what they sent each other; None if the batch was replayed."""
    replicas: ReplicaProgress | None = None
    """How replicas of state stood when the batch was over, where the run has some."""
    energy: EnergyFigure | None = None
    """What the flow's hosts drew since the batch before, where the run has the setting ``energy``: how many joules, the
    interval, and whether it was *measured* or *modelled*."""
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

    @property
    def energy_per_million_rows(self) -> EnergyFigure | None:
        """The energy that a million rows take at this rate; None without rows, or where energy is not told."""
        return self.energy.per_million_rows(self.rows_in) if self.energy is not None and self.rows_in else None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        plain = asdict(replace(self, measures=None)) | {"rows_per_second": self.rows_per_second}
        return plain | {"measures": None if self.measures is None else self.measures.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchProgress:
        """Read what ``to_json`` wrote; figures that this version does not know are left out."""
        known = {one.name for one in fields(cls)}
        read = {name: _with_tuples(value) for name, value in data.items() if name in known}
        told, admitted = data.get("measures"), data.get("admitted")
        replicas, energy = data.get("replicas"), data.get("energy")
        parts = {
            "exchanges": tuple(map(ExchangeFigures.from_json, data.get("exchanges", ()))),
            "measures": None if told is None else BatchMeasures.from_json(told),
            "admitted": None if admitted is None else Admitted(**admitted),
            "replicas": None if replicas is None else ReplicaProgress.from_json(replicas),
            "energy": None if energy is None else EnergyFigure.from_json(energy),
        }
        return cls(**read | parts)


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What the batches of a run did together."""

    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    slot_late_rows: int = 0
    updated_rows: int = 0
    dead_rows: int = 0
    exchanged_bytes: int = 0
    moved_bytes: int = 0
    slot_rows: tuple[int, ...] = ()
    """Rows that each slot of the first stateful level received."""
    cpu_seconds: float = 0.0
    """Processor time of tasks and executors."""
    measuring_seconds: float = 0.0
    """What it took to measure it."""
    energy: EnergyFigure | None = None
    """What hosts drew, where the run has the setting ``energy``."""

    def plus(self, progress: BatchProgress) -> RunTotals:
        """Return the totals with one more batch."""
        measures = progress.measures
        return RunTotals(
            batches=self.batches + 1,
            rows_in=self.rows_in + progress.rows_in,
            rows_out=self.rows_out + progress.rows_out,
            late_rows=self.late_rows + progress.late_rows,
            slot_late_rows=self.slot_late_rows + progress.slot_late_rows,
            updated_rows=self.updated_rows + progress.updated_rows,
            dead_rows=self.dead_rows + progress.dead_rows,
            exchanged_bytes=self.exchanged_bytes + progress.exchanged_bytes,
            moved_bytes=self.moved_bytes + progress.moved_bytes,
            slot_rows=_add_by_slot(self.slot_rows, progress.slot_rows),
            cpu_seconds=self.cpu_seconds + (0.0 if measures is None else measures.cpu_seconds),
            measuring_seconds=self.measuring_seconds + (0.0 if measures is None else measures.measuring_seconds),
            energy=_add_energy(self.energy, progress.energy),
        )

    @property
    def energy_per_million_rows(self) -> EnergyFigure | None:
        """The energy that a million rows took; None without rows, or where energy was not told."""
        return self.energy.per_million_rows(self.rows_in) if self.energy is not None and self.rows_in else None


def _add_by_slot(totals: tuple[int, ...], rows: tuple[int, ...]) -> tuple[int, ...]:
    longest = max(len(totals), len(rows))
    padded = (values + (0,) * (longest - len(values)) for values in (totals, rows))
    return tuple(sum(values) for values in zip(*padded, strict=True))


def _add_energy(one: EnergyFigure | None, other: EnergyFigure | None) -> EnergyFigure | None:
    return one + other if one is not None and other is not None else one or other


def _with_tuples(value: Any) -> Any:
    """Return JSON data with tuples in the place of lists: figures do not change."""
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    if isinstance(value, dict):
        return {name: _with_tuples(each) for name, each in value.items()}
    return value
