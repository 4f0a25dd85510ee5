"""From what a planner chose to a plan: moves, the new routing table, loads and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING, Goal
from anabranch.balancing.planners.columns import (
    find_distinct,
    find_firsts,
    is_among,
    occurs_once,
    occurs_once_in,
    sum_by,
)
from anabranch.balancing.planners.problem import Problem, pose_problem
from anabranch.model.loads import KeyLoads
from anabranch.model.moves import MoveEffect, MoveKind, MovePlan, MoveReason, Moves, PlanCosts
from anabranch.model.routes import RoutingTable

Clock = Callable[[], float]
"""Seconds since some start; passed in, because planners have no clock of their own."""

# Below this share of a key, a part is rounding.
_CRUMB = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What a planner takes from which parts, and what it puts where; shares of a key that leaves must arrive."""

    parts: NDArray[np.int64]
    taken: NDArray[np.float64]
    reasons: NDArray[np.int8]
    key_rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    shares: NDArray[np.float64]

    @classmethod
    def nothing(cls) -> Change:
        """Return the change that leaves everything where it is."""
        numbers = np.empty(0, np.int64)
        return cls(numbers, np.empty(0), np.empty(0, np.int8), numbers, np.empty(0, np.int32), np.empty(0))

    @classmethod
    def gather(
        cls,
        taken: Sequence[tuple[NDArray[np.int64], NDArray[np.float64], MoveReason]],
        put: Sequence[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]],
    ) -> Change:
        """Return the change of many takings (parts, shares, reason) and puttings (keys, slots, shares)."""
        nothing = cls.nothing()
        return cls(
            np.concatenate([nothing.parts, *(parts for parts, _, _ in taken)]),
            np.concatenate([nothing.taken, *(shares for _, shares, _ in taken)]),
            np.concatenate([nothing.reasons, *(np.full(len(parts), why, np.int8) for parts, _, why in taken)]),
            np.concatenate([nothing.key_rows, *(key_rows for key_rows, _, _ in put)]),
            np.concatenate([nothing.slots, *(slots.astype(np.int32) for _, slots, _ in put)]),
            np.concatenate([nothing.shares, *(shares for _, _, shares in put)]),
        )


def make_move_plan(
    planner: str,
    choose: Callable[[Problem], Change],
    loads: KeyLoads,
    table: RoutingTable,
    goal: Goal,
    clock: Clock | None,
) -> MovePlan:
    """Pose the problem, let the planner choose, and return the plan.

    One that misses the limits and makes the busiest slot busier is dropped. Where slots go or homes change, the moves
    that this forces are made all the same.
    """
    started = clock() if clock else 0.0
    problem = pose_problem(loads, table, goal)
    plan = conclude(planner, problem, choose(problem))
    forced = goal.slots_later < goal.slots or loads.next_homes is not None
    if not forced and not plan.meets_limits and plan.imbalance_after > plan.imbalance_before * (1 + ROUNDING):
        plan = conclude(planner, problem, Change.nothing())
    if clock is None:
        return plan
    return replace(plan, costs=replace(plan.costs, planning_seconds=clock() - started))


