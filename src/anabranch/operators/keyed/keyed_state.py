"""State of one row a key, with the key's own time and with when something of it is next due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among, unite_hashes
from anabranch.eventtime.forgetting import Forgetting
from anabranch.eventtime.key_clocks import CLOCK, SPOKE, KeyClocks, Times, places_of, shared_times
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, HASH, Clock, OperatorTime, SlotState
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.keyed.newest_rows import load_rows, newest_rows, store_rows, sweep_runs

DUE = "__due"
"""Int64 microseconds of event time: the watermark at which something of the key is next to be done."""
WAKE = "__wake"
"""Int64 microseconds of the wall clock: the same by that."""

_NEVER = 2**63 - 1
NOBODY: Hashes = np.empty(0, np.uint64)
"""Keys of no hash: where slots share no key."""


@dataclass(frozen=True, slots=True, eq=False)
class TouchedKeys:
    """The keys of a batch, one row each, in the order of PLACE, and what remains of them."""

    keys: pl.DataFrame
    """HASH and the key columns."""
    known: pl.DataFrame | None
    """Their rows in the state, at most one each, with PLACE."""
    clocks: KeyClocks

    def __len__(self) -> int:
        return self.keys.height

    def align(self, column: str, dtype: pl.DataType) -> pl.Series:
        """Return by key what the state has in a column; null for keys that are not in it."""
        known = self.known if self.known is not None and column in self.known.columns else None
        return align_by_key(None if known is None else known.get_column(column), self.known_places, len(self), dtype)

    @property
    def known_places(self) -> NDArray[np.int64]:
        """The places of the known rows."""
        return places_of(self.known) if self.known is not None else np.empty(0, np.int64)


def align_by_key(
    values: pl.Series | None, places: NDArray[np.int64], count: int, dtype: pl.DataType, old: pl.Series | None = None
) -> pl.Series:
    """Return by key the value that is given for its place, else the old one, else null."""
    nothing = pl.Series([None], dtype=dtype)
    pool = [nothing]
    index = np.zeros(count, np.int64)
    if old is not None:
        pool.append(old)
        index = np.arange(1, count + 1)
    if values is not None:
        index[places] = sum(map(len, pool)) + np.arange(len(places))
        pool.append(values)
    return pl.concat([part.alias("") for part in pool]).gather(pl.Series(index))


class KeyedState:
    """The state of an operator that keeps one row a key."""

    def __init__(
        self,
        keys: Sequence[str],
        clock: Clock,
        content: Mapping[str, pl.DataType | None],
        beside: Sequence[str] = (),
    ) -> None:
        """``content`` has the operator's own columns; a type of None is that of whatever is stored there.

        Columns ``beside`` it are stored, too, but say nothing of a key that has no content.
        """
        self.keys = tuple(keys)
        self.clock = clock
        self.content = dict(content)
        self._beside = tuple(beside)
        own_time = [CLOCK, *([SPOKE] if clock.idle_us is not None else [])] if clock.per == "key" else []
        self.columns = [HASH, *self.keys, *own_time, DUE, WAKE, *self.content, *self._beside]
        self.forgetting = Forgetting(clock, holds=lambda rows: _any_of(rows, [DUE, WAKE, *self.content]))

    def find_due(self, state: SlotState, time: OperatorTime) -> Hashes:
        """Return the keys that must be looked at even if no row comes for them; some may turn out not to be due."""
        found = []
        for rows in self._waiting(state):
            at_us = _filled(rows, DUE)
            if time.drains:
                due = at_us < _NEVER
            elif self.clock.per == "key":
                # A timer that was set while all was closed by force may be due by a clock that stood still since.
                due = at_us <= np.maximum(rows.get_column(CLOCK).fill_null(time.floor_us).to_numpy(), time.floor_us)
                if time.looks_for_idle(self.clock) and self.clock.idle_us is not None:
                    due |= (at_us < _NEVER) & (rows.get_column(SPOKE).to_numpy() + self.clock.idle_us <= time.now_us)
            else:
                due = at_us <= self._passed_us(rows, time)
            due |= _filled(rows, WAKE) <= time.now_us
            found.append(hashes_of(rows)[due])
        return unite_hashes(found)

    def next_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when something is next due under a watermark, or a floor of watermarks, that rises between batches."""
        is_own = self.clock.per == "key"
        if time.drains or (is_own and self.clock.behind_us is None):
            return None
        dues = []
        for rows in self._waiting(state):
            at_us = _filled(rows, DUE)
            # What is not after the watermark has been done, and is superseded by a newer run.
            passed_us = time.floor_us if is_own else self._passed_us(rows, time)
            at_us = at_us[(at_us > passed_us) & (at_us < _NEVER)]
            dues += [int(at_us.min())] if at_us.size else []
        return min(dues, default=None)

    def wake_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when, by the wall clock, a batch must run even if nothing comes."""
        wakes = []
        for rows in self._waiting(state):
            at_us = _filled(rows, WAKE)
            at_us = at_us[(at_us > time.now_us) & (at_us < _NEVER)]
            wakes += [int(at_us.min())] if at_us.size else []
            if self.clock.per == "key" and self.clock.idle_us is not None:
                wakes += self._silent_us(rows, self.clock.idle_us, time)
        forget_us = self.forgetting.wake_us(state.live(), time)
        return min([*wakes, *([] if forget_us is None else [forget_us])], default=None)

    def write(
        self,
        state: SlotState,
        touched: TouchedKeys,
        content: Mapping[str, pl.Series],
        due_us: pl.Series,
        wake_us: pl.Series,
        clock_us: Times,
        changed: NDArray[np.bool_],
        time: OperatorTime,
    ) -> pl.DataFrame | None:
        """Write what remains of the keys that changed, and return it; all that is given is by key."""
        hashes = hashes_of(touched.keys)
        # All rows of a hash are written together: the newest run that has it speaks for all of them.
        chosen = is_among(hashes, hashes[changed])
        if not chosen.any():
            return None
        rows = touched.keys.with_columns(
            due_us.alias(DUE),
            wake_us.alias(WAKE),
            *(content[name].alias(name) for name in (*self.content, *self._beside)),
        )
        has_content = _any_of(rows, self.content)
        has_clock = np.zeros(len(hashes), np.bool_)
        if self.clock.per == "key":
            # A clock that the floor has passed says nothing by itself: the key starts from the floor again.
            has_clock = clock_us > time.floor_us
            own = pl.Series(CLOCK, clock_us).set(pl.Series(~(has_clock | has_content)), None)
            rows = rows.with_columns(own, pl.Series(SPOKE, touched.clocks.spoke_us))
        was_known = np.zeros(len(hashes), np.bool_)
        was_known[touched.known_places] = True
        written = rows.filter(pl.Series(chosen & (has_content | has_clock | was_known)))
        written = written.select(self.columns)
        store_rows(state, written, lambda merged: self._has_content(merged, time.floor_us), self._evolve)
        return written

    def load(self, state: SlotState, hashes: Hashes, time: OperatorTime) -> pl.DataFrame | None:
        """Return what is known of these keys (sorted, unique hashes), by hash; None if that is nothing."""
        rows = load_rows(state, hashes, self._evolve)
        return self.forgetting.leave_out(rows, time, lambda rows: self._is_dead(rows, time))

    def forget(
        self, state: SlotState, written: pl.DataFrame | None, time: OperatorTime, shared: Hashes = NOBODY
    ) -> dict[int, int]:
        """Forget who is silent for too long after a batch wrote this; return by group up to when rows are late."""
        return self.forgetting.settle(
            [] if written is None else [written],
            time,
            shared,
            lambda rows: self._is_dead(self._evolve(rows), time),
            partial(sweep_runs, state, evolve=self._evolve),
        )

    def stored(self, runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the newest row of every key that has something left."""
        rows = newest_rows([self._evolve(run) for run in runs])
        return rows.filter(self._has_content(rows))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return concatenate([self._evolve(rows) for rows in stored]).sort(HASH, maintain_order=True)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _waiting(self, state: SlotState) -> Iterator[pl.DataFrame]:
        """Yield the rows of every run that wait for something; those that a newer run has superseded are among them."""
        wanted = [name for name in (HASH, CLOCK, SPOKE, DUE, WAKE) if name in self.columns]
        for rows in state.live():
            waiting = rows.select(wanted).filter(pl.col(DUE).is_not_null() | pl.col(WAKE).is_not_null())
            if waiting.height:
                yield waiting

    def _passed_us(self, rows: pl.DataFrame, time: OperatorTime) -> Times:
        _, closed_us = shared_times(self.clock, time, hashes_of(rows))
        return np.maximum(closed_us, time.fire_us)

    def _silent_us(self, rows: pl.DataFrame, idle_us: int, time: OperatorTime) -> list[int]:
        """Return when the first of these keys will be found silent; nothing if none can be."""
        waiting = rows.filter(pl.col(DUE).is_not_null() & (pl.col(SPOKE) < END_OF_TIME))
        silent_us = waiting.get_column(SPOKE).to_numpy() + idle_us
        if time.looks_for_idle(self.clock):
            # Those that were silent have been let go: what is left of them is superseded by a newer run.
            silent_us = silent_us[silent_us > time.now_us]
        if not silent_us.size:
            return []
        return [max(int(silent_us.min()), time.next_idle_look_us(idle_us))]

    def _has_content(self, rows: pl.DataFrame, floor_us: int = BEGINNING_OF_TIME) -> pl.Series:
        """Say of each row whether it is more than a tombstone, or than a clock that the floor has passed."""
        has_content = pl.Series(_any_of(rows, self.content))
        if self.clock.per != "key":
            return has_content
        return has_content | (rows.get_column(CLOCK) > floor_us).fill_null(False)

    def _is_dead(self, rows: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        return ~self._has_content(rows, time.floor_us).to_numpy()

    def _evolve(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows as if they had been written with today's columns: fields that were added since are null."""
        missing = {name: self.content[name] for name in self.content if name not in rows.columns}
        if not missing:
            return rows
        added = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in missing.items()]
        return rows.with_columns(added).select([name for name in self.columns if name in {*rows.columns, *missing}])


def _filled(rows: pl.DataFrame, column: str) -> Times:
    at_us: Times = rows.get_column(column).fill_null(_NEVER).to_numpy()
    return at_us


def _any_of(rows: pl.DataFrame, columns: Iterable[str]) -> NDArray[np.bool_]:
    """Say of each row whether one of the columns is not null."""
    found = np.zeros(rows.height, np.bool_)
    for column in columns:
        found |= rows.get_column(column).is_not_null().to_numpy()
    return found
