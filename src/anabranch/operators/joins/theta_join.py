"""Joins without equal keys: pairs that fulfil a predicate, or all pairs, that are near in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from anabranch.compiled.hash_order import Hashes
from anabranch.compiled.partners import Partners, Places
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, OperatorTime, Prepared
from anabranch.model.joins import AT, LEFT, JoinSpec
from anabranch.operators.joins.equi_join import EquiJoin
from anabranch.operators.joins.number_order import order_bounds, order_numbers
from anabranch.operators.joins.rows import Piece


class ThetaJoin(EquiJoin):
    """Pairs of rows that fulfil a predicate.

    Rows lie in the order of what they are searched by: the numbers of a band if the predicate has one, else time if
    it is bounded. Without either, all pairs are tried.
    """

    def __init__(self, spec: JoinSpec) -> None:
        super().__init__(spec)
        self._is_near_in_time = spec.window is not None or spec.within is not None

    def prepare_input(self, number: int, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Do what other joins do, and give rows the hash that they are searched by."""
        prepared = super().prepare_input(number, frame, time)
        rows = prepared.frame
        if self.spec.band is not None:
            numbers = rows.select(self.spec.band.of_input(number)).to_series()
            if numbers.null_count():
                # A null is neither more nor less than anything.
                rows, numbers = rows.filter(numbers.is_not_null()), numbers.drop_nulls()
            hashes = order_numbers(numbers, whole=self.spec.band.whole)
        elif self._is_near_in_time:
            hashes = order_numbers(rows.get_column(AT), whole=True)
        else:
            hashes = np.zeros(rows.height, np.uint64)
        return replace(prepared, frame=rows.with_columns(pl.Series(HASH, hashes)))

    def _find_pairs(self, seeker: int, seeking: Piece, others: Piece) -> Iterator[tuple[Places, Places]]:
        first, last = self._search_bounds(seeker, seeking)
        firsts = np.searchsorted(others.hashes, first, side="left")
        ends = np.searchsorted(others.hashes, last, side="right")
        found = Partners(firsts.astype(np.int64), np.maximum(ends - firsts, 0).astype(np.int64))
        if self.spec.band is None or not self._is_near_in_time:
            yield from found.pairs()
            return
        bounds = self._bounds(seeker)
        for other_places, places in found.pairs():
            gaps_us = others.at_us[other_places] - seeking.at_us[places]
            near = (gaps_us >= bounds.least_us) & (gaps_us <= bounds.most_us)
            yield (other_places, places) if near.all() else (other_places[near], places[near])

    def _search_bounds(self, seeker: int, seeking: Piece) -> tuple[Hashes, Hashes]:
        """Return the first and the last hash that partners of each row may have."""
        band = self.spec.band
        if band is not None:
            numbers = seeking.rows.select(band.of_input(seeker)).to_series()
            least, most = band.least, band.most
            if seeker != LEFT:
                least, most = (None if end is None else -end for end in (most, least))
            return order_bounds(numbers, least, most, whole=band.whole, single=band.single)
        if not self._is_near_in_time:
            return order_bounds(seeking.rows.get_column(AT), None, None, whole=True)
        bounds = self._bounds(seeker)
        ends = (None if end in (BEGINNING_OF_TIME, END_OF_TIME) else end for end in (bounds.least_us, bounds.most_us))
        return order_bounds(seeking.rows.get_column(AT), *ends, whole=True)
