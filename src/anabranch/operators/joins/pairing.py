"""Pairs of a batch: new rows with stored ones, and with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from anabranch.compiled.partners import Places
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Standing
from anabranch.model.joins import LEFT, RIGHT, Interval, JoinSpec
from anabranch.operators.joins.fitting import make_predicate
from anabranch.operators.joins.results import Results
from anabranch.operators.joins.rows import Came, InputState, Piece
from anabranch.operators.joins.searching import PartnerSearch

PRESERVED: dict[str, tuple[int, ...]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
    "semi": (),
    "anti": (LEFT,),
}
"""Kind → the inputs whose rows are emitted when they met nobody."""

_ALL_TIMES = Interval(BEGINNING_OF_TIME, END_OF_TIME)
_AT_ONCE = Interval(0, 0)


class Pairing:
    """Finds who meets whom, as a search finds them, and notes of whom it matters."""

    def __init__(self, spec: JoinSpec, search: PartnerSearch, results: Results) -> None:
        self._how = spec.how
        self._search = search
        self._results = results
        self._interval = _AT_ONCE if spec.window is not None else spec.within or _ALL_TIMES
        self._predicate = make_predicate(spec)
        self.preserved = PRESERVED[spec.how]
        remembered = (LEFT,) if spec.how == "semi" else self.preserved
        self.remembers = tuple(number in remembered for number in (LEFT, RIGHT))
        """By input, whether it matters if a row ever met a partner."""

    def bounds(self, seeker: int) -> Interval:
        """Return how far the AT of a partner may be from that of a row of this input."""
        if seeker == LEFT:
            return self._interval
        return Interval(-self._interval.most_us, -self._interval.least_us)

    def pair(
        self, new: Sequence[Came], old: Sequence[Sequence[Piece]], standing: Standing | None
    ) -> list[pl.DataFrame]:
        """Return the results of the pairs of new rows with old ones, by input, and with each other."""
        results: list[pl.DataFrame] = []
        for seeker, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            seeking = new[seeker].probing
            if seeking is not None:
                for piece in old[other]:
                    results += self._match(seeker, seeking, piece, standing)
        # A pair of new rows may meet on several slots: that one emits it which stores the left row.
        left, right = new[LEFT].stored, new[RIGHT].probing
        if left is not None and right is not None:
            results += self._match(RIGHT, right, left, standing)
        return results

    def remember(
        self, states: Sequence[InputState], new: Sequence[Came], old: Sequence[Sequence[Piece]]
    ) -> list[pl.DataFrame]:
        """Write down which old rows met somebody; return the results of those that are emitted for it."""
        results: list[pl.DataFrame] = []
        for number, pieces in enumerate(old):
            first_met = states[number].remember(pieces) if self.remembers[number] else None
            if self._how == "semi" and number == LEFT:
                left = new[LEFT].stored
                met = [first_met, None if left is None else left.met_rows()]
                results += [self._results.once(rows) for rows in met if rows is not None]
        return results

    # -- inside ------------------------------------------------------------------------------------------------------

    def _match(self, seeker: int, seeking: Piece, others: Piece, standing: Standing | None) -> Iterator[pl.DataFrame]:
        """Yield the results of pairs, and note who met somebody."""
        for found in self._search.find_pairs(seeker, seeking, others, self.bounds(seeker)):
            other_places, places = self._keep_fitting(seeker, seeking, others, found)
            if standing is not None:
                other_places, places = _leave_to_others(standing, others, other_places, seeking, places)
            if self.remembers[seeker]:
                seeking.meet(places, others.at_us[other_places])
            if self.remembers[1 - seeker]:
                others.meet(other_places, seeking.at_us[places])
            if self._how not in ("semi", "anti"):
                pair = ((seeking, places), (others, other_places))
                (left, left_places), (right, right_places) = pair if seeker == LEFT else pair[::-1]
                yield self._results.pair(left, left_places, right, right_places)

    def _keep_fitting(
        self, seeker: int, seeking: Piece, others: Piece, found: tuple[Places, Places]
    ) -> tuple[Places, Places]:
        """Return those of some pairs that fulfil the predicate."""
        if self._predicate is None:
            return found
        other_places, places = found
        fits = self._predicate.find_fitting(seeker, seeking, places, others, other_places)
        return other_places[fits], places[fits]


def _leave_to_others(
    standing: Standing, others: Piece, other_places: Places, seeking: Piece, places: Places
) -> tuple[Places, Places]:
    """Return pairs without those that another slot finds: while a change of routes waits, rows may be on two."""
    earlier_us = np.minimum(others.at_us[other_places], seeking.at_us[places])
    lacks = standing.lacks(pl.Series(seeking.hashes[places]), pl.Series(earlier_us))
    if lacks is None:
        return other_places, places
    found = ~lacks.to_numpy()
    return other_places[found], places[found]
