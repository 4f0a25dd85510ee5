"""What the engine asks of whoever decides where keys go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from anabranch.control.decisions import Decision
from anabranch.control.observe.load_sampling import Watch
from anabranch.control.reported import BatchReport
from anabranch.model.cluster import Executor, KeptHomes
from anabranch.placement.elasticity import ClusterReading
from anabranch.routing.phases import FlowRoutes
from anabranch.state.manifest import Manifest


class Steering(Protocol):
    """Decides where keys go. Called between batches only, on the driver."""

    def watches(self, routes: FlowRoutes) -> Mapping[int, Watch]:
        """Return what the slots of each operator should look at in a batch."""
        ...

    def decide(self, batch: int, routes: FlowRoutes) -> Decision:
        """Return what changes at the end of this batch.

        An operator that still has earlier routes must not change.
        """
        ...

    def observe(self, manifest: Manifest, report: BatchReport, routes: FlowRoutes) -> None:
        """Learn what a batch did under its routes."""
        ...


@runtime_checkable
class SeesHomes(Protocol):
    """A steering that is told, before it decides, which executors there are and where a batch's slots are at home."""

    def see_homes(self, executors: Sequence[Executor], kept: KeptHomes) -> None:
        """Learn where the slots of the batch that begins run."""
        ...


@runtime_checkable
class SizesCluster(Protocol):
    """A steering that is told what a cluster has to do, and how many executors it asked for in vain."""

    def see_cluster(self, reading: ClusterReading) -> None:
        """Learn what a batch says of the cluster's load."""
        ...

    def see_refusal(self) -> None:
        """Learn that executors could not be had, or be let go."""
        ...

    @property
    def idle_seconds(self) -> float | None:
        """After so long without rows a batch is wanted all the same, for executors may be too many; None if not."""
        ...


@runtime_checkable
class TriesStrategies(Protocol):
    """A steering that tries strategies, and can say which it goes by and how all do."""

    def strategies(self) -> dict[str, str]:
        """Return the strategy that keys go by, by operator."""
        ...

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the busiest slot's load over the mean on the last sample, by operator and strategy."""
        ...
