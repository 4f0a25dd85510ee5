"""The planners by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from anabranch.balancing.goals import Goal
from anabranch.balancing.planners.mnrt import plan_mnrt
from anabranch.balancing.planners.outcome import Clock
from anabranch.balancing.planners.qmmp import plan_qmmp
from anabranch.balancing.planners.readj import plan_readj
from anabranch.model.loads import KeyLoads, LoadError
from anabranch.model.moves import MovePlan
from anabranch.model.routes import RoutingTable


class PlanKeys(Protocol):
    """Loads and the current routing table in, a plan with the next one out; pure, and equal for equal inputs."""

    def __call__(
        self, loads: KeyLoads, table: RoutingTable, goal: Goal, *, clock: Clock | None = None
    ) -> MovePlan: ...  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Planner:
    """A planner of keys by name."""

    name: str
    summary: str
    plan: PlanKeys
    splits_keys: bool


PLANNERS: dict[str, Planner] = {
    planner.name: planner
    for planner in (
        Planner("mnrt", "few moves, few splits, a small routing table, and the limit is met", plan_mnrt, True),
        Planner("qmmp", "the fastest plan that meets the limit, by splitting keys freely", plan_qmmp, True),
        Planner("readj", "whole keys only, swapped or moved between pairs of slots", plan_readj, False),
    )
}


def register_planner(name: str, summary: str, *, splits_keys: bool) -> Callable[[PlanKeys], PlanKeys]:
    """Return a decorator that makes a function known as the planner ``name``."""

    def register(plan: PlanKeys) -> PlanKeys:
        if name in PLANNERS:
            msg = f"there is a planner {name!r} already; choose another name"
            raise LoadError(msg)
        PLANNERS[name] = Planner(name, summary, plan, splits_keys)
        return plan

    return register


def find_planner(name: str, also: Sequence[str] = ()) -> Planner:
    """Return the planner of a name; one that is unknown is refused with the names that are known, and with ``also``."""
    if name in PLANNERS:
        return PLANNERS[name]
    known = [*sorted(PLANNERS), *also]
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    msg = f"unknown planner {name!r}; {hint}"
    raise LoadError(msg)
