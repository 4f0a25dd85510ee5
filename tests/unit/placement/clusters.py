"""A cluster as a formula, under a load that changes, steered by ``decide_size`` with a clock of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.model.cluster import Executor
from anabranch.model.elasticity import Elasticity
from anabranch.placement.admission import measure_offered
from anabranch.placement.elasticity import ClusterReading, ElasticDecision, ElasticState, decide_size

CORES = 2
SECONDS_A_ROW = 10e-6


@dataclass
class SimulatedCluster:
    """Executors that come some seconds after they are asked for, and batches that take what they take."""

    settings: Elasticity
    rows_per_second: Callable[[float], float]
    executors: int = 1
    coming_seconds: float = 10.0
    noise: float = 0.1
    planning_seconds: float = 0.0
    """At most so long after its trigger, by chance, a batch is planned."""
    most_seconds: float = 5.0
    """A batch has no more rows than all cores work off in so long."""
    held_bytes: Callable[[float], int] = lambda _: 0
    seed: int = 0
    now: float = 0.0
    waiting: float = 0.0
    state: ElasticState = field(default_factory=ElasticState)
    decisions: list[tuple[float, ElasticDecision]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._live = [self._make(number) for number in range(self.executors)]
        self._born = self.executors
        self._coming: list[float] = []
        # A first plan found that there was nothing.
        self._planned_at, self._seconds = self.now, 1.0
        self.now += self._seconds

    @property
    def live(self) -> int:
        """Executors that run."""
        return len(self._live)

    @property
    def changes(self) -> list[tuple[float, ElasticDecision]]:
        """What was decided but to stay as it is."""
        return [(at, one) for at, one in self.decisions if one.action in ("grow", "offload", "keep")]

    def run_until(self, seconds: float) -> None:
        """Run batches, one after the other."""
        while self.now < seconds:
            self._run_batch()

    def _make(self, number: int) -> Executor:
        return Executor(str(number), f"host-{number}", CORES, memory_bytes=1_000)

    def _run_batch(self) -> None:
        rate = self.rows_per_second(self.now) * (1 + self._chance.uniform(-self.noise, self.noise))
        planned_at = self.now + (self._chance.uniform(0.0, self.planning_seconds) if self.planning_seconds else 0.0)
        since_seconds, self._planned_at = planned_at - self._planned_at, planned_at
        most = CORES * self.live * self.most_seconds / SECONDS_A_ROW
        waiting_before = self.waiting
        rows = min(self.waiting + rate * since_seconds, most)
        self.waiting += rate * since_seconds - rows
        offered = measure_offered(int(rows), int(self.waiting), int(waiting_before), since_seconds)
        assert offered is not None
        cpu = rows * SECONDS_A_ROW
        self._seconds = max(1.0, planned_at - self.now + 0.3 + cpu / (CORES * self.live))
        self.now += self._seconds
        while self._coming and self._coming[0] <= self.now:
            self._coming.pop(0)
            self._live.append(self._make(self._born))
            self._born += 1
        reading = ClusterReading(
            now_seconds=self.now,
            executors=tuple(self._live),
            rows=int(rows),
            batch_seconds=self._seconds,
            cpu_seconds={one.id: cpu / self.live for one in self._live},
            offered_rows_per_second=offered,
            waiting_rows=int(self.waiting),
            held_bytes=self.held_bytes(self.now),
        )
        decision = decide_size(self.settings, self.state, reading)
        self.state = decision.state
        self.decisions.append((self.now, decision))
        if decision.action == "release":
            self._live = [one for one in self._live if one.id not in decision.leaving]
        missing = decision.executors - len(self._live) - len(self._coming)
        if missing > 0 and not decision.state.leaving:
            self._coming += [self.now + self.coming_seconds] * missing
