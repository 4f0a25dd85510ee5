"""Random problems, and a reckoning of plans that shares no code with the planners."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from anabranch.balancing import Goal
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MovePlan
from anabranch.model.routes import RoutingTable

Places = dict[int, dict[int, float]]
"""Key → slot → share."""


@dataclass(frozen=True)
class Case:
    loads: KeyLoads
    table: RoutingTable
    goal: Goal


def make_loads(by_key: dict[int, tuple[float, int]], **others: object) -> KeyLoads:
    """Return loads of key → (load, home), with a byte of state a unit of load."""
    keys = list(by_key)
    amounts = [by_key[key][0] for key in keys]
    return KeyLoads.of(keys, amounts, [by_key[key][1] for key in keys], amounts, **others)


def find_places(loads: KeyLoads, table: RoutingTable, *, later: bool) -> Places:
    """Return where every key is: by the table, or at its home now or later."""
    homes = loads.later_homes if later else loads.homes
    places: Places = {key: {home: 1.0} for key, home in zip(loads.keys.tolist(), homes.tolist(), strict=True)}
    named: Places = defaultdict(dict)
    for key, slot, share in zip(table.keys.tolist(), table.slots.tolist(), table.shares.tolist(), strict=True):
        named[key][slot] = share
    return places | named


def add_up(loads: KeyLoads, places: Places, slots: int) -> list[float]:
    """Return the slots' loads, unlisted ones included."""
    sums = [0.0] * slots
    if loads.unlisted is not None:
        sums[: len(loads.unlisted)] = loads.unlisted.tolist()
    for key, load in zip(loads.keys.tolist(), loads.loads.tolist(), strict=True):
        for slot, share in places[key].items():
            sums[slot] += share * load
    return sums


def carry_out(plan: MovePlan, places: Places) -> Places:
    """Return where the keys are once the plan's moves are made, one by one."""
    moved = {key: dict(shares) for key, shares in places.items()}
    for row, move in enumerate(plan.moves):
        share = float(plan.moves.shares[row])
        moved[move.subject][move.source] -= share
        moved[move.subject][move.target] = moved[move.subject].get(move.target, 0.0) + share
    return {key: {slot: share for slot, share in shares.items() if abs(share) > 1e-7} for key, shares in moved.items()}


def assert_same_places(found: Places, expected: Places) -> None:
    for key, shares in expected.items():
        assert set(found[key]) == set(shares), f"key {key}: {found[key]} is not {shares}"
        for slot, share in shares.items():
            assert abs(found[key][slot] - share) < 1e-6


def find_limits(case: Case) -> list[float]:
    """Return the limit of each slot, 0 for slots that go."""
    goal = case.goal
    total = float(case.loads.loads.sum()) + (0.0 if case.loads.unlisted is None else float(case.loads.unlisted.sum()))
    powers = list(goal.powers) if goal.powers else [1.0] * goal.slots_later
    limits = [(1 + goal.tolerance) * total * power / sum(powers) for power in powers]
    return limits + [0.0] * (goal.slots_in_all - goal.slots_later)


def find_worst(slot_loads: list[float], limits: list[float]) -> float:
    """Return the largest load over its limit among the slots that stay."""
    return max((load / limit for load, limit in zip(slot_loads, limits, strict=True) if limit > 0), default=0.0)


_LOADS = st.one_of(
    st.integers(0, 100).map(float),
    st.floats(1e-3, 1e3, allow_nan=False),
    # Hot keys: larger than all others together.
    st.integers(1_000, 100_000).map(float),
)


@st.composite
def cases(
    draw: st.DrawFn, *, splittable: bool = True, unlisted: bool = False, growing: bool = True, tables: bool = True
) -> Case:
    """Return a random problem; slots may come and go, keys may be moved and split already."""
    count = draw(st.integers(0, 40))
    slots = draw(st.integers(1, 7))
    later = draw(st.integers(1, 7)) if growing and draw(st.booleans()) else slots
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    keys = np.sort(rng.choice(2**62, count, replace=False).astype(np.uint64) * np.uint64(3))
    amounts = np.array(draw(st.lists(_LOADS, min_size=count, max_size=count)), np.float64)
    homes = rng.integers(0, slots, count).astype(np.int32)
    next_homes = None
    if later < slots or (later > slots and draw(st.booleans())):
        next_homes = np.where(rng.random(count) < 0.8, homes % later, rng.integers(0, later, count)).astype(np.int32)
    state_bytes = amounts * 8 if draw(st.booleans()) else rng.integers(0, 1000, count).astype(np.float64)
    powers = tuple(rng.integers(1, 5, later).astype(float).tolist()) if draw(st.booleans()) else None
    loads = KeyLoads(
        keys,
        amounts,
        state_bytes,
        homes,
        next_homes,
        None if splittable else rng.random(count) < 0.5,
        rng.integers(0, 200, min(slots, later)).astype(np.float64) if unlisted else None,
    )
    table = _draw_table(rng, keys, slots, loads.splittable) if tables and draw(st.booleans()) else RoutingTable.empty()
    goal = Goal(
        slots,
        tolerance=draw(st.sampled_from([0.0, 0.01, 0.05, 0.5])),
        slots_after=later if later != slots else None,
        powers=powers,
    )
    return Case(loads, table, goal)


def _draw_table(rng: np.random.Generator, keys: np.ndarray, slots: int, splittable: np.ndarray | None) -> RoutingTable:
    places: Places = {}
    for row, key in enumerate(keys.tolist()):
        if rng.random() < 0.4:
            may_split = splittable is None or bool(splittable[row])
            parts = int(rng.integers(1, slots + 1)) if may_split else 1
            chosen = rng.choice(slots, parts, replace=False).tolist()
            weights = rng.random(parts) + 0.05
            places[key] = dict(zip(chosen, (weights / weights.sum()).tolist(), strict=True))
    return RoutingTable.of(places)
