"""Where keys go when they are sent one after the other, by whoever writes them: changes come at edges of time only."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.model import RouteError, RoutingTable
from anabranch.routing.bases.base_routes import ModuloRoute, base_from_json, base_to_json, has_modulo, slots_at
from anabranch.routing.keys import KeyBatch, KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import (
    ConsistentHash,
    Hash,
    Modulo,
    Ranges,
    WeightHash,
    choose_weights,
    make_strategy,
)
from anabranch.routing.strategies.coordinated import LeastCount, LeastKey, WeightRandom, place_on_least

FORMAT_VERSION = 1
MOST_FRESH_KEYS = 4_096
"""Keys that were placed one by one wait to be sorted in until they are so many."""
_COMPUTED = (Hash, ConsistentHash, Modulo, Ranges, WeightHash)
_EVER = -(2**62)
"""The edge before all others."""
_HARDLY_ANY = 1e-9
"""A past that makes a key a decided one, and weighs nothing."""


@dataclass(frozen=True, slots=True)
class AssignmentPlan:
    """What an assignment is told once."""

    strategy: str
    slots: int
    options: Mapping[str, Any]
    edge_us: int | None = None
    """Windows of this length, or of one that divides it, keep their keys; None: keys stay for good."""
    seed: int = 0
    kept_edges: int = 16
    """Earlier edges whose rows still find their places; rows that are later go where the oldest of them went."""


@dataclass(frozen=True, slots=True)
class _Phase:
    """Where rows from an edge on went, until the next phase."""

    since: int
    routes: Routes


class KeyAssignment:
    """Assigns keys to slots; a (key, window between two edges) never gets two.

    Strategies that place keys one by one (*least-key*, *least-count*, *weight-random*) do so when a key comes first, by
    what came so far, and look at all keys again at every edge. Other strategies of one's own decide at edges only; keys
    they have not seen go by the hash. Not for several threads.
    """

    def __init__(self, plan: AssignmentPlan, sample: KeySample | None = None) -> None:
        """``sample`` says what is known of keys before the first one comes."""
        self.plan = plan
        self._strategy = make_strategy(plan.strategy, **plan.options)
        if self._strategy.splits_keys:
            msg = (
                f"{plan.strategy} spreads a key over several slots, and who reads without an exchange needs it whole; "
                "use a strategy that keeps keys whole, such as 'least-count'"
            )
            raise RouteError(msg)
        if plan.edge_us is not None and plan.edge_us < 1:
            msg = f"edges every {plan.edge_us} µs; give a length of time above 0"
            raise RouteError(msg)
        nothing = KeySample(np.empty(0, np.uint64), np.empty(0))
        routes = Routes.even(plan.slots)
        if isinstance(self._strategy, _COMPUTED) or sample is not None:
            routes = self._strategy.decide(sample or nothing, routes, self._chance(0))
        self._slots = plan.slots
        self._wanted_slots = plan.slots
        self._base = routes.base
        self._older: list[_Phase] = []
        self._since = _EVER
        self._latest_edge = _EVER
        self._fresh: dict[int, list[float]] = {}
        self._set_keys(nothing.keys, np.empty(0, np.int32), nothing.counts, nothing.counts)
        if sample is not None and not self.is_computed:
            self._set_keys(sample.keys, routes.storage_slots(sample.batch), np.zeros(len(sample)), sample.counts)

    @property
    def slots(self) -> int:
        """How many slots rows go to from the latest edge on."""
        return self._slots

    @property
    def is_computed(self) -> bool:
        """Whether a key alone says where it goes, so that anybody can tell."""
        return isinstance(self._strategy, _COMPUTED)

    def grow(self, slots: int) -> None:
        """Use more slots from the next edge on."""
        if self.plan.edge_us is None:
            msg = (
                "more partitions move keys, and without edges there is no moment at which they may; "
                'give edges=, such as edges="10s" for windows of 10 s, or begin with a new topic'
            )
            raise RouteError(msg)
        if slots < self._slots:
            msg = f"{slots} partitions are fewer than the {self._slots} there are; rows in the others would be stranded"
            raise RouteError(msg)
        self._wanted_slots = slots

    def assign(self, keys: KeyBatch, times_us: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
        """Return the slot of each row; with edges, ``times_us`` has each row's event time."""
        if self.plan.edge_us is None:
            return self._assign_latest(keys)
        if times_us is None:
            msg = "keys change places at edges of event time; give the rows' times"
            raise RouteError(msg)
        edges = times_us // self.plan.edge_us
        slots = np.empty(len(keys), np.int32)
        for edge in np.unique(edges).tolist():
            rows = np.flatnonzero(edges == edge)
            self._reach(edge)
            some = keys.take(rows)
            slots[rows] = self._assign_latest(some) if edge >= self._since else self._assign_older(some, edge)
        return slots

    def assign_one(self, keys: KeyBatch, time_us: int | None = None) -> int:
        """Return the slot of one row: as ``assign``, without what that costs for many."""
        if self.is_computed or (time_us is None and self.plan.edge_us is not None):
            return int(self.assign(keys, None if time_us is None else np.array([time_us], np.int64))[0])
        if time_us is not None and self.plan.edge_us is not None:
            edge = time_us // self.plan.edge_us
            self._reach(edge)
            if edge < self._since:
                return int(self._assign_older(keys, edge)[0])
        key = int(keys.hashes[0])
        fresh = self._fresh.get(key)
        if fresh is not None:
            fresh[1] += 1
            self._loads[int(fresh[0])] += self._counts_rows
            return int(fresh[0])
        place = int(np.searchsorted(self._keys, keys.hashes[0]))
        if place < len(self._keys) and self._keys[place] == keys.hashes[0]:
            slot = int(self._places[place])
            self._counts[place] += 1
            self._loads[slot] += self._counts_rows
            return slot
        slot = int(self._place_new(keys, np.ones(1))[0])
        self._fresh[key] = [slot, 1.0]
        if len(self._fresh) >= MOST_FRESH_KEYS:
            self._sort_in()
        return slot

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        self._sort_in()
        plan = self.plan
        return {
            "format_version": FORMAT_VERSION,
            "strategy": plan.strategy,
            "slots": plan.slots,
            "options": {
                name: list(value) if isinstance(value, tuple) else value for name, value in plan.options.items()
            },
            "edge_us": plan.edge_us,
            "seed": plan.seed,
            "kept_edges": plan.kept_edges,
            "base": base_to_json(self._base),
            "slots_now": self._slots,
            "slots_wanted": self._wanted_slots,
            "since": self._since,
            "latest_edge": self._latest_edge,
            "older": [{"since": phase.since, "routes": phase.routes.to_json()} for phase in self._older],
            "keys": [f"{key:016x}" for key in self._keys.tolist()],
            "places": self._places.tolist(),
            "counts": self._counts.tolist(),
            "past": self._past.tolist(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KeyAssignment:
        """Read what ``to_json`` wrote."""
        if data.get("format_version") != FORMAT_VERSION:
            msg = f"an assignment of format {data.get('format_version')!r}; this version reads {FORMAT_VERSION}"
            raise RouteError(msg)
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in data["options"].items()}
        plan = AssignmentPlan(
            data["strategy"], data["slots"], options, data["edge_us"], data["seed"], data["kept_edges"]
        )
        made = cls.__new__(cls)
        made.plan = plan
        made._strategy = make_strategy(plan.strategy, **options)
        made._base = base_from_json(data["base"])
        made._slots, made._wanted_slots = data["slots_now"], data["slots_wanted"]
        made._since, made._latest_edge = data["since"], data["latest_edge"]
        made._older = [_Phase(phase["since"], Routes.from_json(phase["routes"])) for phase in data["older"]]
        made._fresh = {}
        made._set_keys(
            np.array([int(key, 16) for key in data["keys"]], np.uint64),
            np.array(data["places"], np.int32),
            np.array(data["counts"], np.float64),
            np.array(data["past"], np.float64),
        )
        return made

    # -- inside ----------------------------------------------------------------------------------------------------

    @property
    def _counts_rows(self) -> bool:
        return not isinstance(self._strategy, LeastKey)

    @property
    def _remembers(self) -> bool:
        """Whether keys that are silent for an edge stay known."""
        return bool(getattr(self._strategy, "with_history", False) or getattr(self._strategy, "sticky", False))

    def _chance(self, edge: int) -> np.random.Generator:
        return np.random.default_rng([self.plan.seed, edge % 2**32])

    def _home_slots(self, keys: KeyBatch) -> NDArray[np.int32]:
        if isinstance(self._base, ModuloRoute):
            of_values = keys.values is not None and has_modulo(keys.values.dtype)
            return ModuloRoute(self._slots, of_values).slots_of(keys)
        return self._base.slots_of(keys)

    def _reach(self, edge: int) -> None:
        """Begin a new phase if the edge is later than all before."""
        if edge <= self._latest_edge:
            return
        is_first = self._latest_edge == _EVER
        self._latest_edge = edge
        grows = self._wanted_slots != self._slots
        if is_first or (self.is_computed and not grows):
            return
        self._sort_in()
        self._older.append(_Phase(self._since, self._routes()))
        del self._older[: -self.plan.kept_edges]
        self._since = edge
        self._slots = self._wanted_slots
        if grows:
            self._base = self._base.resized(self._slots)
        if not self.is_computed:
            self._decide(edge)

    def _decide(self, edge: int) -> None:
        current = self._routes()
        sample = KeySample(self._keys, self._counts, history=self._past + _HARDLY_ANY)
        routes = self._strategy.decide(sample, current, self._chance(edge))
        if routes.splitter is not None or len(routes.table.split_keys()):
            msg = f"the strategy {self.plan.strategy!r} split keys; who reads without an exchange needs them whole"
            raise RouteError(msg)
        self._base = routes.base
        past = self._past + self._counts
        kept = np.ones(len(self._keys), np.bool_) if self._remembers else self._counts > 0
        keys = self._keys[kept]
        self._set_keys(keys, routes.storage_slots(KeyBatch(keys)), np.zeros(len(keys)), past[kept])

    def _routes(self) -> Routes:
        """Return the latest phase as routes: the keys that are not at home are in the table."""
        if not len(self._keys):
            return Routes(self._base)
        # A slot that did not exist when a key was placed makes its home another, never its place.
        away = self._places != self._home_slots(KeyBatch(self._keys))
        return Routes(self._base, RoutingTable.assemble(self._keys[away], self._places[away]))

    def _assign_older(self, keys: KeyBatch, edge: int) -> NDArray[np.int32]:
        found = bisect_right(self._older, edge, key=lambda phase: phase.since) - 1
        routes = self._older[max(0, found)].routes
        if isinstance(routes.base, ModuloRoute):
            of_values = keys.values is not None and has_modulo(keys.values.dtype)
            routes = Routes(ModuloRoute(routes.slots, of_values))
        return routes.storage_slots(keys)

    def _assign_latest(self, keys: KeyBatch) -> NDArray[np.int32]:
        if self.is_computed:
            return self._home_slots(keys)
        self._sort_in()
        unique, firsts, inverse = np.unique(keys.hashes, return_index=True, return_inverse=True)
        counts = np.bincount(inverse, minlength=len(unique)).astype(np.float64)
        places = np.searchsorted(self._keys, unique)
        known = places < len(self._keys)
        known[known] = self._keys[places[known]] == unique[known]
        slots = np.empty(len(unique), np.int32)
        slots[known] = self._places[places[known]]
        self._counts[places[known]] += counts[known]
        if self._counts_rows:
            self._loads += np.bincount(slots[known], counts[known], minlength=self._slots)
        new = np.flatnonzero(~known)
        if len(new):
            slots[new] = self._place_new(keys.take(firsts[new]), counts[new])
            self._insert(unique[new], slots[new], counts[new])
        return slots[inverse]

    def _place_new(self, keys: KeyBatch, counts: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return where keys go that came for the first time, and count their load there."""
        homes = self._home_slots(keys)
        loads = counts if self._counts_rows else np.ones(len(keys))
        slots = homes
        if isinstance(self._strategy, WeightRandom):
            nobody = KeySample(np.empty(0, np.uint64), np.empty(0))
            weights = choose_weights(self._strategy.weights, nobody, self._slots)
            # Drawn by the key, so that the order in which keys come does not matter.
            chances = [np.random.default_rng([self.plan.seed, int(key)]) for key in keys.hashes.tolist()]
            slots = slots_at(np.array([chance.uniform(0, 100) for chance in chances]), weights)
        elif isinstance(self._strategy, LeastKey | LeastCount):
            slots = place_on_least(loads, homes, self._loads, np.ones(self._slots))
        self._loads += np.bincount(slots, loads, minlength=self._slots)
        return slots

    def _set_keys(
        self,
        keys: NDArray[np.uint64],
        places: NDArray[np.int32],
        counts: NDArray[np.float64],
        past: NDArray[np.float64],
    ) -> None:
        self._keys, self._places, self._counts, self._past = keys, places, counts, past
        loads = np.ones(len(keys))
        if self._counts_rows:
            loads = counts + past if getattr(self._strategy, "with_history", False) else counts
        self._loads: NDArray[np.float64] = np.bincount(places, loads, minlength=self._slots).astype(np.float64)

    def _insert(self, keys: NDArray[np.uint64], places: NDArray[np.int32], counts: NDArray[np.float64]) -> None:
        all_keys = np.concatenate((self._keys, keys))
        order = np.argsort(all_keys, kind="stable")
        self._keys = all_keys[order]
        self._places = np.concatenate((self._places, places))[order]
        self._counts = np.concatenate((self._counts, counts))[order]
        self._past = np.concatenate((self._past, np.zeros(len(keys))))[order]

    def _sort_in(self) -> None:
        if not self._fresh:
            return
        fresh = sorted(self._fresh.items())
        self._fresh = {}
        self._insert(
            np.array([key for key, _ in fresh], np.uint64),
            np.array([slot for _, (slot, _) in fresh], np.int32),
            np.array([count for _, (_, count) in fresh], np.float64),
        )
