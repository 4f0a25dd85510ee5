"""Partners by their keys: equal ones, or integers near each other, few enough to ask for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from anabranch.compiled.key_hashes import add_to_integers, hash_numbers
from anabranch.compiled.partners import Places, find_partners
from anabranch.model.joins import Interval, JoinSpec
from anabranch.operators.joins.rows import Piece, leave_strangers


class EqualKeys:
    """Rows lie by the hash of their keys, then by time, and so do those who seek them."""

    def __init__(self, spec: JoinSpec) -> None:
        self._keys = spec.keys

    def arrange(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Leave the hash to where rows are sent."""
        return rows

    def find_pairs(
        self, seeker: int, seeking: Piece, others: Piece, bounds: Interval
    ) -> Iterator[tuple[Places, Places]]:
        """Yield pairs with equal keys."""
        partners = find_partners(
            others.hashes, others.at_us, seeking.hashes, seeking.at_us, bounds.least_us, bounds.most_us
        )
        for found in partners.pairs():
            yield leave_strangers(*found, others, seeking, self._keys)


class NearKeys:
    """A row looks for partners under each key, an integer, that they may have."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec

    def arrange(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Leave the hash to where rows are sent."""
        return rows

    def find_pairs(
        self, seeker: int, seeking: Piece, others: Piece, bounds: Interval
    ) -> Iterator[tuple[Places, Places]]:
        """Yield pairs whose keys are in the band."""
        least, most = self._spec.near_keys(seeker)
        (key,) = self._spec.keys
        numbers, other_numbers = (piece.rows.get_column(key).cast(pl.Int64).to_numpy() for piece in (seeking, others))
        for step in range(least, most + 1):
            wanted = add_to_integers(numbers, step)
            hashes = hash_numbers(wanted)
            order = np.lexsort((seeking.at_us, hashes))
            partners = find_partners(
                others.hashes, others.at_us, hashes[order], seeking.at_us[order], bounds.least_us, bounds.most_us
            )
            for other_places, ordered in partners.pairs():
                places = order[ordered]
                # Different keys may have the same hash, and above the largest number there is none.
                same = (other_numbers[other_places] == wanted[places]) & (wanted[places] - numbers[places] == step)
                yield (other_places, places) if same.all() else (other_places[same], places[same])
