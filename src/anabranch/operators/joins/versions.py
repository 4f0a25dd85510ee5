"""The right input of an as-of join: versions of keys, and which of them is the newest at a row's time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.partners import Places, find_partners
from anabranch.model import BATCH, BEGINNING_OF_TIME, HASH, ORDER, WINDOW, SlotState
from anabranch.model.joins import AT, Interval
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.compaction import compact
from anabranch.operators.joins.rows import Layout, Piece

NOWHERE = -1
"""The number of the piece that has the version of a row that none is for."""


class Versions:
    """What a slot has of the right input: of a key, the newest version behind the watermark, and all ahead of it."""

    def __init__(self, layout: Layout, state: SlotState) -> None:
        self._layout = layout
        self._state = state
        self._columns = [HASH, *layout.keys, AT, BATCH, ORDER, *layout.source.columns]

    def gather(self, received: Sequence[pl.DataFrame], batch: int) -> Piece | None:
        """Return versions that came, by hash, time, and place in the batch; None if there are none."""
        some = [frame for frame in received if frame.height]
        if not some:
            return None
        rows = concatenate(some).with_columns(pl.lit(batch, pl.Int64).alias(BATCH))
        return _order_versions(rows.select(self._columns))

    def pieces(self, earliest_us: int, latest_us: int) -> list[Piece]:
        """Return the stored versions whose time may be in [earliest, latest], run by run."""
        found = []
        for run in self._state.live():
            rows = run if self._layout.hold_us is None else self._cut(run, earliest_us, latest_us)
            if rows.height:
                # Each segment is in order.
                is_sorted = WINDOW not in rows.columns or rows.get_column(WINDOW)[0] == rows.get_column(WINDOW)[-1]
                found.append(Piece(rows.select(self._columns), is_sorted=is_sorted))
        return found

    def keep(self, new: Piece | None, passed_us: int) -> None:
        """Write what came, without what no row can ask for any more, and forget what is too old."""
        layout = self._layout
        if new is not None:
            rows = drop_superseded(new.rows, layout.keys, passed_us)
            if layout.hold_us is not None:
                rows = rows.filter(pl.col(AT) + layout.hold_us > passed_us)
            self._state.append(layout.cut(rows))
        compact(self._state, lambda runs: unite_versions(layout, runs, passed_us))
        if layout.hold_us is not None:
            self._state.drop_due(layout.first_needed(passed_us))

    def _cut(self, run: pl.DataFrame, earliest_us: int, latest_us: int) -> pl.DataFrame:
        """Return the segments of a run that have such times."""
        windows = run.get_column(WINDOW).to_numpy()
        start = np.searchsorted(windows, self._layout.segment_at(earliest_us), "left")
        end = np.searchsorted(windows, self._layout.segment_at(latest_us), "right")
        return run[int(start) : int(end)]


def find_newest(
    seeking: Piece, pieces: Sequence[Piece], within: Interval, keys: Sequence[str]
) -> tuple[Places, Places]:
    """Return for each row that seeks the piece with its newest version, or NOWHERE, and where in that it is.

    Of versions with equal times, the one that came last is the newest.
    """
    count = len(seeking)
    chosen, chosen_places = np.full(count, NOWHERE, np.int64), np.zeros(count, np.int64)
    newest_us = np.full(count, BEGINNING_OF_TIME, np.int64)
    for number, piece in enumerate(pieces):
        rows, places = _find_last(seeking, piece, within, keys)
        at_us, so_far_us = piece.at_us[places], newest_us[rows]
        is_newer = at_us > so_far_us
        ties = np.flatnonzero(at_us == so_far_us)
        if ties.size:
            tied = rows[ties]
            is_newer[ties] = _came_later(piece, places[ties], pieces, chosen[tied], chosen_places[tied])
        newer = rows[is_newer]
        chosen[newer], chosen_places[newer], newest_us[newer] = number, places[is_newer], at_us[is_newer]
    return chosen, chosen_places


def unite_pieces(pieces: Sequence[Piece]) -> Piece:
    """Return the versions of several pieces as one, which is searched once."""
    return _order_versions(concatenate([piece.rows for piece in pieces]))


def unite_versions(layout: Layout, runs: Sequence[pl.DataFrame], passed_us: int) -> pl.DataFrame:
    """Return the versions of several runs as one, without those that no row can ask for any more."""
    return layout.cut(drop_superseded(_order_versions(concatenate(list(runs))).rows, layout.keys, passed_us))


def drop_superseded(rows: pl.DataFrame, keys: Sequence[str], passed_us: int) -> pl.DataFrame:
    """Return versions, sorted by hash and age, without those with a newer one that is behind the watermark itself."""
    if rows.height < 2:
        return rows
    # Only neighbours are compared: keys that share a hash by chance may hide a newer version, and keep an older one.
    is_gone = rows.get_column(AT).to_numpy()[1:] < passed_us
    for key in keys:
        values = rows.get_column(key)
        is_gone &= (values[:-1] == values[1:]).to_numpy()
    return rows.filter(~pl.Series(np.append(is_gone, False))) if is_gone.any() else rows


def _order_versions(rows: pl.DataFrame) -> Piece:
    """Return versions by hash, then time, then batch and place in it."""
    return Piece(rows.sort(BATCH, ORDER), is_sorted=False)


def _find_last(seeking: Piece, piece: Piece, within: Interval, keys: Sequence[str]) -> tuple[Places, Places]:
    """Return the seeking rows that have a version in a piece, and the places of the newest there."""
    partners = find_partners(piece.hashes, piece.at_us, seeking.hashes, seeking.at_us, within.least_us, within.most_us)
    found = np.flatnonzero(partners.counts > 0)
    last = partners.firsts[found] + partners.counts[found] - 1
    is_own = np.zeros(len(found), np.bool_)
    asked = np.arange(len(found))
    while asked.size:
        are_equal = _are_equal(seeking, found[asked], piece, last[asked], keys)
        is_own[asked[are_equal]] = True
        # Different keys may have the same hash: behind a stranger's version there may be one of the row's own.
        asked = asked[~are_equal]
        last[asked] -= 1
        asked = asked[last[asked] >= partners.firsts[found[asked]]]
    return found[is_own], last[is_own]


def _are_equal(
    some: Piece, places: Places, others: Piece, other_places: Places, keys: Sequence[str]
) -> NDArray[np.bool_]:
    """Say of pairs of rows whether their keys are equal; a null is equal to nothing."""
    own, other = some.take(keys, places), others.take(keys, other_places)
    equal = np.ones(len(places), np.bool_)
    for key in keys:
        equal &= (own[key] == other[key]).fill_null(value=False).to_numpy()
    return equal


def _came_later(
    piece: Piece, places: Places, others: Sequence[Piece], other_numbers: Places, other_places: Places
) -> NDArray[np.bool_]:
    """Say of versions in a piece whether they came later than those in other pieces, each given by number and place."""
    later = np.zeros(len(places), np.bool_)
    for number in np.unique(other_numbers).tolist():
        chosen = other_numbers == number
        own = piece.take([BATCH, ORDER], places[chosen])
        other = others[number].take([BATCH, ORDER], other_places[chosen])
        same_batch = own[BATCH] == other[BATCH]
        later[chosen] = ((own[BATCH] > other[BATCH]) | (same_batch & (own[ORDER] > other[ORDER]))).to_numpy()
    return later
