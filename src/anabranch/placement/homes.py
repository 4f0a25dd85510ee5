"""Which executor each slot is at home on: even in processor time, level by level, with as little moved as will do.

Levels of a batch follow one another, so a batch takes as long as the busiest executor of each level, added up. That is
what is made small; the busiest executor over all levels follows, because it cannot be busier than that sum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from anabranch.model.cluster import Executor, HomeChoice, Homes, SlotId, SlotLoad, SlotLoads
from anabranch.model.elasticity import SMALLEST_IMPROVEMENT, Elasticity
from anabranch.model.measures import TaskMeasure
from anabranch.placement.elasticity import find_deviation
from anabranch.placement.energy.loads import BLOCK_COPIES
from anabranch.placement.spread import Spread

TOLERANCE = 0.15
"""How far above its share of processor time an executor may be before slots move."""
_LEAST_SECONDS = 1e-9
_NEW_WEIGHT = 0.3
_LEAST_SAVED_SECONDS = 0.02
"""Below that, a batch gains nothing that could be told from chance."""
UNEVEN_BATCHES = 3
"""For how many batches in a row executors must differ: processes that start, and chance, make single ones uneven."""
_NO_HOMES: Homes = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HomeMove:
    """Let a slot run on another executor from the next batch on."""

    slot: SlotId
    source: str | None
    """None if it had no home."""
    target: str
    state_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class HomePlan:
    """Where every slot is at home from the next batch on, and why."""

    homes: Homes
    moves: tuple[HomeMove, ...]
    released: tuple[SlotId, ...]
    """Slots that were given their homes by hand, on executors that are gone or go: they are free again."""
    cpu_seconds: Mapping[str, float]
    """By executor, what a batch costs there."""
    max_over_mean: float
    """The busiest executor's processor time over the mean, each by its cores; 1 is even."""
    level_max_over_mean: Mapping[int, float]
    reason: str

    @property
    def moved_bytes(self) -> int:
        """State of slots that had a home before and get another one."""
        return sum(move.state_bytes for move in self.moves if move.source is not None)


def measure_slots(measures: Iterable[TaskMeasure], state_bytes: Mapping[SlotId, int]) -> dict[SlotId, SlotLoad]:
    """Return what each slot cost in a batch. Tasks that read (level 0) or let parts meet are no slots."""
    cpu_seconds: defaultdict[SlotId, float] = defaultdict(float)
    received_bytes: defaultdict[SlotId, int] = defaultdict(int)
    for measure in sorted(measures, key=lambda one: (one.level, one.slot, one.cpu_seconds)):
        if measure.level > 0 and not measure.meets:
            cpu_seconds[measure.level, measure.slot] += measure.cpu_seconds
            received_bytes[measure.level, measure.slot] += measure.received_bytes
    return {
        slot: SlotLoad(seconds, state, state + BLOCK_COPIES * received_bytes[slot])
        for slot, seconds in cpu_seconds.items()
        for state in (state_bytes.get(slot, 0),)
    }


def follow_loads(known: Mapping[SlotId, SlotLoad], seen: Mapping[SlotId, SlotLoad]) -> dict[SlotId, SlotLoad]:
    """Return loads that follow those of the last batch slowly: one batch is no reason to move state.

    What a slot took in its first batch is forgotten with the second one: processes start in it, and code is loaded.
    """
    return {slot: _follow(known[slot], load) if slot in known else load for slot, load in seen.items()}


def _follow(known: SlotLoad, seen: SlotLoad) -> SlotLoad:
    weight = max(_NEW_WEIGHT, 1 / known.batches)
    cpu_seconds = known.cpu_seconds + weight * (seen.cpu_seconds - known.cpu_seconds)
    return replace(seen, cpu_seconds=cpu_seconds, batches=known.batches + 1)


def tell_uneven(
    cpu_seconds: Mapping[str, float], executors: Sequence[Executor], batch_seconds: float, limits: Elasticity
) -> str:
    """Return by how much executors differ in what slots take there, in words, if it is too much; else nothing."""
    deviation = find_deviation(cpu_seconds, executors, batch_seconds, limits.cores_per_executor)
    saved = max((cpu_seconds.get(one.id, 0.0) for one in executors), default=0.0) - _find_mean(cpu_seconds, executors)
    if deviation <= limits.imbalance or saved < _LEAST_SAVED_SECONDS:
        return ""
    return f"executors differ by {deviation:.2f} in what slots take there, more than {limits.imbalance:g}"


def _find_mean(cpu_seconds: Mapping[str, float], executors: Sequence[Executor]) -> float:
    return sum(cpu_seconds.get(one.id, 0.0) for one in executors) / max(1, len(executors))


