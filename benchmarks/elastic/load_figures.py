"""From the batches of a flow that follows its load to what is claimed of it; pure: every claim can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

WARM_UP_BATCHES = 3
STEADY_BATCHES = 4
"""The last ones of a phase: by then it is seen what the phase settles at."""

Batch = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of batches under one load."""

    name: str
    load: int
    batches: int
    median_seconds: float
    slowest_seconds: float
    utilisation: float
    """In the mean of the last batches: what comes, over what executors have."""
    executors: int
    """At its end."""

    @property
    def slowest_over_median(self) -> float:
        """How much longer the slowest batch took than a usual one of the same load, changes included."""
        return self.slowest_seconds / self.median_seconds


@dataclass(frozen=True, slots=True)
class LoadRun:
    """A flow under a load that rose and fell."""

    phases: tuple[Phase, ...]
    target: float
    decided_up_batches: int
    """From the first batch that began under the higher load to the one at whose end more executors were asked for."""
    decided_down_batches: int
    """The same of the lower load, once nothing waits any more; the way down is slower by intent."""
    up_changes: int
    down_changes: int
    grown_seconds: float
    """From the change of the load until slots ran on all executors."""

    @property
    def utilisation_error_points(self) -> float:
        """How far from the target the flow settles, where it has changed its size, at most."""
        return max(100 * abs(phase.utilisation - self.target) for phase in self.phases[1:])


def evaluate_load(reported: Mapping[str, Any], target: float) -> LoadRun:
    """Return what the two changes of load did."""
    batches: Sequence[Batch] = [batch for batch in reported["batches"] if batch["rows"]]
    up_at, down_at = reported["changed_up_at"], reported["changed_down_at"]
    # What a batch reads is known when it begins.
    began = {batch["batch"]: batch["committed_at"] - batch["seconds"] for batch in batches}
    before = [batch for batch in batches if began[batch["batch"]] < up_at][WARM_UP_BATCHES:]
    high = [batch for batch in batches if up_at <= began[batch["batch"]] < down_at]
    low = [batch for batch in batches if began[batch["batch"]] >= down_at]
    decisions = reported["decisions"]
    asked = [one["batch"] for one in decisions if one["action"] == "provision"]
    offloaded = [one["batch"] for one in decisions if one["action"] == "offload"]
    rows = median(batch["rows"] for batch in low)
    caught_up = next((batch["batch"] for batch in low if (batch["waiting_rows"] or 0) < rows), low[0]["batch"])
    grown = next(batch for batch in high if batch["homes"] == max(other["homes"] for other in high))
    return LoadRun(
        phases=(
            _describe("×1", 1, before),
            _describe("×4", 4, high),
            _describe("×1 again", 1, low),
        ),
        target=target,
        decided_up_batches=asked[0] - high[0]["batch"] + 1,
        decided_down_batches=offloaded[-1] - caught_up + 1,
        up_changes=len(asked),
        down_changes=len(offloaded),
        grown_seconds=grown["committed_at"] - up_at,
    )


def compute_load_figures(run: LoadRun) -> dict[str, float]:
    """Return the figures by name."""
    return {
        "slowest_over_median": max(phase.slowest_over_median for phase in run.phases),
        "utilisation_error_points": run.utilisation_error_points,
        "decided_up_batches": run.decided_up_batches,
        "decided_down_batches": run.decided_down_batches,
        "up_changes": run.up_changes,
        "down_changes": run.down_changes,
        "grown_seconds": run.grown_seconds,
    }


def _describe(name: str, load: int, batches: Sequence[Batch]) -> Phase:
    seconds = [batch["seconds"] for batch in batches]
    last = batches[-STEADY_BATCHES:]
    return Phase(
        name=name,
        load=load,
        batches=len(batches),
        median_seconds=median(seconds),
        slowest_seconds=max(seconds),
        utilisation=mean(batch["elasticity"]["utilisation"] for batch in last),
        executors=last[-1]["executors"],
    )
