"""Where rows of a join go: those of one input to one slot of their key, those of the other to all of them.

So a pair is found once, however many slots share its key: where the first of the two is. Of keys that need only be near
each other, rows of the second input go to the slots of all keys that are near theirs. Routes that place rows by a draw
say themselves where each goes, and what for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.key_hashes import add_to_integers, hash_numbers
from anabranch.model import HASH
from anabranch.model.columns import DRAW, USE
from anabranch.model.joins import AT, LEFT, RIGHT, JoinSpec, is_clock_of_key, is_of_input, is_row_of_input
from anabranch.model.runs import Leaving
from anabranch.routing.bases.drawn import DrawnRoute, draw_rows
from anabranch.routing.hashing import mix, unit_interval
from anabranch.routing.keys import KeyBatch
from anabranch.routing.lookup import find_keys
from anabranch.routing.phases import PhasedRoutes, find_new_slots, keys_of, pick_first_slots
from anabranch.routing.routes import Routes, RowSlots

FindStorage = Callable[[pl.DataFrame], NDArray[np.int32]]
"""Rows → the one slot that stores each, by the shares of its key."""
FindContent = Callable[[pl.DataFrame], pl.Series]
"""Rows → a number of each, the same wherever it is made."""

_CONTENT_SEED, _SHARE_SEED = 302, 303


def send_joined(
    rows: pl.DataFrame, routes: Routes, spec: JoinSpec, number: int, find_storage: FindStorage
) -> tuple[pl.DataFrame, NDArray[np.int32]]:
    """Return rows of an input, once for each slot that gets them, and those slots."""
    if isinstance(routes.base, DrawnRoute):
        partners = _hash_partners(rows, spec, number) if spec.near else None
        dealt = routes.base.places_of(number, *_hashes_and_draws(rows), partners)
        sent = rows[dealt.rows]
        return sent if dealt.uses is None else sent.with_columns(pl.Series(USE, dealt.uses)), dealt.slots
    is_copied = find_copied(routes, spec, number, rows.get_column(HASH).to_numpy())
    if not (routes.may_split or spec.near) or not is_copied.any():
        return rows, find_storage(rows)
    copies = rows if is_copied.all() else rows.filter(pl.Series(is_copied))
    places, slots = _find_partners_slots(routes, spec, number, copies, keys_of(routes, copies, spec.keys))
    copies = copies if len(places) == copies.height else copies[places]
    if is_copied.all():
        return copies, slots
    shared = rows.filter(pl.Series(~is_copied))
    return pl.concat([shared, copies]), np.concatenate((find_storage(shared), slots))


def find_copied(routes: Routes, spec: JoinSpec, number: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Say of each row of an input whether all slots get it that may have partners of it."""
    is_copied = np.full(len(hashes), number == spec.copied)
    if routes.swapped and spec.swaps_sides:
        rows, _ = find_keys(hashes, np.asarray(routes.swapped, np.uint64))
        is_copied[rows] ^= True
    return is_copied


def leaving_join(
    old: Routes, new: Routes, spec: JoinSpec, slot: int, find_content: FindContent
) -> Callable[[pl.DataFrame], Leaving]:
    """Return the function that says where rows of a join belong under new routes."""

    def leave(rows: pl.DataFrame) -> Leaving:
        was, is_now = (_find_copied_state(routes, spec, rows) for routes in (old, new))
        # Each part of a key has some of its rows, and all that has rows has its clocks.
        is_clock = is_clock_of_key(rows)
        was, is_now = was & ~is_clock, is_now | is_clock
        kinds = (
            (~was & ~is_now, _leave_shared),
            (was & is_now, _leave_copies),
            (~was & is_now, _leave_to_be_copied),
            (was & ~is_now, _leave_to_be_shared),
        )
        keys = keys_of(new if new.needs_values else old, rows, spec.keys)
        parts = []
        for chosen, leave_kind in kinds:
            places = np.flatnonzero(chosen)
            if len(places):
                some = rows if len(places) == rows.height else rows[places]
                change = _Change(old, new, spec, keys.take(places), slot, some, find_content)
                parts.append((places, leave_kind(change)))
        if len(parts) == 1:
            return parts[0][1]
        stays = np.zeros(rows.height, np.bool_)
        for places, part in parts:
            stays[places] = part.stays
        return Leaving(
            stays,
            np.concatenate([np.empty(0, np.int64), *(places[part.rows] for places, part in parts)]),
            np.concatenate([np.empty(0, np.int32), *(part.slots for _, part in parts)]),
        )

    return leave


def draw_for_joins(rows: pl.DataFrame, first: int, seed: int) -> pl.DataFrame:
    """Return rows with a number drawn for each; ``first`` is how many rows of the seed were drawn for before."""
    return rows.with_columns(pl.Series(DRAW, draw_rows(rows.height, first, seed)))


