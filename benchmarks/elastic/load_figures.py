"""From the batches of a flow that follows its load to what is claimed of it; pure: every claim can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean, median
from typing import Any

STEADY_BATCHES = 5
"""The last ones of a phase: by then it is seen what the phase settles at."""
LEAST_MEDIAN_SECONDS = 2.0
"""Shorter batches are mostly what Spark's jobs take, and hide what a change costs."""

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
    """In the mean of the last batches, as the flow reckons: what comes, by what its tasks take, over what there is."""
    used: float
    """In the same batches: all that executors used, their JVMs and the start of processes with it."""
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
    runs: int
    """Of the flow: more than one is a restart."""
    replayed_batches: int
    """Those that were committed before and published again."""
    usual_gap_seconds: float
    """Between two commits, in the median before the load changed."""
    longest_gap_seconds: float
    """Between two commits, from the first change of the load on."""

    @property
    def breaches(self) -> tuple[str, ...]:
        """What makes the run no proof of anything, in words: it was to go on without a restart, batch by batch."""
        found = []
        if self.runs != 1:
            found.append(f"the flow was started {self.runs} times, and is never to restart")
        if self.replayed_batches:
            found.append(f"{self.replayed_batches} batches were published a second time, and none was to be")
        return tuple(found)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What makes the run easier than it is meant to be, in words."""
        return tuple(
            f"batches under load {phase.name} took {phase.median_seconds:.2f} s in the median, and were to take "
            f"{LEAST_MEDIAN_SECONDS:g} s or more"
            for phase in self.phases
            if phase.median_seconds < LEAST_MEDIAN_SECONDS
        )

    @property
    def without_results_seconds(self) -> float:
        """For how much longer than usual there was no commit."""
        return max(0.0, self.longest_gap_seconds - self.usual_gap_seconds)

    @property
    def utilisation_error_points(self) -> float:
        """How far from the target the flow settles, where it has changed its size, at most."""
        return max(100 * abs(phase.utilisation - self.target) for phase in self.phases[1:])

    @property
    def used_error_points(self) -> float:
        """The same by all that executors used."""
        return max(100 * abs(phase.used - self.target) for phase in self.phases[1:])


def evaluate_load(reported: Mapping[str, Any], target: float, cores: float) -> LoadRun:
    """Return what the two changes of load did; ``cores`` are those of an executor."""
    batches: Sequence[Batch] = [batch for batch in reported["batches"] if batch["rows"]]
    up_at, down_at = reported["changed_up_at"], reported["changed_down_at"]
    # What a batch reads is known when it begins.
    began = {batch["batch"]: batch["committed_at"] - batch["seconds"] for batch in batches}
    before = [batch for batch in batches if reported["calibrated_at"] <= began[batch["batch"]] < up_at]
    high = [batch for batch in batches if up_at <= began[batch["batch"]] < down_at]
    # The last rows of all are less than a load.
    low = [batch for batch in batches if down_at <= began[batch["batch"]] < reported["ended_at"]]
    decisions = reported["decisions"]
    asked = [one["batch"] for one in decisions if one["action"] == "provision"]
    offloaded = [one["batch"] for one in decisions if one["action"] == "offload"]
    rows = median(batch["rows"] for batch in low)
    caught_up = next((batch["batch"] for batch in low if (batch["waiting_rows"] or 0) < rows), low[0]["batch"])
    gaps = [(after["committed_at"], after["committed_at"] - one["committed_at"]) for one, after in pairwise(batches)]
    grown = next(batch for batch in high if batch["homes"] == max(other["homes"] for other in high))
    return LoadRun(
        phases=(
            _describe("×1", 1, before, cores),
            _describe("×4", 4, high, cores),
            _describe("×1 again", 1, low, cores),
        ),
        target=target,
        decided_up_batches=asked[0] - high[0]["batch"] + 1,
        decided_down_batches=offloaded[-1] - caught_up + 1,
        up_changes=len(asked),
        down_changes=len(offloaded),
        grown_seconds=grown["committed_at"] - up_at,
        runs=reported["runs"],
        replayed_batches=sum(batch["replayed"] for batch in reported["batches"]),
        usual_gap_seconds=median(gap for at, gap in gaps if reported["calibrated_at"] <= at < up_at),
        longest_gap_seconds=max(gap for at, gap in gaps if up_at <= at < reported["ended_at"]),
    )


def compute_load_figures(run: LoadRun) -> dict[str, float]:
    """Return the figures by name; a run that is no proof has none but what says so."""
    faults: dict[str, float] = {"restarts_count": run.runs - 1, "replayed_batches": run.replayed_batches}
    if run.breaches:
        return faults
    return {
        **faults,
        "slowest_over_median": max(phase.slowest_over_median for phase in run.phases),
        "utilisation_error_points": run.utilisation_error_points,
        "used_error_points": run.used_error_points,
        "decided_up_batches": run.decided_up_batches,
        "decided_down_batches": run.decided_down_batches,
        "up_changes": run.up_changes,
        "down_changes": run.down_changes,
        "grown_seconds": run.grown_seconds,
        "load_longest_gap_seconds": run.longest_gap_seconds,
        "load_without_results_seconds": run.without_results_seconds,
    }


def _describe(name: str, load: int, batches: Sequence[Batch], cores: float) -> Phase:
    seconds = [batch["seconds"] for batch in batches]
    last = batches[-STEADY_BATCHES:]
    return Phase(
        name=name,
        load=load,
        batches=len(batches),
        median_seconds=median(seconds),
        slowest_seconds=max(seconds),
        utilisation=mean(batch["elasticity"]["utilisation"] for batch in last),
        used=mean(
            batch["busy_seconds"] / (batch["executors"] * cores * (batch["committed_at"] - before["committed_at"]))
            for before, batch in pairwise(last)
        ),
        executors=last[-1]["executors"],
    )
