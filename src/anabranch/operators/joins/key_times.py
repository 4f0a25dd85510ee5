"""The time of keys in a join whose inputs have watermarks per key: both inputs' clocks, and the slower of them.

An input's clock of a key is the key's latest row there, less the delay; an input that has not shown the key stands at
the beginning of time. The key's time is the smaller of both. It never goes back, and is never below the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, sort_by_hash
from anabranch.eventtime.forgetting import Forgetting
from anabranch.eventtime.key_clocks import CLOCK, KeyClocks, PartTimes, Times, largest_by_key, read_clocks
from anabranch.model import BEGINNING_OF_TIME, HASH, OperatorTime, SlotState, SplitKeyClocks
from anabranch.model.columns import SECTION
from anabranch.model.joins import AT, CLOCKS_SECTION, LEFT, RIGHT, JoinSpec
from anabranch.model.times import INPUT_CLOCKS, INPUT_SPOKES
from anabranch.operators.aggregates.partials import concatenate
from anabranch.operators.keyed.keyed_state import DUE, KeyedState, TouchedKeys
from anabranch.operators.keyed.known_keys import place_keys, touched_hashes
from anabranch.operators.keyed.newest_rows import load_rows
from anabranch.operators.keyed.single_rows import no_times

LAST = "__last"
"""Int64 microseconds: the time of its key at which the last row of it is over; null if all are."""

_ROW = "__row"
NOWHERE = -1
"""The place of a row whose key is not among those that are asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class JoinTimes:
    """By key of a batch, in the order of PLACE, what its time was and what the batch's rows make of it."""

    keys: pl.DataFrame
    """HASH and the key columns, by hash."""
    known: pl.DataFrame | None
    """Their clock rows in the state, with PLACE."""
    fired_us: Times
    """Rows that are over by it were emitted, if they had to be, by an earlier batch."""
    closed_us: Times
    """Rows that are older are late."""
    after_us: Times
    """The key's time when the rows are in."""
    input_us: tuple[Times, Times]
    """How far each input is then."""
    spoke_us: tuple[Times, Times]
    """When each of them last spoke, by the wall clock."""
    is_silent: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    last_us: Times
    """When the last row is over that was stored before; the beginning of time if none is left."""
    latest_us: tuple[Times, Times]
    """The latest event time that came, by input; the beginning of time where none did."""

    def __len__(self) -> int:
        return self.keys.height

    def places(self, rows: pl.DataFrame) -> NDArray[np.int64]:
        """Return where the key of each row is."""
        return find_places(self.keys, rows)


