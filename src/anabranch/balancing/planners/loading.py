"""Where the keys go that left their slots: the second half of MNRT."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.balancing.goals import ROUNDING
from anabranch.balancing.planners.columns import find_distinct, sum_by
from anabranch.balancing.planners.layout import lay_out, lay_out_whole
from anabranch.balancing.planners.outcome import Change
from anabranch.balancing.planners.problem import Problem
from anabranch.balancing.planners.unloading import Ranking, pick
from anabranch.model.moves import MoveReason

# Keys looked at one by one; so many are large only if the tolerance is close to nothing.
_LARGE_AT_MOST = 4096
# A target that filled up takes smaller items in the next round.
_ROUNDS = 3
_WHOLE = 1 - 1e-9

Taken = list[tuple[NDArray[np.int64], NDArray[np.float64], MoveReason]]


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Keys, or parts of keys, that need a place; one a key."""

    key_rows: NDArray[np.int64]
    shares: NDArray[np.float64]
    loads: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.key_rows)

    def choose(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Items:
        """Return some of the items."""
        return Items(self.key_rows[rows], self.shares[rows], self.loads[rows])


def collect_items(problem: Problem, parts: NDArray[np.int64], shares: NDArray[np.float64]) -> Items:
    """Return what was taken, with all parts of one key together: two parts that leave meet here."""
    owners = problem.parts.key_rows[parts]
    key_rows = find_distinct(owners)
    together = sum_by(np.searchsorted(key_rows, owners), shares, len(key_rows))
    return Items(key_rows, together, problem.loads.loads[key_rows] * together)


class Loading:
    """Places items, the best moves of table 2 first, and keeps count of the slots' loads.

    Merging comes before keeping whole, and keeping whole before splitting; return home before any other slot.
    """

    def __init__(
        self,
        problem: Problem,
        ranking: Ranking,
        taken: Taken,
        *,
        whole_keys_a_split: int,
        oversized_alone: bool = False,
    ) -> None:
        self._problem = problem
        self._oversized_alone = oversized_alone
        self._ranking = ranking
        self._whole_keys_a_split = whole_keys_a_split
        self._taken: Taken = list(taken)
        self._put: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]] = []
        self._loads = problem.slot_loads.copy()
        for parts, shares, _ in taken:
            self._subtract(parts, shares)
        self._stays = ~problem.removed
        self._made_room: set[int] = set()
        self._residents: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def place(self, items: Items) -> Change:
        """Place all items and return the whole change."""
        homeless = self._send_empty_home(items)
        homeless = self._merge(homeless)
        homeless = self._return_home(homeless)
        large, small = self._divide(homeless)
        self._place_small(self._place_large(large, small))
        return Change.gather(self._taken, self._put)

    # Vectorised passes: every item has one target in mind.

    def _send_empty_home(self, items: Items) -> Items:
        """Place keys without load: they weigh nothing anywhere, so home is best."""
        empty = items.loads <= 0
        if empty.any():
            self._put_whole(items.choose(empty), self._problem.homes[items.key_rows[empty]])
        return items.choose(~empty)

    def _merge(self, items: Items) -> Items:
        """Place parts whose key has another part in a slot with room: at home first, then in the idlest slot."""
        partial = np.flatnonzero(items.shares < _WHOLE)
        if not len(partial):
            return items
        found, asked = self._problem.parts.find(items.key_rows[partial])
        staying = self._problem.parts.shares[found] - self._find_taken(found)
        slots = self._problem.parts.slots[found]
        gaps = self._find_gaps()[slots]
        possible = np.flatnonzero((staying > 1 - _WHOLE) & (gaps > 0))
        at_home = slots[possible] == self._problem.homes[items.key_rows[partial[asked[possible]]]]
        best_first = possible[np.lexsort((-gaps[possible], ~at_home, asked[possible]))]
        first = np.concatenate(([True], asked[best_first][1:] != asked[best_first][:-1]))[: len(best_first)]
        targets = np.full(len(items), -1, np.int64)
        targets[partial[asked[best_first[first]]]] = slots[best_first[first]]
        return self._place_at(items, targets)

    def _return_home(self, items: Items) -> Items:
        """Place whole keys at home, where home has room."""
        homes = self._problem.homes[items.key_rows].astype(np.int64)
        wanted = (items.shares >= _WHOLE) & (self._find_gaps()[homes] > 0)
        return self._place_at(items, np.where(wanted, homes, -1))

    def _place_at(self, items: Items, targets: NDArray[np.int64]) -> Items:
        """Place the items that fit into their targets, largest first; return the others."""
        for _ in range(_ROUNDS):
            room = (self._problem.limits - self._loads)[targets]
            fitting = np.flatnonzero((targets >= 0) & (items.loads <= room))
            if not len(fitting):
                break
            order = fitting[np.lexsort((items.key_rows[fitting], -items.loads[fitting], targets[fitting]))]
            sums = np.cumsum(items.loads[order])
            begins = np.searchsorted(targets[order], targets[order], "left")
            within = sums - (sums - items.loads[order])[begins]
            placed = order[within <= room[order]]
            self._put_whole(items.choose(placed), targets[placed])
            left = np.ones(len(items), np.bool_)
            left[placed] = False
            items, targets = items.choose(left), targets[left]
        return items

    # Large items, one by one.

    def _divide(self, items: Items) -> tuple[Items, Items]:
        """Return the items that may overflow a slot, and those that cannot."""
        slack = float((self._problem.limits - self._problem.means)[self._stays].min())
        large = items.loads > slack
        if int(large.sum()) > _LARGE_AT_MOST:
            largest = np.argsort(-items.loads, kind="stable")[:_LARGE_AT_MOST]
            large = np.zeros(len(items), np.bool_)
            large[largest] = True
        return items.choose(large), items.choose(~large)

    def _place_large(self, large: Items, small: Items) -> Items:
        """Place the large items, largest first, and return the small ones, with those that had to make room."""
        smallest = float(large.loads.min()) if len(large) else 0.0
        waiting = [
            (-load, key_row, share)
            for load, key_row, share in zip(
                large.loads.tolist(), large.key_rows.tolist(), large.shares.tolist(), strict=True
            )
        ]
        heapq.heapify(waiting)
        gathered = [small]
        while waiting:
            negative, key_row, share = heapq.heappop(waiting)
            load = -negative
            slot = self._find_slot(key_row, load)
            if slot >= 0:
                self._put_one(key_row, slot, share, load)
                continue
            rest, expelled = self._force(key_row, share, load)
            if rest > 0:
                heapq.heappush(waiting, (-load * rest / share, key_row, rest))
            if expelled is not None:
                is_large = expelled.loads >= smallest
                for row in np.flatnonzero(is_large).tolist():
                    columns = (-expelled.loads[row], expelled.key_rows[row], expelled.shares[row])
                    heapq.heappush(waiting, (float(columns[0]), int(columns[1]), float(columns[2])))
                gathered.append(expelled.choose(~is_large))
        return Items(
            np.concatenate([items.key_rows for items in gathered]),
            np.concatenate([items.shares for items in gathered]),
            np.concatenate([items.loads for items in gathered]),
        )

    def _find_slot(self, key_row: int, load: float) -> int:
        """Return a slot that holds the item whole, its home or the one with most room, or -1."""
        room = np.where(self._stays, self._problem.limits - self._loads, -np.inf)
        home = int(self._problem.homes[key_row])
        if room[home] >= load:
            return home
        best = int(np.argmax(room))
        return best if room[best] >= load else -1

    def _force(self, key_row: int, share: float, load: float) -> tuple[float, Items | None]:
        """Place an item that fits nowhere; return the share of it that is left, and the items that had to leave."""
        if self._oversized_alone:
            taken_over = self._take_over(key_row, share, load)
            if taken_over is not None:
                return taken_over
        expelled = self._make_room(key_row, share, load)
        if expelled is not None:
            return 0.0, expelled
        return self._fill_gap(key_row, share, load), None

    def _take_over(self, key_row: int, share: float, load: float) -> tuple[float, Items] | None:
        """Give the idlest slot to a key that no slot can hold; None if less than a slot is enough for the rest."""
        problem = self._problem
        free = self._stays.copy()
        free[list(self._made_room)] = False
        slot = int(np.argmax(np.where(free, problem.limits - self._loads, -np.inf)))
        if not free[slot] or not problem.may_split(np.array([key_row]))[0]:
            return None
        leaving = self._find_residents(slot)
        leaving = leaving[problem.parts.key_rows[leaving] != key_row]
        room = float(problem.limits[slot] - self._loads[slot] + problem.parts.loads[leaving].sum())
        if load - room <= ROUNDING * float(problem.means[slot]):
            return None
        self._made_room.add(slot)
        shares = problem.parts.shares[leaving]
        self._taken.append((leaving, shares, MoveReason.MAKES_ROOM))
        self._subtract(leaving, shares)
        self._put_one(key_row, slot, share * room / load, room)
        return share * (1 - room / load), collect_items(problem, leaving, shares)

    def _make_room(self, key_row: int, share: float, load: float) -> Items | None:
        """Put a key whole into the idlest slot and return a few smaller ones that leave it instead.

        None if the key is split anyway, if no slot can hold it, or if too many others would have to go.
        """
        problem = self._problem
        slot = int(np.argmax(np.where(self._stays, problem.limits - self._loads, -np.inf)))
        if share < _WHOLE or slot in self._made_room:
            return None
        self._made_room.add(slot)
        total = float(self._loads[slot]) + load
        need, room = total - float(problem.limits[slot]), total - float(problem.means[slot])
        candidates = self._ranking.order(self._find_residents(slot), room)
        crumb = ROUNDING * float(problem.means[slot])
        picked = pick(candidates, need, room, crumb, self._whole_keys_a_split)
        if not picked.enough or picked.cut >= 0 or len(picked.rows) > self._whole_keys_a_split:
            return None
        leaving = candidates.parts[picked.rows]
        shares = problem.parts.shares[leaving]
        self._taken.append((leaving, shares, MoveReason.MAKES_ROOM))
        self._subtract(leaving, shares)
        self._put_one(key_row, slot, share, load)
        return collect_items(problem, leaving, shares)

    def _fill_gap(self, key_row: int, share: float, load: float) -> float:
        """Put as much of the item into the idlest slot as brings it to its mean; return the share that is left.

        An item that may not be split goes there whole, above the limit.
        """
        gaps = self._find_gaps()
        slot = int(np.argmax(gaps))
        gap, crumb = float(gaps[slot]), ROUNDING * float(self._problem.means[slot])
        may_split = bool(self._problem.may_split(np.array([key_row]))[0])
        if not may_split or gap <= crumb or load - gap <= crumb:
            self._put_one(key_row, slot, share, load)
            return 0.0
        piece = share * gap / load
        self._put_one(key_row, slot, piece, gap)
        return share - piece

    def _place_small(self, items: Items) -> None:
        """Lay the items out over the gaps: each is smaller than the tolerance, so none needs to be split."""
        if not len(items):
            return
        gaps = self._find_gaps()
        slots = np.flatnonzero(gaps > 0)
        if not len(slots):
            slots = np.array([int(np.argmax(gaps))])
        slack = self._problem.limits[slots].min() - self._problem.means[slots].min()
        fine = (items.loads <= slack) | ~self._problem.may_split(items.key_rows)
        coarse = items.choose(~fine)
        if len(coarse):
            pieces = lay_out(coarse.loads, gaps[slots], ROUNDING * float(self._problem.means.max()))
            whole = coarse.choose(pieces.items)
            self._put_pieces(whole.key_rows, slots[pieces.gaps], whole.shares * pieces.shares)
            self._place_small(items.choose(fine))
            return
        # Largest first: the last of them, at the edges of the gaps, overflow the least.
        items = items.choose(np.lexsort((items.key_rows, -items.loads)))
        self._put_whole(items, slots[lay_out_whole(items.loads, gaps[slots])])

    # The books.

    def _find_gaps(self) -> NDArray[np.float64]:
        """Return how far each slot is below its mean; slots that go have no gap."""
        return np.where(self._stays, self._problem.means - self._loads, -np.inf)

    def _find_residents(self, slot: int) -> NDArray[np.int64]:
        """Return the parts that were in the slot from the start and are still there whole."""
        if self._residents is None:
            self._residents = self._problem.group_parts(np.ones(self._problem.goal.slots_in_all, np.bool_))
        grouped, begins = self._residents
        parts = grouped[begins[slot] : begins[slot + 1]]
        untouched: NDArray[np.bool_] = self._find_taken(parts) == 0
        return parts[untouched]

    def _find_taken(self, parts: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what was taken from each of the given parts, which rise."""
        taken = np.zeros(len(parts))
        for gone, shares, _ in self._taken:
            where = np.searchsorted(parts, gone)
            known = where < len(parts)
            known[known] = parts[where[known]] == gone[known]
            np.add.at(taken, where[known], shares[known])
        return taken

    def _subtract(self, parts: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
        key_loads = self._problem.loads.loads[self._problem.parts.key_rows[parts]]
        self._loads -= sum_by(self._problem.parts.slots[parts], key_loads * shares, len(self._loads))

    def _put_whole(self, items: Items, slots: NDArray[np.integer]) -> None:
        self._put_pieces(items.key_rows, slots, items.shares)

    def _put_pieces(self, key_rows: NDArray[np.int64], slots: NDArray[np.integer], shares: NDArray[np.float64]) -> None:
        self._put.append((key_rows, slots.astype(np.int32), shares))
        self._loads += sum_by(slots, self._problem.loads.loads[key_rows] * shares, len(self._loads))

    def _put_one(self, key_row: int, slot: int, share: float, load: float) -> None:
        self._put.append((np.array([key_row]), np.array([slot], np.int32), np.array([share])))
        self._loads[slot] += load