def drop_joined_copies(rows: pl.DataFrame, phases: PhasedRoutes, spec: JoinSpec, slot: int) -> pl.DataFrame:
    """Return the rows of a slot without those that another slot has, too, and that count there."""
    counts = _count_here(rows, phases.routes, spec, slot)
    if phases.earlier is not None:
        before = rows.get_column(AT).to_numpy() < phases.earlier.switch_us
        counts = np.where(before, _count_here(rows, phases.earlier.routes, spec, slot), counts)
    return rows.filter(pl.Series(counts))


def place_joined(rows: pl.DataFrame, routes: Routes, spec: JoinSpec) -> tuple[pl.DataFrame, NDArray[np.int32]]:
    """Return state rows, once for each slot that has them, and those slots."""
    keys = keys_of(routes, rows, spec.keys)
    if spec.draws and DRAW not in rows.columns:
        rows = draw_for_joins(rows, 0, 0)
    places, slots = _find_storage(routes, spec, rows, keys)
    if isinstance(routes.base, DrawnRoute):
        return rows[places], slots
    is_copied = (_find_copied_state(routes, spec, rows) | is_clock_of_key(rows))[places]
    # All on the first slot: what became of a row must be where it is.
    chosen = is_copied | (slots == pick_first_slots((places, slots), rows.height)[places])
    return rows[places[chosen]], slots[chosen]


# -- inside ----------------------------------------------------------------------------------------------------------


class _Change:
    """Rows of one kind that a slot has, and the routes before and after."""

    def __init__(
        self,
        old: Routes,
        new: Routes,
        spec: JoinSpec,
        keys: KeyBatch,
        slot: int,
        rows: pl.DataFrame,
        find_content: FindContent,
    ) -> None:
        self.old = old
        self.new = new
        self.spec = spec
        self.keys = keys
        self.slot = slot
        self.rows, self.slots = _find_storage(new, spec, rows, keys)
        """Where the rows will or may be: (row, slot)."""
        self.old_rows, self.old_slots = _find_storage(old, spec, rows, keys)
        self.most_slots = max(old.slots, new.slots)
        self.is_first = pick_first_slots((self.old_rows, self.old_slots), len(keys)) == slot
        """Whether this is the first slot so far of those where the row may be."""
        self.state = rows
        self.find_content = find_content

    @property
    def lacks(self) -> NDArray[np.bool_]:
        """Whether a place where a row will be is none where it was."""
        pairs, old_pairs = (
            rows * self.most_slots + slots for rows, slots in ((self.rows, self.slots), (self.old_rows, self.old_slots))
        )
        return ~np.isin(pairs, old_pairs)

    @property
    def stays(self) -> NDArray[np.bool_]:
        """Whether this slot will be one of the row's."""
        stays = np.zeros(len(self.keys), np.bool_)
        stays[self.rows[self.slots == self.slot]] = True
        return stays


def _count_here(rows: pl.DataFrame, routes: Routes, spec: JoinSpec, slot: int) -> NDArray[np.bool_]:
    """Say of each row whether it counts on this slot: a copy on the first slot of its key, any other where it is."""
    if slot >= routes.slots:
        return np.zeros(rows.height, np.bool_)
    keys = keys_of(routes, rows, spec.keys)
    is_first: NDArray[np.bool_] = pick_first_slots(_find_storage(routes, spec, rows, keys), rows.height) == slot
    if isinstance(routes.base, DrawnRoute):
        return is_first
    is_copied = _find_copied_state(routes, spec, rows)
    return np.where(is_copied, is_first, find_new_slots(routes, keys, slot) == slot)


def _find_copied_state(routes: Routes, spec: JoinSpec, rows: pl.DataFrame) -> NDArray[np.bool_]:
    """Say of each row of the state whether all slots where it may be have it."""
    if isinstance(routes.base, DrawnRoute):
        return np.ones(rows.height, np.bool_)
    hashes = rows.get_column(HASH).to_numpy()
    # What became of a row is known to the slot where it was seen, copied or not.
    copied = [find_copied(routes, spec, number, hashes) & is_row_of_input(rows, number) for number in (LEFT, RIGHT)]
    return copied[LEFT] | copied[RIGHT]


def _find_storage(routes: Routes, spec: JoinSpec, rows: pl.DataFrame, keys: KeyBatch) -> RowSlots:
    """Return (row, slot) for every slot that has a row of the state, or that may have it where slots share its key."""
    if not (isinstance(routes.base, DrawnRoute) or spec.near):
        return routes.operation_slots(keys)
    found = []
    for number in (LEFT, RIGHT):
        chosen = np.flatnonzero(is_of_input(rows, number))
        own = rows[chosen]
        if isinstance(routes.base, DrawnRoute):
            places, slots = routes.base.places_of(number, *_hashes_and_draws(own)).stored
        elif number == spec.copied:
            places, slots = _find_partners_slots(routes, spec, number, own, keys.take(chosen))
        else:
            places, slots = routes.operation_slots(keys.take(chosen))
        found.append((chosen[places], slots))
    all_rows, all_slots = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # Each half is sorted by (row, slot), and no row is in both, so the order of slots survives a stable sort.
    order = np.argsort(all_rows, kind="stable")
    return all_rows[order], all_slots[order]