class JoinClocks:
    """The clocks of a join's keys, one row each in a section of the state, which moves with the rows of its key."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        self._clock = spec.clock
        spokes = INPUT_SPOKES if spec.clock.idle_us is not None else ()
        self._rows_of_keys = KeyedState(
            spec.keys, spec.clock, {LAST: pl.Int64()}, beside=[*INPUT_CLOCKS, *spokes, SECTION]
        )

    @property
    def columns(self) -> list[str]:
        """The columns of a run."""
        return self._rows_of_keys.columns

    def look(
        self, state: SlotState, received: Sequence[pl.DataFrame | None], time: OperatorTime, shared: Hashes
    ) -> JoinTimes | None:
        """Return the times of all keys that rows came for, and of those that something is due of without; None for
        none. Rows have event times as AT.

        Keys that slots share, or did until now, are always looked at (sorted hashes): what became of them shows where
        their parts met, and is heard in the next batch.
        """
        came = [rows for rows in received if rows is not None]
        arrived = concatenate([rows.select(HASH, *self._spec.keys) for rows in came]) if came else None
        hashes = touched_hashes(arrived, np.union1d(self._rows_of_keys.find_due(state, time), shared))
        known = self._rows_of_keys.load(state, hashes, time) if hashes.size else None
        if known is None and arrived is None:
            return None
        keys, known, _ = place_keys(self._spec.keys, known, arrived)
        latest_us = [np.full(keys.height, BEGINNING_OF_TIME, np.int64) for _ in received]
        for number, rows in enumerate(received):
            if rows is not None:
                np.maximum.at(latest_us[number], find_places(keys, rows), rows.get_column(AT).to_numpy())
        return tell_times(self._spec, time, keys, known, (latest_us[LEFT], latest_us[RIGHT]))

    def write(
        self, state: SlotState, times: JoinTimes, after_us: Times, due_us: Times, last_us: Times, time: OperatorTime
    ) -> pl.DataFrame | None:
        """Write how far keys are, and return it.

        ``due_us`` is when the first row that may have to be emitted is over, ``last_us`` when all are.
        """
        is_open = last_us > after_us
        due_us = np.minimum(due_us, last_us)
        spoke_us = np.maximum(*times.spoke_us)
        if self._clock.idle_us is not None:
            # As long as something waits, it matters when the next input falls silent.
            never = np.full(len(times), np.iinfo(np.int64).max)
            heard_us = [np.where(silent, never, us) for silent, us in zip(times.is_silent, times.spoke_us, strict=True)]
            first_us = np.minimum(*heard_us)
            spoke_us = np.where(is_open & (first_us < never), first_us, spoke_us)
        clocks = KeyClocks(times.fired_us, times.closed_us, after_us, spoke_us)
        content = {LAST: _where(is_open, last_us), SECTION: _section(len(times))}
        content |= dict(zip(INPUT_CLOCKS, map(pl.Series, times.input_us), strict=True))
        content |= dict(zip(INPUT_SPOKES, map(pl.Series, times.spoke_us), strict=True))
        return self._rows_of_keys.write(
            state,
            TouchedKeys(times.keys, times.known, clocks),
            content,
            _where(is_open, due_us),
            no_times(len(times)),
            after_us,
            np.ones(len(times), np.bool_),
            time,
        )

    def forget(
        self, state: SlotState, written: pl.DataFrame | None, time: OperatorTime, shared: Hashes
    ) -> dict[int, int] | None:
        """Forget who is silent for too long after a batch wrote this, but for keys that slots share (sorted hashes).

        Returns, if there are such, up to when rows are late for it, by group of keys.
        """
        return self._rows_of_keys.forget(state, written, time, shared) or None

    def load(self, state: SlotState, hashes: Hashes, time: OperatorTime) -> pl.DataFrame | None:
        """Return the clock rows of some keys (sorted, unique hashes) that are not forgotten; None if there are none."""
        rows = self._rows_of_keys.load(state, hashes, time) if hashes.size else None
        return None if rows is None or rows.is_empty() else rows

    def next_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when something is next due under a floor that rises between batches."""
        return self._rows_of_keys.next_due_us(state, time)

    def wake_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when, by the wall clock, somebody may have fallen silent."""
        return self._rows_of_keys.wake_us(state, time)

    def find_over(self, state: SlotState, rows: pl.DataFrame, hold_us: int) -> NDArray[np.bool_]:
        """Say of each stored row of an input whether the time of its key has passed it: nobody can meet it any more."""
        hashes: Hashes = np.unique(hashes_of(rows))
        return self.find_passed(load_rows(state, hashes) if hashes.size else None, rows, hold_us)

    def find_passed(self, clock_rows: pl.DataFrame | None, rows: pl.DataFrame, hold_us: int) -> NDArray[np.bool_]:
        """Do the same by clock rows, one a key; a key without one, or of which nothing is left, has passed its rows."""
        waiting = None if clock_rows is None else sort_by_hash(clock_rows.filter(pl.col(LAST).is_not_null()))
        if waiting is None or not waiting.height:
            return np.ones(rows.height, np.bool_)
        places = find_places(waiting.select(HASH, *self._spec.keys), rows)
        clock_us = waiting.get_column(CLOCK).to_numpy()[places]
        over: NDArray[np.bool_] = (places == NOWHERE) | (rows.get_column(AT).to_numpy() + hold_us <= clock_us)
        return over

    def stored(self, runs: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Return the newest clock row of every key in runs of this section; None if there are none."""
        return self._rows_of_keys.stored(list(runs)) if runs else None

    def unite(self, rows: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return clock rows, one a key."""
        united = concatenate(list(rows)).select(self.columns)
        keys = [HASH, *self._spec.keys]
        if united.select(keys).is_unique().all():
            return sort_by_hash(united)
        most = [name for name in self.columns if name not in (*keys, DUE)]
        merged = united.group_by(keys, maintain_order=True).agg(pl.col(DUE).min(), pl.col(most).max())
        return sort_by_hash(merged.select(self.columns))

    def take_in(self, state: SlotState, handed: Sequence[pl.DataFrame]) -> None:
        """Add clock rows that came from other slots, with the rows of their keys."""
        hashes: Hashes = np.unique(np.concatenate([hashes_of(rows) for rows in handed]))
        own = load_rows(state, hashes)
        state.append(self.unite([*([] if own is None else [own]), *handed]))


def tell_times(
    spec: JoinSpec,
    time: OperatorTime,
    keys: pl.DataFrame,
    known: pl.DataFrame | None,
    latest_us: tuple[Times, Times],
    last_us: Times | None = None,
) -> JoinTimes:
    """Return the time of keys, from their clock rows, what the driver knows, and the latest times that came.

    Where parts meet there are no clock rows: these said by when their last rows are over.
    """
    count = keys.height
    came = np.maximum(*latest_us) > BEGINNING_OF_TIME
    parts, known = Forgetting(spec.clock).recall_parts(keys, known, came, time)
    last_us = largest_by_key(count, known, LAST) if last_us is None else last_us
    clocks = read_clocks(spec.clock, time, hashes_of(keys), known, None, parts)
    input_us, spoke_us, is_silent = [], [], []
    idle_us = spec.clock.idle_us
    for number in (LEFT, RIGHT):
        came = latest_us[number] > BEGINNING_OF_TIME
        reached_us = np.where(came, latest_us[number] - spec.delays_us[number], BEGINNING_OF_TIME)
        known_us = _align(time.split_keys, keys, known, parts, INPUT_CLOCKS[number])
        input_us.append(np.maximum(known_us, reached_us))
        heard_us = np.full(count, time.now_us, np.int64)
        silent = np.zeros(count, np.bool_)
        if idle_us is not None:
            before_us = _align(time.split_keys, keys, known, parts, INPUT_SPOKES[number])
            # Who has not shown a key counts as silent so long after the key was first seen.
            heard_us = np.where(came | (before_us == BEGINNING_OF_TIME), time.now_us, before_us)
            if time.since_us + idle_us <= time.now_us:
                silent = heard_us + idle_us <= time.now_us
        spoke_us.append(heard_us)
        is_silent.append(silent)
    (left_us, right_us), (left_silent, right_silent) = input_us, is_silent
    slower_us = np.minimum(left_us, right_us)
    slower_us = np.where(left_silent & ~right_silent, right_us, slower_us)
    slower_us = np.where(right_silent & ~left_silent, left_us, slower_us)
    slower_us = np.where(left_silent & right_silent, last_us, slower_us)
    return JoinTimes(
        keys,
        known,
        clocks.fired_us,
        clocks.closed_us,
        np.maximum(clocks.closed_us, slower_us),
        (left_us, right_us),
        (spoke_us[LEFT], spoke_us[RIGHT]),
        (left_silent, right_silent),
        last_us,
        latest_us,
    )


def _align(
    split_keys: SplitKeyClocks | None,
    keys: pl.DataFrame,
    known: pl.DataFrame | None,
    parts: PartTimes | None,
    column: str,
) -> Times:
    """Return by key the later of what its clock row has in a column, and of what the driver knows."""
    times_us = largest_by_key(keys.height, known, column)
    if split_keys is not None and parts is not None and split_keys.inputs is not None:
        places, rows = split_keys.find(keys)
        told_us = split_keys.inputs.get_column(column).to_numpy()[rows]
        # Of one that starts anew, no input has said anything.
        told_us = np.where(parts.anew[places], BEGINNING_OF_TIME, told_us)
        times_us[places] = np.maximum(times_us[places], told_us)
    return times_us


def find_places(keys: pl.DataFrame, rows: pl.DataFrame) -> NDArray[np.int64]:
    """Return where each row's key is among keys, which are sorted by hash; NOWHERE if it is not there."""
    hashes = hashes_of(keys)
    places = np.minimum(np.searchsorted(hashes, hashes_of(rows)), max(keys.height - 1, 0))
    if not rows.height or not keys.height:
        return np.full(rows.height, NOWHERE, np.int64)
    columns = keys.columns
    found, wanted = keys[places], rows.select(columns)
    if all(found.get_column(name).equals(wanted.get_column(name)) for name in columns):
        return places.astype(np.int64)
    # A key that is not there, or two that have one hash.
    numbered = keys.with_row_index(_ROW).with_columns(pl.col(_ROW).cast(pl.Int64))
    joined = wanted.join(numbered, on=columns, how="left", maintain_order="left").get_column(_ROW)
    by_value: NDArray[np.int64] = joined.fill_null(NOWHERE).to_numpy()
    return by_value


def _where(chosen: NDArray[np.bool_], times_us: Times) -> pl.Series:
    return pl.Series(times_us, dtype=pl.Int64).set(pl.Series(~chosen), None)


def _section(count: int) -> pl.Series:
    return pl.Series([CLOCKS_SECTION], dtype=pl.Int8).new_from_index(0, count)
