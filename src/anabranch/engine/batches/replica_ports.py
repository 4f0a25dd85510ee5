"""What replicas of a run need of others: who carries them, and who is told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from anabranch.engine.tasks.replica_task import Carried, CopyOrder
from anabranch.model.events import DecisionEvent, RecoveryEvent


class CarriesReplicas(Protocol):
    """Copies state from host to host, in the thread that asks for it."""

    def carry(self, order: CopyOrder) -> Carried:
        """Carry out a round, and return what became of it; whatever goes wrong is said there."""
        ...

    def cancel(self) -> None:
        """End the round that is being carried out, from another thread."""
        ...


@runtime_checkable
class HasCarrier(Protocol):
    """Whoever runs jobs on several hosts."""

    @property
    def carrier(self) -> CarriesReplicas: ...


class TellsReplicas(Protocol):
    """Tells the history of a run what becomes of replicas."""

    def decide(self, decisions: Iterable[DecisionEvent]) -> None:
        """Tell where replicas stand from now on, from any thread."""
        ...

    def tell_recovery(self, recovery: RecoveryEvent) -> None:
        """Tell what became of slots whose homes were lost."""
        ...
