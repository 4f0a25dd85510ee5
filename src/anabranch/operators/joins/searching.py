"""How rows of a join find those of the other input that may be their partners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import polars as pl

from anabranch.compiled.partners import Places
from anabranch.model.joins import Interval
from anabranch.operators.joins.rows import Piece


class PartnerSearch(Protocol):
    """Finds the pairs that are near in time and may fit."""

    def arrange(self, number: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Return new rows of an input with the HASH that they lie by, unless that is the one of their keys."""
        ...

    def find_pairs(
        self, seeker: int, seeking: Piece, others: Piece, bounds: Interval
    ) -> Iterator[tuple[Places, Places]]:
        """Yield pairs as places of partners and of those who seek them; ``bounds`` are of the partner's AT less a
        seeker's."""
        ...
