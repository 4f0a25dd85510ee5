"""What is decided, as data: whoever decides makes it, and whoever applies it needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from anabranch.model.cluster import SlotId
from anabranch.model.events import Sender
from anabranch.model.moves import PlanCosts
from anabranch.routing.routes import Routes

ReconfigurationProtocol = Literal["state", "window"]


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """New routes, and why."""

    routes: Routes
    reason: str
    moved_bytes: float
    """State that has to move, as far as can be told beforehand."""
    costs: PlanCosts | None = None
    """What planning it took, and what it costs from then on; None of what people ask for."""
    sender: Sender = "balancer"
    imbalance_expected: float | None = None
    """The busiest slot's load over its share, as it is promised; None where nothing is."""


@dataclass(frozen=True, slots=True)
class RouteChange:
    """New routes of an operator, and with them its slots, from the next batch on."""

    routes: Routes
    protocol: ReconfigurationProtocol
    """*state*: what is held moves at the end of this batch. *window*: nothing moves, open windows stay to their end."""
    reason: str = ""
    costs: PlanCosts | None = None
    """What the plan behind it cost, and what it will cost from now on."""
    sender: Sender = "balancer"
    imbalance_before: float | None = None
    """The busiest slot's load over its share, when it was decided; None if no load was known."""
    imbalance_expected: float | None = None


@dataclass(frozen=True, slots=True)
class HomeChange:
    """Another home for a slot, from the next batch on."""

    executor: str | None
    """None: any of the host; and without a host, wherever the policy puts it."""
    host: str = ""
    reason: str = ""
    sender: Sender = "placement"
    is_pinned: bool = False
    """Whether it stays there, whatever policies say, as long as the executor or host is there."""


@dataclass(frozen=True, slots=True)
class ExecutorChange:
    """Executors that are asked for, or let go, once this batch is committed."""

    provision: int = 0
    """How many more."""
    release: tuple[str, ...] = ()
    """The ids of those that are decommissioned: from the next batch on, no slot is at home there."""
    offload: tuple[str, ...] = ()
    """The ids of those that stay for now, and that no slot is at home on from the next batch on. Whatever a change
    does not name here may have slots again."""
    keep: tuple[str, ...] = ()
    """The ids of those that were to go, and stay after all."""
    hold: tuple[str, ...] = ()
    """The ids of those whose slots have left, and that are not let go yet; until then they get none."""
    total: int | None = None
    """So many are wanted in all, those that are leaving not counted; None: those that stay, and ``provision`` more."""
    reason: str = ""
    sender: Sender = "elasticity"


@dataclass(frozen=True, slots=True)
class Decision:
    """All that changes at the end of a batch: one field for each kind of thing that can change."""

    batch: int
    routes: Mapping[int, RouteChange] = field(default_factory=dict)
    """By stateful node; what is not there stays as it is."""
    homes: Mapping[SlotId, HomeChange] = field(default_factory=dict)
    """By slot, likewise. A slot whose executor goes, or that is new, gets a home without being named here."""
    executors: ExecutorChange | None = None

    @property
    def moved_routes(self) -> dict[int, Routes]:
        """By stateful node, the routes of the next batch where state moves at the end of this one."""
        return {head: change.routes for head, change in self.routes.items() if change.protocol == "state"}
