"""Joins by integer keys that are near each other, few enough to ask for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from anabranch.compiled.key_hashes import add_to_integers, hash_numbers
from anabranch.compiled.partners import Places, find_partners
from anabranch.operators.joins.equi_join import EquiJoin
from anabranch.operators.joins.rows import Piece


class NearJoin(EquiJoin):
    """Pairs of rows whose keys, integers, are in a band: a row looks for partners under each key that they may have."""

    def _find_pairs(self, seeker: int, seeking: Piece, others: Piece) -> Iterator[tuple[Places, Places]]:
        least, most = self.spec.near_keys(seeker)
        bounds = self._bounds(seeker)
        (key,) = self._keys
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