def plan_homes(
    executors: Iterable[Executor],
    slots: Mapping[SlotId, SlotLoad | None],
    homes: Homes,
    *,
    pinned: Homes = _NO_HOMES,
    evens_out: bool = True,
    tolerance: float = TOLERANCE,
    smallest_improvement: float = SMALLEST_IMPROVEMENT,
) -> HomePlan:
    """Return the homes of all slots; ``None`` for a slot of which nothing is known yet.

    Slots stay where they are, but for those of executors that are gone or leaving, and those that must move so that no
    executor is more than ``tolerance`` above its share or short of memory. Executors that are leaving get none, nor do
    those that are not warm, unless there are no others. ``pinned`` are homes that people chose: they hold until their
    executor goes. While nobody stays, slots stay with those that leave. Without ``evens_out``, only slots that
    have no home get one.
    """
    everyone = {executor.id: executor for executor in sorted(executors, key=lambda executor: executor.id)}
    loads = _fill_unknown(slots)
    if not loads:
        return HomePlan({}, (), (), {}, 1.0, {}, "there are no slots")
    staying = [executor for executor in everyone.values() if not executor.is_leaving]
    if not staying:
        kept = {slot: homes[slot] for slot in sorted(loads) if homes.get(slot) in everyone}
        reason = "no executor stays: slots remain where they are" if everyone else "there is no executor"
        return HomePlan(kept, (), tuple(sorted(pinned)), {}, 1.0, {}, reason)
    in_use = {*homes.values(), *pinned.values()}
    usable = [executor for executor in staying if executor.is_warm or executor.id in in_use] or staying
    holding = {slot: home for slot, home in pinned.items() if home in everyone and not everyone[home].is_leaving}
    spread = Spread(usable, loads, fixed={slot for slot in holding if slot in loads})
    reasons: dict[SlotId, str] = {}
    for slot in sorted(loads):
        home = holding.get(slot, homes.get(slot))
        if home in spread.places and home is not None:
            spread.put(slot, home)
            if home != homes.get(slot):
                reasons[slot] = "it was given this home by hand"
    before = spread.describe_busiest()
    homeless = [slot for slot in loads if slot not in spread.homes]
    for slot in sorted(homeless, key=lambda slot: (-loads[slot].cpu_seconds, slot)):
        spread.put(slot, spread.find_place(slot))
        reasons[slot] = _tell_loss(homes.get(slot), everyone)
    started = dict(spread.homes)
    if evens_out and spread.needs_moves(1 + tolerance):
        spread.even_out(1 + tolerance / 2, smallest_improvement, free=frozenset(homeless))
        spread.undo_needless(started, 1 + tolerance, free=frozenset(homeless))
    for slot, home in spread.homes.items():
        if home != started[slot]:
            reasons.setdefault(slot, f"balance: {before}")
    moves = tuple(
        HomeMove(slot, homes.get(slot), home, loads[slot].state_bytes, reasons[slot])
        for slot, home in sorted(spread.homes.items())
        if home != homes.get(slot)
    )
    return HomePlan(
        homes=dict(sorted(spread.homes.items())),
        moves=moves,
        released=tuple(sorted(set(pinned) - set(holding))),
        cpu_seconds=spread.cpu_seconds,
        max_over_mean=spread.max_over_mean,
        level_max_over_mean=spread.level_max_over_mean,
        reason=_tell_plan(moves, spread),
    )


def choose_homes(slots: Sequence[SlotId], executors: Sequence[Executor], loads: SlotLoads, before: Homes) -> HomeChoice:
    """Return homes by what slots cost; a slot that has one stays there unless there is a reason to even out.

    Reasons are executors that differ too much in what slots take there, and one that has no slot while another has
    several of a level. Loads that are small differ by chance, so that a slot above its share is no reason by itself.
    """
    every = {slot: loads.slots.get(slot) for slot in (*slots, *before)}
    pinned = {slot: home for slot, home in before.items() if slot not in slots}
    placed = plan_homes(executors, every, before, pinned=pinned, evens_out=False)
    reasons = [loads.uneven] if loads.uneven else []
    idle = [executor.id for executor in executors if executor.id not in placed.homes.values()]
    if idle and max(Counter((slot[0], home) for slot, home in placed.homes.items()).values(), default=0) > 1:
        reasons.append(f"executor {idle[0]} has no slots")
    if reasons:
        placed = plan_homes(executors, every, before, pinned=pinned, smallest_improvement=loads.smallest_improvement)
    hosts = len({executor.host for executor in executors})
    among = f"{len(executors)} executor{'s' if len(executors) != 1 else ''} on {hosts} host{'s' if hosts != 1 else ''}"
    return HomeChoice(
        {slot: placed.homes[slot] for slot in slots}, "; ".join([*reasons, f"spread by what slots cost over {among}"])
    )


def _fill_unknown(slots: Mapping[SlotId, SlotLoad | None]) -> dict[SlotId, SlotLoad]:
    """Return loads of all slots: one of which nothing is known is like the others of its level in the mean."""
    known: defaultdict[int, list[float]] = defaultdict(list)
    for (level, _), load in sorted(slots.items()):
        if load is not None:
            known[level].append(load.cpu_seconds)
    means = {level: sum(seconds) / len(seconds) for level, seconds in known.items()}
    loads = {slot: SlotLoad(means.get(slot[0], 1.0)) if load is None else load for slot, load in sorted(slots.items())}
    if any(load.cpu_seconds >= _LEAST_SECONDS for load in loads.values()):
        # Squares of less would be no numbers any more.
        return {
            slot: load if load.cpu_seconds >= _LEAST_SECONDS else replace(load, cpu_seconds=0.0)
            for slot, load in loads.items()
        }
    return {slot: replace(load, cpu_seconds=1.0) for slot, load in loads.items()}


def _tell_loss(home: str | None, everyone: Mapping[str, Executor]) -> str:
    if home is None:
        return "it had no home"
    if home not in everyone:
        return f"{home} is gone"
    return f"{home} is leaving" if everyone[home].is_leaving else f"{home} is not warm"


def _tell_plan(moves: Sequence[HomeMove], spread: Spread) -> str:
    found = spread.describe_busiest()
    if not moves:
        return f"slots stay: {found}"
    causes: defaultdict[str, int] = defaultdict(int)
    for move in moves:
        causes[move.reason.partition(":")[0]] += 1
    told = ", ".join(f"{count} × {cause}" for cause, count in sorted(causes.items()))
    return f"{told}; now {found}"