def conclude(planner: str, problem: Problem, change: Change) -> MovePlan:
    """Return the plan that carries out a change."""
    placed = _place(problem, change)
    loads = problem.loads.loads[placed.key_rows]
    count = problem.goal.slots_in_all
    before = problem.slot_loads + sum_by(placed.slots, (placed.before - placed.start) * loads, count)
    after = problem.slot_loads + sum_by(placed.slots, (placed.after - placed.start) * loads, count)
    # Sums in another order leave crumbs where there is nothing.
    after[np.abs(after) <= ROUNDING * problem.means.max(initial=0.0)] = 0.0
    moves = _find_moves(problem, placed)
    table, split_load = _build_table(problem, placed)
    return MovePlan(
        planner=planner,
        moves=moves,
        table=table,
        bucket_map=None,
        loads_before=before,
        loads_after=after,
        means=problem.means,
        limits=problem.limits,
        costs=PlanCosts(
            planning_seconds=None,
            table_rows=len(table.keys),
            moved_bytes=float(moves.state_bytes.sum()),
            split_load=split_load,
        ),
        shortfall=_describe_shortfall(problem, after),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """Every (key, slot) pair of the keys that change, by key and slot, with the shares in it."""

    changed: NDArray[np.int64]
    key_rows: NDArray[np.int64]
    slots: NDArray[np.int32]
    before: NDArray[np.float64]
    start: NDArray[np.float64]
    """Once the base route holds, before the planner's change."""
    after: NDArray[np.float64]
    reasons: NDArray[np.int8]


def _place(problem: Problem, change: Change) -> _Placed:
    parts = problem.parts
    rehomed = _find_rehomed(problem)
    changed = find_distinct(np.concatenate((parts.key_rows[change.parts], rehomed)))
    found, asked = parts.find(changed)
    start = parts.shares[found]
    position = np.searchsorted(found, change.parts)
    taken = sum_by(position, change.taken, len(found))
    reasons = np.full(len(found), MoveReason.OVERLOADED, np.int8)
    reasons[position] = change.reasons
    is_rehomed = is_among(changed, rehomed)[asked]
    was_elsewhere = np.flatnonzero(is_rehomed)
    old_homes = problem.loads.homes[parts.key_rows[found[was_elsewhere]]]
    added = np.searchsorted(changed, change.key_rows)
    nothing_there, nothing_added = np.zeros(len(was_elsewhere)), np.zeros(len(added))
    count = problem.goal.slots_in_all
    keys = np.concatenate((asked, asked[was_elsewhere], added))
    slots = np.concatenate((parts.slots[found], old_homes, change.slots))
    before = np.concatenate((np.where(is_rehomed, 0.0, start), start[was_elsewhere], nothing_added))
    starts = np.concatenate((start, nothing_there, nothing_added))
    after = np.concatenate((start - taken, nothing_there, change.shares))
    # The largest reason of a pair wins; pairs that only receive have none.
    why = np.concatenate(
        (
            np.where(taken > 0, reasons, -1),
            np.full(len(was_elsewhere), MoveReason.NEW_HOME),
            np.full(len(added), -1),
        )
    )
    pairs = keys * count + slots
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    if not len(pairs):
        nobody, empty = np.empty(0, np.int64), np.empty(0)
        return _Placed(nobody, nobody, np.empty(0, np.int32), empty, empty, empty, np.empty(0, np.int8))
    first = find_firsts(pairs)
    key_of, slot_of = keys[order[first]], slots[order[first]]
    before, starts, after = (np.add.reduceat(column[order], first) for column in (before, starts, after))
    after[after < _CRUMB] = 0.0
    begins = find_firsts(key_of)
    after /= np.repeat(np.add.reduceat(after, begins), np.diff(begins, append=len(key_of)))
    return _Placed(
        changed,
        changed[key_of],
        slot_of,
        before,
        starts,
        after,
        np.maximum.reduceat(why[order], first).astype(np.int8),
    )


def _find_rehomed(problem: Problem) -> NDArray[np.int64]:
    """Return the keys that follow the base route to another slot."""
    loads = problem.loads
    if loads.next_homes is None:
        return np.empty(0, np.int64)
    moved = loads.homes != loads.next_homes
    moved[problem.parts.key_rows[problem.parts.listed]] = False
    return np.flatnonzero(moved)


def _find_moves(problem: Problem, placed: _Placed) -> Moves:
    """Return what goes from where to where: a key's losing slots serve its gaining ones in their order."""
    lost, gained = placed.before - placed.after, placed.after - placed.before
    sources, targets = np.flatnonzero(lost > _CRUMB), np.flatnonzero(gained > _CRUMB)
    if not len(sources):
        return Moves.none()
    key_of_source, key_of_target = placed.key_rows[sources], placed.key_rows[targets]
    simple_source = occurs_once(key_of_source) & occurs_once_in(key_of_source, key_of_target)
    simple_target = occurs_once(key_of_target) & occurs_once_in(key_of_target, key_of_source)
    pairs = [(sources[simple_source], targets[simple_target], lost[sources[simple_source]])]
    if not simple_source.all():
        pairs.append(_match(placed.key_rows, sources[~simple_source], targets[~simple_target], lost, gained))
    source, target, shares = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    order = np.lexsort((target, source))
    source, target, shares = source[order], target[order], shares[order]
    key_rows = placed.key_rows[source]
    homes = problem.homes[key_rows]
    kinds = np.where(
        placed.slots[target] == homes,
        MoveKind.RETURN_HOME,
        np.where(placed.slots[source] == homes, MoveKind.MOVE_OUT, MoveKind.SHIFT),
    )
    leaves_together = (placed.after[source] == 0) & (np.bincount(source)[source] == 1)
    meets_others = (placed.before[target] > 0) | (np.bincount(target)[target] > 1)
    effects = np.where(leaves_together, np.where(meets_others, MoveEffect.MERGE, MoveEffect.WHOLE), MoveEffect.SPLIT)
    reasons = np.where(problem.removed[placed.slots[source]], MoveReason.SLOT_REMOVED, placed.reasons[source])
    return Moves(
        "key",
        problem.loads.keys[key_rows],
        placed.slots[source],
        placed.slots[target],
        shares,
        problem.loads.loads[key_rows] * shares,
        problem.loads.state_bytes[key_rows] * shares,
        kinds.astype(np.int8),
        effects.astype(np.int8),
        reasons.astype(np.int8),
    )


def _match(
    key_rows: NDArray[np.int64],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    lost: NDArray[np.float64],
    gained: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return pairs of losing and gaining rows of the same key, and the share that goes from one to the other.

    All keys lie on one line, each with a length of 1: the ends of what is lost and of what is gained cut it.
    """
    keys = find_distinct(key_rows[sources])
    source_ends = _line_ends(keys, key_rows[sources], lost[sources])
    target_ends = _line_ends(keys, key_rows[targets], gained[targets])
    ends = np.unique(np.concatenate((source_ends, target_ends)))
    begins = np.concatenate(([0.0], ends[:-1]))
    totals = sum_by(np.searchsorted(keys, key_rows[sources]), lost[sources], len(keys))
    source = sources[np.searchsorted(source_ends, begins, "right")]
    target = targets[np.searchsorted(target_ends, begins, "right")]
    shares = (ends - begins) * totals[np.searchsorted(keys, key_rows[source])]
    # A rounding apart, two ends are one; between them there may be the wrong target.
    real = shares > _CRUMB
    return source[real], target[real], shares[real]


def _line_ends(
    keys: NDArray[np.int64], key_rows: NDArray[np.int64], shares: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return where each part ends on the line on which key i lies between i and i + 1."""
    ordinal = np.searchsorted(keys, key_rows)
    totals = sum_by(ordinal, shares, len(keys))
    sums = np.cumsum(shares)
    before_key = np.concatenate(([0.0], np.cumsum(totals)))[ordinal]
    ends: NDArray[np.float64] = ordinal + (sums - before_key) / totals[ordinal]
    last = np.concatenate((ordinal[1:] != ordinal[:-1], [True]))
    ends[last] = ordinal[last] + 1.0
    return ends


def _build_table(problem: Problem, placed: _Placed) -> tuple[RoutingTable, float]:
    """Return the table, with exactly the keys that are away from home, and the load of its split keys."""
    parts = problem.parts
    kept = parts.listed[~is_among(parts.key_rows[parts.listed], placed.changed)]
    there = placed.after > 0
    key_rows = np.concatenate((parts.key_rows[kept], placed.key_rows[there]))
    slots = np.concatenate((parts.slots[kept], placed.slots[there]))
    shares = np.concatenate((parts.shares[kept], placed.after[there]))
    order = np.argsort(key_rows, kind="stable")
    key_rows, slots, shares = key_rows[order], slots[order], shares[order]
    if not len(key_rows):
        return RoutingTable.empty(), 0.0
    whole = occurs_once(key_rows)
    away = ~(whole & (slots == problem.homes[key_rows]))
    split_load = float((problem.loads.loads[key_rows] * shares)[~whole].sum())
    return RoutingTable(problem.loads.keys[key_rows[away]], slots[away], shares[away]), split_load


def _describe_shortfall(problem: Problem, loads_after: NDArray[np.float64]) -> str:
    """Return which slots stay above their limits, by how much and why; nothing when none does."""
    over = np.flatnonzero(loads_after > problem.limits + ROUNDING * problem.means.max(initial=0.0))
    if not len(over):
        return ""
    loads = problem.loads
    worst = over[np.argmax(loads_after[over] - problem.limits[over])]
    shown = ", ".join(str(slot) for slot in over[:5].tolist()) + (" …" if len(over) > 5 else "")
    found = (
        f"{'slot' if len(over) == 1 else 'slots'} {shown} {'stays' if len(over) == 1 else 'stay'} above the limit: "
        f"slot {worst} carries {loads_after[worst]:.6g}, its limit is {problem.limits[worst]:.6g}"
    )
    unlisted = np.zeros(len(loads_after))
    if loads.unlisted is not None:
        unlisted[: len(loads.unlisted)] = loads.unlisted
    if (unlisted > problem.limits)[over].any():
        return f"{found}; keys that are not listed make up more than that, so move buckets"
    if loads.splittable is not None and not loads.splittable.all():
        count = int((~loads.splittable).sum())
        return f"{found}; {count} {'key' if count == 1 else 'keys'} may not be split"
    return f"{found}; keys are moved whole by this planner, so take mnrt or qmmp, which split them"
