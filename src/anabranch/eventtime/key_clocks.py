"""The watermarks of the keys that a batch touches, before and after its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of
from anabranch.model import BEGINNING_OF_TIME, END_OF_TIME, Clock, OperatorTime, SplitKeyClocks

CLOCK = "__clock"
"""Int64 microseconds: a key's own watermark, which never goes back."""
SPOKE = "__spoke"
"""Int64 microseconds of the wall clock: when a key last had a row."""
LATEST = "__latest"
"""Int64 microseconds: the latest event time of the rows behind a partial row."""
ROWS = "__rows"
"""Int64: how many rows are behind a partial row."""

PLACE = "__place"
"""Int64: where a row's key is among the keys of a batch."""

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class KeyClocks:
    """By key, in the order of PLACE, what ``OperatorTime`` says for all keys at once."""

    fired_us: Times
    """Windows that end at or before it were emitted by an earlier batch."""
    closed_us: Times
    """Rows whose windows ended at or before it are late."""
    fire_us: Times
    """Once the rows are in, windows that end at or before it are emitted."""
    spoke_us: Times
    """When a key last had a row, by the wall clock; of no meaning where watermarks are shared."""

    def after(self, last_end_us: Times) -> Times:
        """Return the watermarks after the batch; ``last_end_us`` has the ends of the last windows that were emitted.

        What was closed by force must not be opened again; what comes after it may be.
        """
        forced = self.fire_us == END_OF_TIME
        return np.where(forced, np.maximum(self.closed_us, last_end_us), self.fire_us)


@dataclass(frozen=True, slots=True, eq=False)
class PartTimes:
    """By key, in the order of PLACE, what ``SplitKeyClocks`` says of it; else the beginning of time."""

    before_us: Times
    clock_us: Times
    spoke_us: Times
    anew: NDArray[np.bool_]
    """Which were forgotten and come back: nothing is said of them."""

    def starting(self, anew: NDArray[np.bool_]) -> PartTimes:
        """Return the same of keys of which some start anew."""
        times = (self.before_us, self.clock_us, self.spoke_us)
        before_us, clock_us, spoke_us = (np.where(anew, BEGINNING_OF_TIME, us) for us in times)
        return PartTimes(before_us, clock_us, spoke_us, anew)


def align_split_keys(split_keys: SplitKeyClocks | None, keys: pl.DataFrame) -> PartTimes | None:
    """Return what is known of the time of keys that several slots share, or did until this batch."""
    if split_keys is None:
        return None
    places, rows = split_keys.find(keys)
    aligned = []
    for known_us in (split_keys.before_us, split_keys.clock_us, split_keys.spoke_us):
        times_us = np.full(keys.height, BEGINNING_OF_TIME, np.int64)
        times_us[places] = known_us[rows]
        aligned.append(times_us)
    before_us, clock_us, spoke_us = aligned
    return PartTimes(before_us, clock_us, spoke_us, np.zeros(keys.height, np.bool_))


def came_by_key(count: int, arrived: pl.DataFrame | None) -> NDArray[np.bool_]:
    """Say of each key whether rows of it came."""
    came = np.zeros(count, np.bool_)
    if arrived is not None:
        came[places_of(arrived)] = True
    return came


def places_of(rows: pl.DataFrame) -> NDArray[np.int64]:
    """Return where each row's key is among the keys of the batch."""
    places: NDArray[np.int64] = rows.get_column(PLACE).to_numpy()
    return places


def group_of(hashes: Hashes, groups: int) -> NDArray[np.int64]:
    """Return the group that each key shares a watermark with."""
    return (hashes % np.uint64(groups)).astype(np.int64)


def read_clocks(
    clock: Clock,
    time: OperatorTime,
    hashes: Hashes,
    known: pl.DataFrame | None,
    arrived: pl.DataFrame | None,
    parts: PartTimes | None = None,
) -> KeyClocks:
    """Return the clocks of the keys with these hashes; rows have their PLACE, known ones CLOCK and SPOKE if kept.

    ``parts``: what the driver knows of them, where slots share them.
    """
    if clock.per != "key":
        fired_us, closed_us = shared_times(clock, time, hashes)
        return KeyClocks(fired_us, closed_us, np.maximum(closed_us, time.fire_us), closed_us)
    fired_us = largest_by_key(len(hashes), known, CLOCK)
    if parts is not None:
        fired_us = np.maximum(fired_us, parts.clock_us)
    if time.forgotten is not None:
        # Who is not known may have been: what was emitted of it then must not be emitted again.
        start_us = time.forgotten.clocks_us[time.forgotten.groups_of(hashes)]
        fired_us = np.where(fired_us == BEGINNING_OF_TIME, start_us, fired_us)
    closed_us = np.maximum(fired_us, time.floor_us)
    # Where no row came, the beginning of time less a delay is below every clock.
    fire_us = np.maximum(closed_us, largest_by_key(len(hashes), arrived, LATEST) - clock.delay_us)
    spoke_us = np.full(len(hashes), time.now_us, np.int64)
    if clock.idle_us is not None:
        spoke_us = largest_by_key(len(hashes), known, SPOKE)
        if parts is not None:
            spoke_us = np.maximum(spoke_us, parts.spoke_us)
        if arrived is not None:
            spoke_us[places_of(arrived)] = time.now_us
        if time.since_us + clock.idle_us <= time.now_us:
            fire_us = np.where(spoke_us + clock.idle_us <= time.now_us, END_OF_TIME, fire_us)
    if time.drains:
        fire_us = np.full(len(hashes), END_OF_TIME, np.int64)
    return KeyClocks(fired_us, closed_us, fire_us, spoke_us)


def latest_by_group(arrived: pl.DataFrame, groups: int) -> dict[int, int]:
    """Return the latest event time of each group that rows came for."""
    latest = (
        arrived.select(pl.Series("group", group_of(hashes_of(arrived), groups)), LATEST)
        .group_by("group")
        .agg(pl.col(LATEST).max())
        .sort("group")
    )
    return dict(latest.iter_rows())


def shared_times(clock: Clock, time: OperatorTime, hashes: Hashes) -> tuple[Times, Times]:
    """Return by key the ``fired_us`` and ``closed_us`` of the watermark that it shares with others."""
    if time.shared is not None and clock.per == "group":
        groups = group_of(hashes, clock.groups)
        return time.shared.fired_us[groups], time.shared.closed_us[groups]
    return np.full(len(hashes), time.fired_us, np.int64), np.full(len(hashes), time.closed_us, np.int64)


def largest_by_key(count: int, rows: pl.DataFrame | None, column: str) -> Times:
    """Return the largest value of each key's rows; where there is none, the beginning of time."""
    largest = np.full(count, BEGINNING_OF_TIME, np.int64)
    if rows is not None:
        values = rows.select(PLACE, column).drop_nulls(column)
        np.maximum.at(largest, places_of(values), values.get_column(column).to_numpy())
    return largest
