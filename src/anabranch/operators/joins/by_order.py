"""Partners without equal keys: by the numbers of a band, by time, or all that there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from anabranch.compiled.hash_order import Hashes
from anabranch.compiled.partners import Partners, Places
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH
from anabranch.model.joins import AT, LEFT, Interval, JoinSpec
from anabranch.operators.joins.number_order import order_bounds, order_numbers
from anabranch.operators.joins.rows import Piece


class ByOrder:
    """Rows lie in the order of what they are searched by: the numbers of a band if the predicate has one, else time if
    it is bounded. Without either, all pairs are tried."""

    def __init__(self, spec: JoinSpec) -> None:
        self._band = spec.band
        self._is_near_in_time = spec.window is not None or spec.within is not None

    def arrange(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with their place in the order as the hash; those without one meet nobody, and are left out."""
        if self._band is not None:
            numbers = rows.select(self._band.of_input(number)).to_series()
            if numbers.null_count():
                # A null is neither more nor less than anything.
                rows, numbers = rows.filter(numbers.is_not_null()), numbers.drop_nulls()
            hashes = order_numbers(numbers, whole=self._band.whole)
        elif self._is_near_in_time:
            hashes = order_numbers(rows.get_column(AT), whole=True)
        else:
            hashes = np.zeros(rows.height, np.uint64)
        return rows.with_columns(pl.Series(HASH, hashes))

    def find_pairs(
        self, seeker: int, seeking: Piece, others: Piece, bounds: Interval
    ) -> Iterator[tuple[Places, Places]]:
        """Yield pairs that are in the band and near in time."""
        first, last = self._search_bounds(seeker, seeking, bounds)
        firsts = np.searchsorted(others.hashes, first, side="left")
        ends = np.searchsorted(others.hashes, last, side="right")
        found = Partners(firsts.astype(np.int64), np.maximum(ends - firsts, 0).astype(np.int64))
        if self._band is None or not self._is_near_in_time:
            yield from found.pairs()
            return
        for other_places, places in found.pairs():
            gaps_us = others.at_us[other_places] - seeking.at_us[places]
            near = (gaps_us >= bounds.least_us) & (gaps_us <= bounds.most_us)
            yield (other_places, places) if near.all() else (other_places[near], places[near])

    def _search_bounds(self, seeker: int, seeking: Piece, bounds: Interval) -> tuple[Hashes, Hashes]:
        """Return the first and the last hash that partners of each row may have."""
        band = self._band
        if band is not None:
            numbers = seeking.rows.select(band.of_input(seeker)).to_series()
            least, most = band.least, band.most
            if seeker != LEFT:
                least, most = (None if end is None else -end for end in (most, least))
            return order_bounds(numbers, least, most, whole=band.whole, single=band.single)
        if not self._is_near_in_time:
            return order_bounds(seeking.rows.get_column(AT), None, None, whole=True)
        ends = (None if end in (BEGINNING_OF_TIME, END_OF_TIME) else end for end in (bounds.least_us, bounds.most_us))
        return order_bounds(seeking.rows.get_column(AT), *ends, whole=True)
