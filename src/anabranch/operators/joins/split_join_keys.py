"""Keys of a join that several slots share, and that have their own time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes
from anabranch.eventtime.key_clocks import CLOCK, SPOKE, Times, align_split_keys, largest_by_key
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, Met, OperatorTime, RunRef, SlotState, SplitKeyClocks
from anabranch.model.columns import SECTION
from anabranch.model.joins import CLOCKS_SECTION, LEFT, RIGHT, JoinSpec
from anabranch.model.times import INPUT_CLOCKS, INPUT_SPOKES
from anabranch.operators.joins.alone import choose_alone, mark_copies
from anabranch.operators.joins.key_times import LAST, JoinClocks, JoinTimes, find_places, tell_times
from anabranch.operators.joins.results import Results
from anabranch.operators.keyed.known_keys import place_keys

LATEST = ("__left_latest", "__right_latest")
"""Int64 microseconds: the latest event time of each input that came to a part."""
OVER = "__over"
"""Int64 microseconds: when a row that met nobody on a part is over; null in the row that says what came."""


class SplitJoinKeys:
    """The parts of keys that slots share, and their meeting.

    A part has some rows of one input, and all of the other. It knows the time that the key had when the batch began,
    finds pairs and late rows by it, and tells the meeting what came, and which rows met nobody here and may be over
    now. There the time of the key shows, and who is over. The driver learns it, and the parts in the next batch.
    """

    def __init__(
        self,
        spec: JoinSpec,
        results: Results,
        clocks: JoinClocks,
        drop_over: Callable[[list[pl.DataFrame]], pl.DataFrame],
    ) -> None:
        """``drop_over`` returns state without what the clocks in it have passed."""
        self._spec = spec
        self._results = results
        self._clocks = clocks
        self._drop_over = drop_over

    # -- a part ----------------------------------------------------------------------------------------------------

    def latest_end_us(self, times: JoinTimes, *, drains: bool) -> Times:
        """Return the time that each key cannot be beyond when the batch is over.

        All of one input's rows are on every part, and the slower input counts, unless the other is silent.
        """
        copied = self._spec.copied
        if drains:
            return np.full(len(times), END_OF_TIME, np.int64)
        return np.where(times.is_silent[copied], END_OF_TIME, np.maximum(times.closed_us, times.input_us[copied]))

    def tell(self, times: JoinTimes, chosen: NDArray[np.bool_], last_us: Times) -> pl.DataFrame:
        """Return what came to parts of the chosen keys."""
        came = [pl.Series(name, us) for name, us in zip(LATEST, times.latest_us, strict=True)]
        last = pl.Series(LAST, last_us)
        rows = times.keys.with_columns(*came, last, pl.lit(None, pl.Int64).alias(OVER))
        return rows.filter(pl.Series(chosen))

    def tell_alone(self, results: pl.DataFrame, rows: pl.DataFrame, over_us: Times, slots: pl.Series) -> pl.DataFrame:
        """Return results of rows that met nobody here, of which so many slots have one."""
        return mark_copies(results, rows, slots).with_columns(pl.Series(OVER, over_us))

    # -- the meeting -----------------------------------------------------------------------------------------------

    def meet_in_time(self, shared: list[pl.DataFrame], time: OperatorTime) -> Met:
        """Find how far keys are by what all parts were told, and who is over by that and met nobody."""
        told = pl.concat(shared, how="diagonal")
        came, alone = told.filter(pl.col(OVER).is_null()), told.filter(pl.col(OVER).is_not_null())
        names = [HASH, *self._spec.keys]
        keys, _, placed = place_keys(self._spec.keys, None, came.select(*names, *LATEST, LAST))
        latest_us = tuple(largest_by_key(keys.height, placed, name) for name in LATEST)
        last_us = largest_by_key(keys.height, placed, LAST)
        times = tell_times(self._spec, time, keys, None, (latest_us[LEFT], latest_us[RIGHT]), last_us)
        after_us = times.after_us
        if not alone.height:
            return Met(pl.DataFrame(), self._report(times, after_us))
        is_over = alone.get_column(OVER).to_numpy() <= after_us[find_places(keys, alone)]
        emitted = choose_alone(alone if time.drains else alone.filter(pl.Series(is_over)))
        if time.drains:
            after_us = after_us.copy()
            np.maximum.at(after_us, find_places(keys, emitted), emitted.get_column(OVER).to_numpy())
        return Met(emitted.select(list(self._results.schema)), self._report(times, after_us))

    def _report(self, times: JoinTimes, after_us: Times) -> SplitKeyClocks:
        return SplitKeyClocks(
            times.keys,
            times.closed_us,
            after_us,
            np.maximum(*times.spoke_us),
            self._inputs([pl.Series(us) for us in (*times.input_us, *times.spoke_us)]),
        )

    def _inputs(self, times: Sequence[pl.Series]) -> pl.DataFrame:
        named = zip((*INPUT_CLOCKS, *INPUT_SPOKES), times, strict=True)
        found = pl.DataFrame([series.alias(name) for name, series in named])
        return found if self._spec.clock.idle_us is not None else found.select(INPUT_CLOCKS)

    # -- splitting and merging -------------------------------------------------------------------------------------

    def absorb_parts(self, handed: Sequence[RunRef], state: SlotState, time: OperatorTime) -> None:
        """Add what other slots kept; clocks of parts become one when the state is opened."""
        state.adopt(handed)

    def clocks_of(self, state: SlotState, hashes: NDArray[np.uint64], time: OperatorTime) -> SplitKeyClocks | None:
        """Return the times of keys that are about to be split."""
        rows = self._clocks.load(state.section(CLOCKS_SECTION), hashes, time)
        if rows is None:
            return None
        keys, rows, _ = place_keys(self._spec.keys, rows, None)
        assert rows is not None
        clock_us = largest_by_key(keys.height, rows, CLOCK)
        idle = self._spec.clock.idle_us is not None
        spoke_us = largest_by_key(keys.height, rows, SPOKE) if idle else np.full(keys.height, BEGINNING_OF_TIME)
        names = (*INPUT_CLOCKS, *(INPUT_SPOKES if idle else ()))
        inputs = pl.DataFrame([pl.Series(name, largest_by_key(keys.height, rows, name)) for name in names])
        return SplitKeyClocks(keys, clock_us, clock_us, spoke_us, inputs)

    def settle(self, stored: pl.DataFrame, clocks: SplitKeyClocks) -> pl.DataFrame:
        """Return state with what the last meeting did to it."""
        is_clock = pl.col(SECTION) == CLOCKS_SECTION
        of_keys, others = stored.filter(is_clock), stored.filter(~is_clock)
        parts = align_split_keys(clocks, of_keys.select(HASH, *self._spec.keys))
        assert parts is not None
        raised = pl.max_horizontal(pl.col(CLOCK), pl.Series(parts.clock_us))
        of_keys = of_keys.with_columns(raised.alias(CLOCK))
        for name in () if clocks.inputs is None else clocks.inputs.columns:
            told = of_keys.select(HASH, *self._spec.keys).join(
                clocks.keys.with_columns(clocks.inputs.get_column(name)),  # type: ignore[union-attr]
                on=[HASH, *self._spec.keys],
                how="left",
                maintain_order="left",
            )
            of_keys = of_keys.with_columns(pl.max_horizontal(pl.col(name), told.get_column(name)).alias(name))
        return self._drop_over([of_keys, others])


def split_now(listed: pl.Series | None, time: OperatorTime) -> tuple[Hashes, Hashes]:
    """Return the hashes of keys that slots share, and those of keys that they share or did until now, both sorted."""
    split: Hashes = np.empty(0, np.uint64) if listed is None else listed.to_numpy()
    lately = np.empty(0, np.uint64) if time.split_keys is None else time.split_keys.hashes()
    return split, np.union1d(split, lately)
