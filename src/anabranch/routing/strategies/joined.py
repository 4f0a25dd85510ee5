"""Strategies for joins only: they place rows, not keys, so that skew cannot matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anabranch.routing.bases.drawn import BipartiteRoute, GridRoute
from anabranch.routing.keys import KeySample
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.by_name import check_option, strategy


class _PlacesRows:
    splits_keys: ClassVar[bool] = True
    looks_at_keys: ClassVar[bool] = False
    places_rows: ClassVar[bool] = True


@strategy("grid")
@dataclass(frozen=True, slots=True)
class Grid(_PlacesRows):
    """A grid of slots: a left row goes to a row of it, a right one to a column, whatever their keys are."""

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return _keep_shape(GridRoute.over(current.slots), current)


@strategy("matrix")
@dataclass(frozen=True, slots=True)
class Matrix(_PlacesRows):
    """The grid of *Dynamic*: rows and columns are powers of two, and slots beyond them stay idle."""

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return _keep_shape(GridRoute.over(current.slots, doubles=True), current)


@strategy("bi")
@dataclass(frozen=True, slots=True)
class Bipartite(_PlacesRows):
    """Half of the slots store left rows, half right ones; a row is stored on one, and sent to all of the other half.

    With ``groups``, each half is divided by the hash of the key, and a row is sent to its group only.
    """

    groups: int = 1

    def __post_init__(self) -> None:
        check_option("groups", self.groups, int)

    def decide(self, sample: KeySample, current: Routes, rng: np.random.Generator) -> Routes:
        return Routes(BipartiteRoute(current.slots, self.groups))


@strategy("bi6")
@dataclass(frozen=True, slots=True)
class BipartiteInSix(Bipartite):
    """The same with six groups a half, or as many as there are slots for."""

    groups: int = 6


def _keep_shape(grid: GridRoute, current: Routes) -> Routes:
    """Return the routes of a grid; one that is there already has the shape that suits what came so far."""
    is_there = isinstance(current.base, GridRoute) and current.base.doubles == grid.doubles
    return current if is_there else Routes(grid)
