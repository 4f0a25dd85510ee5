"""How rows leave their tasks, where *auto* may choose: by what the last batches measured, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anabranch.control.decide.exchange_choice import ExchangeChooser
from anabranch.model.exchanges import ExchangeCosts, ExchangeFigures, ExchangeTally, ExchangeWay
from anabranch.query.plan import Plan, name_of
from anabranch.state.manifest import Manifest


class WeighsExchanges(Protocol):
    """What a flow says of how rows may leave their tasks."""

    @property
    def plan(self) -> Plan: ...

    def weighs(self, head: int) -> bool:
        """Say whether it is weighed, from batch to batch, how rows of an operator leave their task."""
        ...

    def ways(self, head: int) -> tuple[ExchangeWay, ...]:
        """Return how rows of an operator may leave their task, the one that it begins with last."""
        ...


class ExchangeWatch:
    """Decides for the operators whose exchange is *auto*, and tells of all; called between batches, on the driver."""

    def __init__(self, program: WeighsExchanges, latest: Manifest | None) -> None:
        self._program = program
        self._plan: Plan = program.plan
        # A manifest of an earlier version says nothing, and it is found out again.
        known = latest.engine.exchanges if latest is not None else {}
        self._choosers = {
            node.id: ExchangeChooser(program.ways(node.id), known.get(name_of(self._plan, node.id)))
            for node in self._plan.stateful
            if program.weighs(node.id)
        }

    @property
    def chosen(self) -> dict[int, ExchangeWay]:
        """Stateful node → how its rows leave in the next batch."""
        return {head: chooser.way for head, chooser in self._choosers.items()}

    def observe(
        self, seen: Mapping[int, ExchangeTally], spent: Mapping[int, ExchangeCosts]
    ) -> dict[int, ExchangeFigures]:
        """Learn from a batch, choose for the next one, and return what is to be said of the exchanges."""
        figures = {}
        for node in self._plan.stateful:
            tally, costs = seen.get(node.id, ExchangeTally()), spent.get(node.id, ExchangeCosts())
            chooser = self._choosers.get(node.id)
            way = chooser.way if chooser is not None else self._program.ways(node.id)[-1]
            if chooser is not None:
                chooser.observe(tally, costs)
            figures[node.id] = ExchangeFigures(
                operator=name_of(self._plan, node.id),
                way=way,
                next_way=chooser.way if chooser is not None else way,
                reason=chooser.reason if chooser is not None else self._plan.exchanges[node.id].reason,
                rows=tally.rows,
                sent_rows=tally.sent_rows,
                sent_bytes=tally.sent_bytes,
                left_share=tally.left_rows / tally.tried_rows if tally.tried_rows else None,
                merge_seconds=costs.merge_seconds,
                send_seconds=costs.send_seconds,
                hold_seconds=costs.hold_seconds,
                costs={way: cost for way, cost in chooser.costs.items()} if chooser is not None else {},
            )
        return figures

    def store(self) -> dict[str, ExchangeWay]:
        """Return what a manifest keeps: a driver that takes over goes on with what was chosen."""
        return {name_of(self._plan, head): way for head, way in self.chosen.items()}
