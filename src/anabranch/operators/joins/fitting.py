"""Which of some pairs of rows fulfil a join's predicate."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.partners import Places
from anabranch.model.joins import LEFT, JoinSpec
from anabranch.operators.joins.rows import Piece

_FITS = "__fits"


class Predicate:
    """A join's predicate, over columns of both inputs."""

    def __init__(self, spec: JoinSpec, predicate: pl.Expr) -> None:
        self._predicate = predicate
        names = set(predicate.meta.root_names())
        left, right = spec.inputs
        self._left = [name for name in (*spec.keys, *left.columns) if name in names]
        self._right = [name for name in right.columns if name in names]

    def find_fitting(
        self, seeker: int, seeking: Piece, places: Places, others: Piece, other_places: Places
    ) -> NDArray[np.bool_]:
        """Say of each pair whether it fulfils the predicate."""
        sides = ((seeking, places), (others, other_places))
        (left, left_places), (right, right_places) = sides if seeker == LEFT else sides[::-1]
        pairs = pl.DataFrame(
            [
                *left.rows.select(self._left)[left_places].get_columns(),
                *right.rows.select(self._right)[right_places].get_columns(),
            ]
        )
        fits = pairs.select(self._predicate.alias(_FITS)).to_series().fill_null(value=False)
        found: NDArray[np.bool_] = fits.to_numpy()
        return found


def make_predicate(spec: JoinSpec) -> Predicate | None:
    """Return the predicate of a join, if it has one."""
    return None if spec.predicate is None else Predicate(spec, spec.predicate)
