"""Strategies that place keys one by one: LeastKey, LeastCount and random Weight.

The driver decides them, and the routing table carries the decision to where rows are routed.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anabranch.model import RoutingTable
from anabranch.model.balance import Routing
from anabranch.routing.bases.base_routes import WeightRoute, check_weights, slots_at, weights_of
from anabranch.routing.keys import KeySample
from anabranch.routing.lookup import find_keys
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import (
    check_option,
    choose_weights,
    decide_named,
    is_sticky,
    strategy,
    strategy_over,
)

MOST_DECIDED_KEYS = 10_000
"""Keys whose places a flow remembers: they are in the routing table, and so in every manifest."""


@strategy("least-key")
@dataclass(frozen=True, slots=True)
class LeastKey:
    """Every key that has to move goes to the slot with the fewest keys: for keys that are equally hot.

    A slot gives away only what it has above its fair number. ``sticky`` is the rule as published: what was decided
    stays, and only new keys are placed, each on the slot that has the least then.
    """

    sticky: bool = False
    splits_keys: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_option("sticky", self.sticky, bool)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return _place_least(sample, np.ones(len(sample)), 1.0, current, self.sticky)


@strategy("least-count")
@dataclass(frozen=True, slots=True)
class LeastCount:
    """Every key that has to move goes to the slot with the fewest rows, hottest keys first.

    Published, the rule places a key when its first row comes, by the *past* rows of the keys that each slot has
    already: it counts on a key's part of the stream changing slowly, and without a past it is no better than
    LeastKey. Here a sample is at hand before keys are placed. Without history, its counts are all that is known,
    and the many keys that a sample sees once or never are placed by chance. With history, the counts of all samples
    so far are added up.
    """

    with_history: bool = False
    sticky: bool = False
    splits_keys: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_option("with_history", self.with_history, bool)
        check_option("sticky", self.sticky, bool)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        past = sample.history if self.with_history and sample.history is not None else np.zeros(len(sample))
        return _place_least(sample, sample.counts + past, 0.0, current, self.sticky)


@strategy("least-count-history")
def least_count_with_history(sticky: bool = False) -> LeastCount:
    """Return LeastCount that adds up the counts of all samples so far."""
    return LeastCount(with_history=True, sticky=sticky)


@strategy("weight-random")
@dataclass(frozen=True, slots=True)
class WeightRandom:
    """A new key is drawn a slot, each as likely as its weight says; decided keys stay.

    For slots of different power whose keys are not evenly spread by their hash.
    """

    weights: tuple[float, ...] | None = None
    sticky: bool = True
    splits_keys: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_option("sticky", self.sticky, bool)
        if self.weights is not None:
            check_weights(self.weights)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        weights = choose_weights(self.weights, sample, current.slots)
        places = _current_slots(sample, current)
        undecided = np.flatnonzero(~_decided(sample, current)) if self.sticky else np.arange(len(sample))
        places[undecided] = slots_at(rng.uniform(0, 100, len(undecided)), weights)
        weighs = self.weights is not None or sample.powers is not None
        return _placed(sample, places, _weighed(current, weights if weighs else None), self.sticky)


def decide_bounded(routing: Routing, sample: KeySample, routes: Routes, seed: int) -> Routes:
    """Return what a named strategy decides, with no more keys in its table than a manifest should hold."""
    if is_sticky(strategy_over(routing, routes.slots)):
        sample = fit_sample(sample, routes.table)
    chosen = decide_named(routing, sample, routes, np.random.default_rng(seed))
    if len(chosen.table) <= MOST_DECIDED_KEYS:
        return chosen
    # Keys that are silent go home: they would be remembered for ever.
    silent = np.setdiff1d(chosen.table.keys, sample.keys)
    return chosen.with_table(chosen.table.without(silent))


def fit_sample(sample: KeySample, table: RoutingTable) -> KeySample:
    """Return the sample without the coldest of its new keys, if the table has no room to remember where they go."""
    decided, _ = find_keys(sample.keys, np.unique(table.keys))
    room = max(MOST_DECIDED_KEYS - len(table), 0)
    new = np.delete(np.arange(len(sample)), decided)
    if len(new) <= room:
        return sample
    # Ties by key: equal samples must leave the same keys.
    hottest = new[np.lexsort((sample.keys[new], -sample.counts[new]))[:room]]
    return sample.take(np.sort(np.concatenate((decided, hottest))))


def _weighed(current: Routes, weights: tuple[float, ...] | None) -> Routes:
    """Return the routes with keys that nobody decided on spread by the weights, too, where there are weights."""
    return current if weights is None else replace(current, base=WeightRoute(weights))


def _place_least(
    sample: KeySample, loads: NDArray[np.float64], silent_load: float, current: Routes, sticky: bool
) -> Routes:
    """Move keys to the least loaded slots; ``silent_load`` is that of a key in the table which the sample missed."""
    powers = sample.slot_powers(current.slots)
    places = _current_slots(sample, current)
    fixed = _decided(sample, current) if sticky else np.zeros(len(sample), np.bool_)
    silent = current.table.without(sample.keys)
    slot_loads = np.bincount(places[fixed], loads[fixed], minlength=current.slots) + np.bincount(
        silent.slots, silent.shares * silent_load, minlength=current.slots
    )
    free = np.flatnonzero(~fixed)
    if sticky:
        places[free] = place_in_turn(loads[free], slot_loads.astype(np.float64), powers)
    else:
        places[free] = place_on_least(loads[free], places[free], slot_loads.astype(np.float64), powers)
    weights = None if sample.powers is None else weights_of(powers.tolist())
    return _placed(sample, places, _weighed(current, weights), sticky)


def place_in_turn(
    loads: NDArray[np.float64], slot_loads: NDArray[np.float64], powers: NDArray[np.float64]
) -> NDArray[np.int32]:
    """Return a place for each key, one after the other: the slot with the least so far, by its power."""
    # A slot without power never comes first.
    heap = [(slot_loads[slot] / powers[slot], slot) for slot in range(len(powers)) if powers[slot] > 0]
    heapq.heapify(heap)
    chosen = []
    power_of = powers.tolist()
    for step in loads.tolist():
        level, slot = heap[0]
        chosen.append(slot)
        heapq.heapreplace(heap, (level + step / power_of[slot], slot))
    return np.array(chosen, np.int32)


def place_on_least(
    loads: NDArray[np.float64],
    places: NDArray[np.int32],
    slot_loads: NDArray[np.float64],
    powers: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Return a new place for each key: its own while that slot has room, else the least loaded slot of all.

    A slot's room is its fair share of all load, by its power. Keys stay by the magnitude of their load, then the others
    are placed hottest first; ties by position, and to the lower slot.
    """
    fair = (slot_loads.sum() + loads.sum()) * powers / powers.sum()
    # Loads are counts of a sample: were the coldest keys to go, they would be those that are cold by chance, and the
    # slots that get them would come out fuller than they look. So within a factor of two, all keys are alike.
    magnitude = np.frexp(loads)[1]
    order = np.lexsort((np.arange(len(loads)), -magnitude, places))
    by_slot, ordered = places[order], loads[order]
    running = np.cumsum(ordered)
    firsts = np.searchsorted(by_slot, np.arange(len(powers)))
    before_slot = np.concatenate(([0.0], running))[firsts]
    used = slot_loads[by_slot] + running - before_slot[by_slot]
    # A hair of room more, or rounding in the sums would move keys that fit.
    room = (fair * (1 + 1e-9))[by_slot]
    # A key too hot for any slot stays where it is if it is the slot's first: elsewhere it would be too hot as well.
    alone = (used - ordered <= slot_loads[by_slot] + 1e-9) & (slot_loads[by_slot] < room)
    stays = (used <= room) | alone
    new_places = places.copy()
    kept = slot_loads + np.bincount(by_slot[stays], ordered[stays], minlength=len(powers))
    movers = order[~stays]
    movers = movers[np.lexsort((movers, -loads[movers]))]
    new_places[movers] = place_in_turn(loads[movers], kept, powers)
    return new_places