def _find_partners_slots(routes: Routes, spec: JoinSpec, number: int, rows: pl.DataFrame, keys: KeyBatch) -> RowSlots:
    """Return (row, slot) for every slot that may have partners of a row: those of its key, or of all keys near it."""
    if not spec.near:
        return routes.operation_slots(keys)
    numbers = rows.get_column(spec.keys[0]).cast(pl.Int64).to_numpy()
    least, most = spec.near_keys(number)
    # Also a row that can meet nobody has a slot.
    lows, highs = (pl.Series(add_to_integers(numbers, end)) for end in (least, max(least, most)))
    return routes.operation_slots_between(lows, highs)


def _hashes_and_draws(rows: pl.DataFrame) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    return rows.get_column(HASH).to_numpy(), rows.get_column(DRAW).to_numpy()


def _hash_partners(rows: pl.DataFrame, spec: JoinSpec, number: int) -> NDArray[np.uint64]:
    """Return the hashes of all keys that partners of each row may have, a column each."""
    numbers = rows.get_column(spec.keys[0]).cast(pl.Int64).to_numpy()
    least, most = spec.near_keys(number)
    hashes = [hash_numbers(add_to_integers(numbers, step)) for step in range(least, most + 1)]
    return np.stack(hashes, axis=1) if hashes else np.empty((len(numbers), 0), np.uint64)


def _leave_shared(change: _Change) -> Leaving:
    targets = find_new_slots(change.new, change.keys, change.slot)
    # Of other kinds than inner joins, it is also stored whom a row met, and that must be where the row is.
    if change.spec.grows_for_ever and change.spec.how == "inner" and change.old.splitter is None:
        _share_past(change, targets)
    return Leaving.to(targets, change.slot)


def _share_past(change: _Change, targets: NDArray[np.int32]) -> None:
    """Let slots that come to a split key have their share of the rows that are there already.

    Rows that are kept for a while only leave by themselves. Of those that never do, all would stay where a key was hot
    before it was split.
    """
    hashes = change.keys.hashes
    for key in np.intersect1d(change.new.table.split_keys(), hashes).tolist():
        was = {part.slot: part.share for part in change.old.table.owners(key)} or {change.slot: 1.0}
        shares = {part.slot: part.share for part in change.new.table.owners(key)}
        if was.keys() >= shares.keys() or not was.get(change.slot):
            continue
        kept = min(shares.get(change.slot, 0.0) / was[change.slot], 1.0)
        lacking = {slot: share - was.get(slot, 0.0) for slot, share in shares.items() if share > was.get(slot, 0.0)}
        rows = np.flatnonzero(hashes == np.uint64(key))
        content = change.find_content(change.state[rows]).to_numpy().astype(np.uint64)
        points = unit_interval(mix(content, _SHARE_SEED))
        goes = points >= kept
        ends = np.cumsum(list(lacking.values()))
        turns = np.searchsorted(ends, (points[goes] - kept) / (1 - kept) * ends[-1], side="right")
        targets[rows] = change.slot
        targets[rows[goes]] = np.array(list(lacking), np.int32)[np.minimum(turns, len(lacking) - 1)]


def _leave_copies(change: _Change) -> Leaving:
    """The first slot of a key sends copies to slots that come to it; those that a key leaves forget theirs."""
    chosen = change.lacks & change.is_first[change.rows]
    return Leaving(change.stays, change.rows[chosen], change.slots[chosen])


def _leave_to_be_copied(change: _Change) -> Leaving:
    elsewhere = change.slots != change.slot
    return Leaving(change.stays, change.rows[elsewhere], change.slots[elsewhere])


def _leave_to_be_shared(change: _Change) -> Leaving:
    """Of the slots with a copy, that one keeps a row which its content chooses, or the first one sends it there."""
    content = change.find_content(change.state).to_numpy().astype(np.uint64)
    counts = np.bincount(change.rows, minlength=len(change.keys))
    firsts = np.cumsum(counts) - counts
    turns = (unit_interval(mix(content, _CONTENT_SEED)) * counts).astype(np.int64)
    targets = change.slots[firsts + turns]
    chosen_lacks = change.lacks[firsts + turns]
    goes = np.flatnonzero(chosen_lacks & change.is_first)
    return Leaving(targets == change.slot, goes, targets[goes])
