"""What decisions were found to do: the imbalance, or the use of executors, of the first batch that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.model.events import DecisionEvent, EffectEvent
from anabranch.routing.strategies.scores import score_loads

ENOUGH = 0.5
"""A batch with so much of the rows that there were when it was decided can tell."""


@dataclass(frozen=True, slots=True)
class SlotsSeen:
    """What a batch shows of one operator's slots."""

    rows: Sequence[int]
    """By slot."""
    is_settled: bool
    """Whether the batch ran under its newest routes alone."""
    powers: tuple[float, ...] | None = None
    handed_bytes: int = 0
    """State that was handed over at the end of the batch."""


@dataclass(slots=True)
class _Awaited:
    number: int
    decision: DecisionEvent
    rows: int = 0
    moved_bytes: int = 0


@dataclass(slots=True)
class EffectWatch:
    """Follows the last decision of each operator until a batch shows what came of it."""

    _awaited: dict[str, _Awaited] = field(default_factory=dict)

    def await_effect(self, number: int, decision: DecisionEvent) -> None:
        """Follow a decision from now on, instead of an earlier one of the same operator."""
        if decision.change is not None and decision.protocol is not None:
            self._awaited[decision.operator] = _Awaited(number, decision)

    def forget(self, number: int) -> None:
        """Follow a decision no longer."""
        self._awaited = {name: one for name, one in self._awaited.items() if one.number != number}

    def observe(self, batch: int, operators: Mapping[str, SlotsSeen]) -> list[EffectEvent]:
        """Return what a batch shows of decisions before it."""
        effects = []
        for name, awaited in list(self._awaited.items()):
            seen = operators.get(name)
            if seen is None:
                continue
            rows = sum(seen.rows)
            if batch <= awaited.decision.batch:
                # The routes are those of before; how many rows there were says how many are enough.
                awaited.rows, awaited.moved_bytes = rows, seen.handed_bytes
            elif seen.is_settled and rows and rows >= ENOUGH * awaited.rows:
                imbalance = score_loads(seen.rows, seen.powers).max_over_mean
                effects.append(EffectEvent(batch, name, awaited.number, imbalance, awaited.moved_bytes))
                del self._awaited[name]
        return effects


@dataclass(frozen=True, slots=True)
class ExecutorsSeen:
    """What a batch shows of the executors of a flow."""

    serving: int
    """How many had slots."""
    utilisation: float
    """The share of their cores that what comes takes."""


@dataclass(slots=True)
class ExecutorEffects:
    """Follows the last decision about executors until as many have slots as were wanted.

    That those are released whose slots have left follows from a decision before it, and does not end that one.
    """

    _awaited: dict[str, tuple[int, DecisionEvent]] = field(default_factory=dict)
    """By action; but for *release* there is one at a time."""
    _before: dict[int, float] = field(default_factory=dict)
    """By number of the decision."""

    def await_effect(self, number: int, decision: DecisionEvent) -> None:
        """Follow a decision from now on, instead of earlier ones."""
        if decision.executors is None:
            return
        if decision.action == "release":
            self._awaited["release"] = number, decision
        else:
            self._awaited = {decision.action: (number, decision)}
        self._keep_awaited()

    def observe(self, batch: int, seen: ExecutorsSeen) -> list[EffectEvent]:
        """Return what a batch shows of decisions before it."""
        effects = []
        for action, (number, decision) in list(self._awaited.items()):
            if batch <= decision.batch:
                self._before[number] = seen.utilisation
            elif seen.serving == decision.executors:
                before = self._before.get(number)
                told = EffectEvent(
                    batch, decision.operator, number, utilisation_before=before, utilisation=seen.utilisation
                )
                effects.append(told)
                del self._awaited[action]
        self._keep_awaited()
        return effects

    def _keep_awaited(self) -> None:
        numbers = {number for number, _ in self._awaited.values()}
        self._before = {number: before for number, before in self._before.items() if number in numbers}