def _current_slots(sample: KeySample, current: Routes) -> NDArray[np.int32]:
    """Return the slot of each sampled key now; that of its largest part, if it is split."""
    places = current.home_slots(sample.batch)
    table = current.table
    # By key, then rising share, the higher slot first among equals: the last row of a key is its largest part.
    order = np.lexsort((-table.slots, table.shares, table.keys))
    lasts = table.first_rows() + table.parts_a_key() - 1
    rows, positions = find_keys(sample.keys, table.keys[table.first_rows()])
    places[rows] = table.slots[order[lasts[positions]]]
    return places


def _decided(sample: KeySample, current: Routes) -> NDArray[np.bool_]:
    """Return which sampled keys were placed before: those in the table, and those with a past."""
    decided = np.zeros(len(sample), np.bool_) if sample.history is None else sample.history > 0
    rows, _ = find_keys(sample.keys, np.unique(current.table.keys))
    decided[rows] = True
    return decided


def _placed(sample: KeySample, places: NDArray[np.int32], current: Routes, sticky: bool) -> Routes:
    """Return the routes in which each sampled key is at its place; entries of unseen keys stay.

    Where decided keys are to stay, the table has those at home, too: it is all that is known of decisions.
    """
    listed = places != current.home_slots(sample.batch)
    if sticky:
        listed[:] = True
    moved = RoutingTable.assemble(sample.keys[listed], places[listed])
    return Routes(current.base, current.table.without(sample.keys).overlaid(moved))
