"""Timers of all keys of a batch at once, as a frame."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime.key_clocks import PLACE, Times, places_of
from anabranch.eventtime.timers import NO_EVENT_TIME, TIMER_COLUMNS, TIMER_LIST
from anabranch.operators.keyed.keyed_state import align_by_key
from anabranch.operators.keyed.single_rows import KeyedRows
from anabranch.operators.processors.returned_frames import FrameError, find_places

_AT, _TAG, _DOMAIN, _CANCEL = "at", "tag", "domain", "cancel"
_SCHEMA: dict[str, pl.DataType] = {PLACE: pl.Int64(), _AT: pl.Int64(), _TAG: pl.String(), _DOMAIN: pl.String()}
_TIMER = [PLACE, _AT, _TAG, _DOMAIN]


class FrameTimers:
    """What is set, with the place of its key; each once."""

    def __init__(self, batch: KeyedRows, keys: tuple[str, ...]) -> None:
        self._batch = batch
        self._keys = keys
        self._stored = {name: batch.touched.align(name, TIMER_LIST) for name in TIMER_COLUMNS.values()}
        self._set = pl.concat([pl.DataFrame(schema=_SCHEMA), *map(self._unfold, TIMER_COLUMNS)])
        self._is_changed = False

    def last_us(self) -> Times:
        """Return by key the time of its last timer in event time, but no less than its watermark."""
        last_us = self._batch.touched.clocks.closed_us.copy()
        events = self._set.filter(pl.col(_DOMAIN) == "event")
        np.maximum.at(last_us, places_of(events), events.get_column(_AT).to_numpy())
        return last_us

    def take_due(self, limits_us: Times, now_us: int) -> pl.DataFrame:
        """Take out what is due: by (time, tag), key by key."""
        if self._set.is_empty():
            return self._set
        limit = pl.when(pl.col(_DOMAIN) == "event").then(pl.Series(limits_us[places_of(self._set)])).otherwise(now_us)
        is_due = self._set.select(pl.col(_AT) <= limit).to_series()
        due = self._set.filter(is_due).sort(_TIMER)
        if due.height:
            self._set = self._set.filter(~is_due)
            self._is_changed = True
        return due

    def as_users_know(self, timers: pl.DataFrame) -> pl.DataFrame:
        """Return timers with their keys."""
        keys = self._batch.touched.keys.select(self._keys)[places_of(timers)]
        return keys.hstack(timers.select(pl.col(_AT).cast(pl.Datetime("us")), _TAG, _DOMAIN))

    def set(self, given: pl.DataFrame | None) -> NDArray[np.int64]:
        """Set and take back what users ask for; return the places of the keys."""
        if given is None or given.is_empty():
            return np.empty(0, np.int64)
        timers = self._read(given)
        cancelled = timers.filter(_CANCEL)
        added = timers.filter(~pl.col(_CANCEL)).select(_TIMER)
        self._set = pl.concat([self._set, added]).unique(maintain_order=True)
        if cancelled.height:
            self._set = self._set.join(cancelled, on=_TIMER, how="anti", maintain_order="left")
        self._is_changed = True
        return places_of(timers)

    def columns(self) -> dict[str, pl.Series]:
        """Return what is set as it is stored, by key."""
        if not self._is_changed:
            return self._stored
        timer = pl.struct(_AT, _TAG).alias("timer")
        folded = {}
        for domain, name in TIMER_COLUMNS.items():
            of_domain = self._set.filter(pl.col(_DOMAIN) == domain).sort(PLACE, _AT, _TAG)
            lists = of_domain.select(PLACE, timer).group_by(PLACE, maintain_order=True).agg("timer")
            folded[name] = align_by_key(
                lists.get_column("timer"), places_of(lists), len(self._batch.touched), TIMER_LIST
            )
        return folded

    def _unfold(self, domain: str) -> pl.DataFrame:
        lists = self._stored[TIMER_COLUMNS[domain]]  # type: ignore[index]
        waiting = pl.DataFrame(
            [pl.int_range(len(lists), dtype=pl.Int64, eager=True).alias(PLACE), lists.alias("timer")]
        )
        timers = waiting.drop_nulls("timer").explode("timer").unnest("timer")
        return timers.with_columns(pl.lit(domain).alias(_DOMAIN)).select(_TIMER)

    def _read(self, given: pl.DataFrame) -> pl.DataFrame:
        missing = [name for name in (*self._keys, _AT) if name not in given.columns]
        if missing:
            msg = f"the timers have no column {', '.join(missing)}; they need the key columns and {_AT}"
            raise FrameError(msg)
        at = given.schema[_AT]
        if not isinstance(at, pl.Datetime) or given.get_column(_AT).null_count():
            msg = f"the timers' column {_AT} is {at}, or has nulls; give a Datetime for each"
            raise FrameError(msg)
        moment = pl.col(_AT)
        if at.time_zone is not None:
            moment = moment.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        tag = pl.col(_TAG).cast(pl.String).fill_null("") if _TAG in given.columns else pl.lit("")
        usual = pl.lit("event" if self._batch.has_event_time else "processing")
        domain = pl.col(_DOMAIN).cast(pl.String) if _DOMAIN in given.columns else usual
        cancel = pl.col(_CANCEL).cast(pl.Boolean).fill_null(False) if _CANCEL in given.columns else pl.lit(False)
        places = find_places(given, self._batch.touched.keys, self._keys, "the frame of timers")
        timers = given.select(
            pl.Series(PLACE, places),
            moment.dt.timestamp("us").alias(_AT),
            tag.alias(_TAG),
            domain.alias(_DOMAIN),
            cancel.alias(_CANCEL),
        )
        strangers = timers.filter(~pl.col(_DOMAIN).is_in(list(TIMER_COLUMNS)))
        if strangers.height:
            msg = f"a timer's {_DOMAIN} is {strangers[_DOMAIN][0]!r}; it is one of {', '.join(TIMER_COLUMNS)}"
            raise FrameError(msg)
        if not self._batch.has_event_time and (timers[_DOMAIN] == "event").any():
            raise FrameError(NO_EVENT_TIME)
        return timers
