"""Keys and buckets of one level together: what an engine asks for that watches buckets and hot keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.balance_load import balance_buckets
from anabranch.balancing.planners.columns import sum_by
from anabranch.balancing.planners.outcome import Change, Clock, make_move_plan
from anabranch.balancing.planners.own_slots import find_own_slots, place_in_own_slots
from anabranch.balancing.planners.parts import locate_parts
from anabranch.balancing.planners.registry import find_planner
from anabranch.model.loads import BucketLoads, KeyLoads, LoadError
from anabranch.model.moves import MovePlan, PlanCosts, find_imbalance
from anabranch.model.routes import BucketMap, RoutingTable

_MOST_ROUNDS = 4
BUCKETS_ONLY = "balance-load"
"""The name of the planner that moves whole buckets and leaves the routing table alone."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelLoads:
    """What was measured at one level: every bucket, and the keys that were watched one by one."""

    buckets: BucketLoads
    """All load of each bucket's keys, watched ones included, wherever they are."""
    keys: KeyLoads
    key_buckets: NDArray[np.int32]
    """The bucket of each watched key."""
    copied: NDArray[np.float64] | None = None
    """Of a join, the part of each watched key's load that every slot has in full if it is split."""
    copied_bytes: NDArray[np.float64] | None = None
    """Of a join, the part of each watched key's state that every slot has in full if it is split."""
    copies: NDArray[np.float64] | None = None
    """By slot, the load of copies; planners find it."""

    def __post_init__(self) -> None:
        if len(self.key_buckets) != len(self.keys):
            msg = f"key_buckets has {len(self.key_buckets)} rows for {len(self.keys)} keys; give one a key"
            raise LoadError(msg)
        if (self.buckets.slots_of[self.key_buckets] != self.keys.homes).any():
            msg = "keys have homes other than their buckets' slots; take the homes from the bucket map"
            raise LoadError(msg)
        if self.keys.unlisted is not None or self.buckets.settled is not None:
            msg = "unlisted and settled loads are found from buckets and keys here; leave them out"
            raise LoadError(msg)

    def find_copies(self, table: RoutingTable, slots: int) -> NDArray[np.float64]:
        """Return by slot what copies of split keys add to the shares of the slots."""
        assert self.copied is not None
        parts = locate_parts(self.keys, table)
        return sum_by(parts.slots, self.copied[parts.key_rows] * (1 - parts.shares), slots)

    def find_rest(self) -> BucketLoads:
        """Return the load and state of each bucket without its watched keys."""
        count = self.buckets.buckets.buckets
        # Keys may be counted by another sample than buckets, so the difference may be a little below nothing.
        return BucketLoads(
            self.buckets.buckets,
            np.maximum(self.buckets.loads - sum_by(self.key_buckets, self.keys.loads, count), 0.0),
            np.maximum(self.buckets.state_bytes - sum_by(self.key_buckets, self.keys.state_bytes, count), 0.0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class LevelPlan:
    """The next bucket map and routing table of a level, and the plans that lead there, buckets first."""

    bucket_map: BucketMap
    table: RoutingTable
    bucket_plan: MovePlan | None
    """None where buckets stay; watched keys that follow their bucket are its business."""
    key_plan: MovePlan
    loads_before: NDArray[np.float64]
    costs: PlanCosts
    """Of buckets and keys together."""

    @property
    def loads_after(self) -> NDArray[np.float64]:
        """By slot, the slots included that come or go."""
        return self.key_plan.loads_after

    @property
    def imbalance_before(self) -> float:
        """The busiest slot's load over its fair share, before the plan."""
        return find_imbalance(self.loads_before, self.key_plan.means)

    @property
    def imbalance_after(self) -> float:
        """The busiest slot's load over its fair share, after the plan."""
        return self.key_plan.imbalance_after

    @property
    def shortfall(self) -> str:
        """Why some slot stays above its limit; empty when none does."""
        return self.key_plan.shortfall

    @property
    def changes(self) -> bool:
        """Whether anything moves."""
        return bool(len(self.key_plan.moves)) or (self.bucket_plan is not None and bool(len(self.bucket_plan.moves)))


def check_planner(planner: str) -> None:
    """Raise ``LoadError`` with the planners there are unless this is one of them."""
    if planner != BUCKETS_ONLY:
        find_planner(planner, also=(BUCKETS_ONLY,))


def plan_level(
    planner: str, loads: LevelLoads, table: RoutingTable, goal: Goal, *, clock: Clock | None = None
) -> LevelPlan:
    """Let the named planner place the watched keys around the rest; move buckets only where that is not enough.

    Buckets move when slots come or go, when a key is to have slots to itself, or when keys alone cannot reach the goal.
    They are then evened out without their watched keys, which follow their buckets and are placed last. A plan that
    misses the limits and makes it worse is dropped.

    What copies of a join's rows add to slots depends on the plan that they are part of, so it is made again with those
    of the last one until they change nothing; the best of these plans counts.
    """
    started = clock() if clock else 0.0
    if loads.copied is None:
        plan = _plan_once(planner, loads, table, goal)
    else:
        plan = _plan_with_copies(planner, loads, table, goal)
    moved_bytes = _find_moved_bytes(loads, loads.find_rest(), table, plan)
    seconds = clock() - started if clock else None
    return replace(plan, costs=replace(plan.costs, planning_seconds=seconds, moved_bytes=moved_bytes))


def _plan_with_copies(planner: str, loads: LevelLoads, table: RoutingTable, goal: Goal) -> LevelPlan:
    """Return the best of some plans, each made with the copies that the one before would make."""
    count = goal.slots_in_all
    now = loads.find_copies(table, count)
    copies, best = now, None
    for _ in range(_MOST_ROUNDS):
        plan = _plan_once(planner, replace(loads, copies=copies), table, goal)
        made = loads.find_copies(plan.table, count)
        key_plan = replace(plan.key_plan, loads_after=plan.key_plan.loads_after - copies + made)
        real = replace(plan, key_plan=key_plan, loads_before=plan.loads_before - copies + now)
        if best is None or real.imbalance_after < best.imbalance_after:
            best = real
        if np.array_equal(made, copies):
            break
        copies = made
    assert best is not None
    return best


def _plan_once(planner: str, loads: LevelLoads, table: RoutingTable, goal: Goal) -> LevelPlan:
    rest = loads.find_rest()
    own: dict[int, tuple[int, ...]] = {}
    plan = None
    if planner != BUCKETS_ONLY:
        splits_keys = find_planner(planner, also=(BUCKETS_ONLY,)).splits_keys
        own = find_own_slots(loads.keys, rest, table, goal, splits_keys=splits_keys)
        if goal.slots_later == goal.slots and not _has_load(rest, own):
            plan = _plan_keys_alone(planner, loads, rest, table, goal)
    return plan or _plan_buckets_first(planner, loads, rest, table, goal, own)


def _has_load(rest: BucketLoads, own: Mapping[int, tuple[int, ...]]) -> bool:
    """Say whether buckets are in the way of keys that are to have slots to themselves."""
    closed = [slot for slots in own.values() for slot in slots]
    return bool((rest.loads[np.isin(rest.slots_of, closed)] > 0).any())


def _plan_keys_alone(
    planner: str, loads: LevelLoads, rest: BucketLoads, table: RoutingTable, goal: Goal
) -> LevelPlan | None:
    """Return the plan that leaves buckets where they are, if it reaches the goal."""
    alone = find_planner(planner).plan(_around(loads, loads.keys, rest, goal), table, goal)
    if not alone.meets_limits:
        return None
    return LevelPlan(rest.buckets, alone.table, None, alone, alone.loads_before, alone.costs)


def _plan_buckets_first(
    planner: str,
    loads: LevelLoads,
    rest: BucketLoads,
    table: RoutingTable,
    goal: Goal,
    own: Mapping[int, tuple[int, ...]],
) -> LevelPlan:
    closed = sorted(slot for slots in own.values() for slot in slots)
    bucket_plan = balance_buckets(
        _keep_settled(loads, rest, table, goal) if planner == BUCKETS_ONLY else rest, goal, table=table, closed=closed
    )
    bucket_map = bucket_plan.bucket_map or rest.buckets
    moved = replace(rest, buckets=bucket_map)
    owners = np.asarray(bucket_map.slot_of, np.int32)
    # Keys follow their buckets into new slots, so those are there by now.
    key_goal = replace(goal, slots=goal.slots_in_all, slots_after=goal.slots_later)
    keys = _around(loads, replace(loads.keys, homes=owners[loads.key_buckets]), moved, goal)
    if planner == BUCKETS_ONLY:
        key_plan = make_move_plan(BUCKETS_ONLY, lambda _: Change.nothing(), keys, table, key_goal, None)
    else:
        key_plan = find_planner(planner).plan(keys, place_in_own_slots(table, own), key_goal)
    before = _find_loads(loads, rest, table, goal)
    made = LevelPlan(bucket_map, key_plan.table, bucket_plan, key_plan, before, key_plan.costs)
    stays = goal.slots_later == goal.slots
    if stays and made.shortfall and made.imbalance_after > made.imbalance_before * (1 + ROUNDING):
        still = _around(loads, loads.keys, rest, goal)
        stay = make_move_plan(planner, lambda _: Change.nothing(), still, table, goal, None)
        return LevelPlan(rest.buckets, stay.table, None, stay, before, stay.costs)
    return made


def _find_moved_bytes(loads: LevelLoads, rest: BucketLoads, table: RoutingTable, plan: LevelPlan) -> float:
    """Return the state that changes its slot: buckets, and the watched keys that go with them or their own way."""
    owners = np.asarray(plan.bucket_map.slot_of, np.int32)
    buckets = float(rest.state_bytes[rest.slots_of != owners].sum())
    old, new = (
        locate_parts(loads.keys, table),
        locate_parts(replace(loads.keys, homes=owners[loads.key_buckets]), plan.table),
    )
    count = 1 + max(int(old.slots.max(initial=0)), int(new.slots.max(initial=0)))
    pairs = [parts.key_rows * count + parts.slots for parts in (old, new)]
    every = np.union1d(*pairs)
    before, after = (
        sum_by(np.searchsorted(every, pair), parts.shares, len(every))
        for pair, parts in zip(pairs, (old, new), strict=True)
    )
    # A part stays as it is where its slot keeps some of the key: parts of results meet.
    copied = np.zeros(len(loads.keys)) if loads.copied_bytes is None else loads.copied_bytes
    shared = np.maximum(loads.keys.state_bytes - copied, 0.0)
    moved = (np.where(after > 0, 0.0, before) * shared[every // count]).sum()
    # Every slot that comes to a key gets all that is copied.
    return buckets + float(moved + copied[every[(before == 0) & (after > 0)] // count].sum())


def _around(loads: LevelLoads, keys: KeyLoads, rest: BucketLoads, goal: Goal) -> KeyLoads:
    """Return the watched keys with copies and the rest of the buckets as the load that does not move key by key."""
    unlisted = sum_by(rest.slots_of, rest.loads, goal.slots_in_all)
    return replace(keys, unlisted=unlisted if loads.copies is None else unlisted + loads.copies, next_homes=None)


def _find_loads(loads: LevelLoads, rest: BucketLoads, table: RoutingTable, goal: Goal) -> NDArray[np.float64]:
    parts = locate_parts(loads.keys, table)
    count = goal.slots_in_all
    known = sum_by(parts.slots, parts.loads, count) + sum_by(rest.slots_of, rest.loads, count)
    return known if loads.copies is None else known + loads.copies


def _keep_settled(loads: LevelLoads, rest: BucketLoads, table: RoutingTable, goal: Goal) -> BucketLoads:
    """Return buckets with the watched keys that follow them; keys of the routing table stay where it puts them."""
    parts = locate_parts(loads.keys, table)
    settled = sum_by(parts.slots[parts.listed], parts.loads[parts.listed], goal.slots_in_all)
    if (settled[goal.slots_later :] > 0).any():
        msg = f"{BUCKETS_ONLY} moves no keys, and the routing table has some on slots that go; take mnrt"
        raise LoadError(msg)
    follows = np.ones(len(loads.keys), np.bool_)
    follows[parts.key_rows[parts.listed]] = False
    count = rest.buckets.buckets
    return BucketLoads(
        rest.buckets,
        rest.loads + sum_by(loads.key_buckets[follows], loads.keys.loads[follows], count),
        rest.state_bytes + sum_by(loads.key_buckets[follows], loads.keys.state_bytes[follows], count),
        settled=settled,
    )
