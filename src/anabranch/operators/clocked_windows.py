"""Aggregates in tumbling and sliding windows that close when their own key's watermark says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.eventtime import drop_limit_us, last_window_ends_us, pane_start, pane_us, window_ends_after_us
from anabranch.model import (
    BEGINNING_OF_TIME,
    EMISSION,
    END_OF_TIME,
    HASH,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Clock,
    Fired,
    OperatorTime,
    Prepared,
    RunRef,
    SlotState,
    Standing,
    WindowSpec,
)
from anabranch.operators.arrivals import ORIGINAL, Judged, carry_original, gather_rows, judge_rows, touched_hashes
from anabranch.operators.checks import check_aggregates, describe_aggregates, empty_rows
from anabranch.operators.key_clocks import (
    CLOCK,
    LATEST,
    PLACE,
    ROWS,
    SPOKE,
    KeyClocks,
    Times,
    place_keys,
    places_of,
    read_clocks,
    shared_times,
)
from anabranch.operators.keyed_rows import Hashes, hashes_of, load_rows, newest_rows, store_rows
from anabranch.operators.partials import Partials, concatenate

_PANE = "__pane"
"""Int64 microseconds: the start of the pane; null where only a key's clock, or nothing, is left."""
_START = "__start"
"""Int64 microseconds: the start of a window that is laid over panes."""
_DIRTY = "__dirty"
"""Boolean: the pane changed since its windows were last emitted early."""
_CAME, _WAS = "__came", "__was"
"""Boolean: rows of this batch are in it; it was there before this batch."""

_CHECKS_PER_IDLE_TIME = 4


class ClockedWindows:
    """Aggregates in windows of which every key has its own, or that may be emitted more than once.

    State rows are the open panes of a key, one row each, with the key's watermark where it has its own. All
    rows of a key are written anew whenever the key is touched, so that time and windows move together with the key.
    """

    splittable = False

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: WindowSpec,
        time_column: str,
        clock: Clock,
    ) -> None:
        self._keys = tuple(keys)
        self._window = window
        self._time_column = time_column
        self._clock = clock
        self._partials = Partials(keys, aggregates, time_column)
        # Late rows can be handed out as they came only if nothing was merged with them.
        self.mergeable = window.late != "side"
        own_time = [CLOCK, *([SPOKE] if clock.idle_us is not None else [])] if clock.per == "key" else []
        dirty = [_DIRTY] if window.early_us is not None else []
        self._run_columns = [HASH, *self._keys, *own_time, _PANE, *dirty, *self._partials.plan.partial_columns]

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        taken = (WINDOW_START, WINDOW_END, *([EMISSION] if self._window.marks_emissions else []))
        check_aggregates(self._partials, input_schema, taken=taken)
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        windows = self._combine_single(prepared).rename({_PANE: _START})
        return dict(self._finish(windows, pl.lit("final")).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        window, clock = self._window, self._clock
        return {
            "kind": "clocked windows",
            "window": {
                "kind": window.kind,
                "size_us": window.size_us,
                "slide_us": window.slide_us,
                "offset_us": window.offset_us,
                "early": window.early_us is not None,
            },
            "clock": {"per": clock.per, "groups": clock.groups if clock.per == "group" else None}
            | {"idle": clock.idle_us is not None},
            **describe_aggregates(self._partials, input_schema),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Put rows into panes; which are late is known only where their keys' watermarks are."""
        time_us = pl.col(self._time_column).dt.timestamp("us")
        carried = [pane_start(time_us, self._window).alias(_PANE), time_us.alias(LATEST)]
        if not self.mergeable:
            carried.append(carry_original())
        return Prepared(self._partials.select_rows(frame, time, carried))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into one partial row per pane and key."""
        extra = [pl.col(LATEST).max(), pl.len().cast(pl.Int64).alias(ROWS)]
        return self._partials.combine(prepared, [_PANE], extra=extra, strides={_PANE: pane_us(self._window)})

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Fire what closed before this batch, take its rows in, fire what they complete, key by key."""
        arrived = gather_rows(received, combined, self.combine)
        hashes = touched_hashes(arrived, self._due_hashes(state, time))
        if not hashes.size:
            return Fired(pl.DataFrame(), next_due_us=self._next_due_us(state, time), wake_us=self._wake_us(state, time))
        keys, known, arrived = place_keys(self._keys, load_rows(state, hashes), arrived)
        if keys.is_empty():
            return Fired(pl.DataFrame(), next_due_us=self._next_due_us(state, time), wake_us=self._wake_us(state, time))
        clocks = read_clocks(self._clock, time, hashes_of(keys), known, arrived)
        judged = self._judge(arrived, clocks, time)
        results: list[pl.DataFrame] = []
        panes = known.filter(pl.col(_PANE).is_not_null()) if known is not None else None
        if panes is not None and panes.height:
            # These windows are over for the rows of this batch, even if some of their panes are not.
            self._emit(panes, clocks, clocks.fired_us, clocks.closed_us, results)
        panes = self._merge(panes, judged.in_time)
        last_end_us = np.full(keys.height, BEGINNING_OF_TIME, np.int64)
        if panes is not None:
            last_end_us = self._emit(panes, clocks, clocks.closed_us, clocks.fire_us, results)
            self._emit_updates(panes, clocks, results)
            panes = self._emit_early(panes, clocks, results)
        # What was closed by force must not be opened again; what comes after it may be.
        forced = clocks.fire_us == END_OF_TIME
        clock_us = np.where(forced, np.maximum(clocks.closed_us, last_end_us), clocks.fire_us)
        self._store(state, keys, known, arrived, panes, clocks.spoke_us, clock_us, time.floor_us)
        return judged.report(results, self._next_due_us(state, time), self._wake_us(state, time))

    def meet(self, shared: list[pl.DataFrame]) -> pl.DataFrame:
        """Never called: no two slots share a key."""
        raise NotImplementedError

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole, with their time."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return the open panes and clocks of every key."""
        rows = newest_rows(runs)
        return rows.filter(self._has_content(rows))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return concatenate(stored).sort(HASH, maintain_order=True)

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far, per pane; keys that only have a clock are left out."""
        panes = stored.filter(pl.col(_PANE).is_not_null())
        return self._finish(panes.rename({_PANE: _START}), pl.lit("early"), pane_us(self._window))

    # -- rows ------------------------------------------------------------------------------------------------------

    def _judge(self, arrived: pl.DataFrame | None, clocks: KeyClocks, time: OperatorTime) -> Judged:
        """Find the late rows."""
        if arrived is None:
            return Judged()
        panes = arrived.get_column(_PANE).to_numpy()
        closed_us = clocks.closed_us[places_of(arrived)]
        late = refused = panes < drop_limit_us(self._window, closed_us)
        if self._window.late == "update":
            refused = panes < drop_limit_us(self._window, closed_us - self._window.lateness_us)
        slot_late = panes < drop_limit_us(self._window, int(time.slot_closed_us))
        return judge_rows(arrived, self._clock, late, refused, slot_late)

    def _merge(self, panes: pl.DataFrame | None, arrived: pl.DataFrame | None) -> pl.DataFrame | None:
        """Return one row a pane and key, with what became of it in this batch."""
        dirty = [_DIRTY] if self._window.early_us is not None else []
        columns = [HASH, *self._keys, PLACE, _PANE, *self._partials.plan.partial_columns]
        frames = []
        if panes is not None and panes.height:
            frames.append(panes.select(*columns, *dirty, pl.lit(False).alias(_CAME), pl.lit(True).alias(_WAS)))
        if arrived is not None:
            rows = arrived
            if not self.mergeable:
                rows = self._partials.combine(arrived, [_PANE], extra=[pl.col(PLACE).first()])
            flags = {**dict.fromkeys(dirty, True), _CAME: True, _WAS: False}
            frames.append(rows.select(*columns, *(pl.lit(flag).alias(name) for name, flag in flags.items())))
        if not frames:
            return None
        carried = [pl.col(PLACE).first(), *(pl.col(name).any() for name in (*dirty, _CAME, _WAS))]
        return self._partials.merge(frames, [_PANE], extra=carried, strides={_PANE: pane_us(self._window)})

    def _emit(
        self, panes: pl.DataFrame, clocks: KeyClocks, after_us: Times, until_us: Times, results: list[pl.DataFrame]
    ) -> Times:
        """Emit the windows that end in (after, until] of their key; return by key the end of the last of them."""
        last_end_us = np.full(len(clocks.fire_us), BEGINNING_OF_TIME, np.int64)
        windows = self._lay_windows(panes, clocks, after_us, until_us)
        if windows is not None:
            ends_us = windows.get_column(_START).to_numpy() + self._window.size_us
            np.maximum.at(last_end_us, places_of(windows), ends_us)
            results.append(self._finish(windows, pl.lit("final")))
        return last_end_us

    def _emit_updates(self, panes: pl.DataFrame, clocks: KeyClocks, results: list[pl.DataFrame]) -> None:
        """Emit the windows again that had closed when late rows came for them."""
        if self._window.late != "update":
            return
        after_us = clocks.closed_us - self._window.lateness_us
        windows = self._lay_windows(panes, clocks, after_us, clocks.closed_us, touched=_CAME)
        if windows is not None:
            # A window that nothing had come for was not emitted when it closed.
            results.append(self._finish(windows, pl.when(_WAS).then(pl.lit("update")).otherwise(pl.lit("final"))))

    def _emit_early(self, panes: pl.DataFrame, clocks: KeyClocks, results: list[pl.DataFrame]) -> pl.DataFrame:
        """Emit what is open and changed, of keys whose watermark passed another interval; return the panes."""
        interval_us = self._window.early_us
        if interval_us is None:
            return panes
        # A key's own watermark rises by the rows of this batch, others rise between batches.
        before_us = clocks.closed_us if self._clock.per == "key" else clocks.fired_us
        passed = (before_us // interval_us < clocks.fire_us // interval_us)[places_of(panes)]
        windows = self._lay_windows(
            panes.filter(pl.Series(passed)), clocks, clocks.fire_us, np.full_like(clocks.fire_us, END_OF_TIME), _DIRTY
        )
        if windows is not None:
            results.append(self._finish(windows, pl.lit("early")))
        return panes.with_columns(pl.col(_DIRTY) & ~pl.Series(passed))

    def _lay_windows(
        self, panes: pl.DataFrame, clocks: KeyClocks, after_us: Times, until_us: Times, touched: str | None = None
    ) -> pl.DataFrame | None:
        """Return the windows that end in (after, until] of their key; if said, only those with a pane so marked."""
        places = places_of(panes)
        starts_us = panes.get_column(_PANE).to_numpy()
        first_us = window_ends_after_us(self._window, starts_us, after_us[places])
        last_us = np.minimum(last_window_ends_us(self._window, starts_us), until_us[places])
        chosen = first_us <= last_us
        if not chosen.any():
            return None
        windows = panes.filter(pl.Series(chosen))
        if self._window.kind == "tumbling":
            windows = windows.rename({_PANE: _START})
        else:
            size_us, slide_us = self._window.size_us, self._window.slide_us
            spans = pl.DataFrame({"first": first_us[chosen] - size_us, "last": last_us[chosen] - size_us})
            starts = spans.select(pl.int_ranges("first", pl.col("last") + 1, slide_us).alias(_START)).to_series()
            spread = windows.drop(_PANE).with_columns(starts).explode(_START)
            carried = [pl.col(name).any() for name in (_CAME, _WAS, _DIRTY) if name in spread.columns]
            windows = self._partials.merge(
                [spread], [_START], extra=[pl.col(PLACE).first(), *carried], strides={_START: slide_us}
            )
        if touched is not None:
            windows = windows.filter(touched)
        return windows if windows.height else None

    def _finish(self, windows: pl.DataFrame, emission: pl.Expr, length_us: int | None = None) -> pl.DataFrame:
        start = pl.col(_START).cast(pl.Datetime("us")).alias(WINDOW_START)
        end = (pl.col(_START) + (length_us or self._window.size_us)).cast(pl.Datetime("us")).alias(WINDOW_END)
        mark = [emission.alias(EMISSION)] if self._window.marks_emissions else []
        return self._partials.finish(windows, [start, end, *mark])

    # -- state -----------------------------------------------------------------------------------------------------

    def _store(
        self,
        state: SlotState,
        keys: pl.DataFrame,
        known: pl.DataFrame | None,
        arrived: pl.DataFrame | None,
        panes: pl.DataFrame | None,
        spoke_us: Times,
        clock_us: Times,
        floor_us: int,
    ) -> None:
        """Write what remains of the keys: panes that a window or a late row may need, clocks, or tombstones."""
        rows = []
        is_bare = np.ones(keys.height, np.bool_)
        if panes is not None:
            limits_us = drop_limit_us(self._window, clock_us - self._window.lateness_us)
            open_panes = panes.get_column(_PANE).to_numpy() >= limits_us[places_of(panes)]
            rows.append(panes.filter(pl.Series(open_panes)))
            is_bare[places_of(rows[0])] = False
        # A clock that the floor has passed says nothing unless windows are open: the key starts from the floor again.
        has_clock = (clock_us > floor_us) & (self._clock.per == "key")
        was_known = np.zeros(keys.height, np.bool_)
        if known is not None:
            was_known[places_of(known)] = True
        bare = is_bare & (has_clock | was_known)
        rows.append(keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(PLACE)).filter(pl.Series(bare)))
        written = pl.concat([*rows, self._no_rows(known, arrived)], how="diagonal")
        if self._clock.per == "key":
            places = places_of(written)
            said = (has_clock | ~is_bare)[places]
            own = pl.Series(CLOCK, clock_us[places]).set(pl.Series(~said), None)
            written = written.with_columns(own, pl.Series(SPOKE, spoke_us[places]))
        store_rows(state, written.select(self._run_columns), self._has_content)

    def _no_rows(self, known: pl.DataFrame | None, arrived: pl.DataFrame | None) -> pl.DataFrame:
        """Return an empty frame with all columns of state rows; clocks may be missing."""
        if known is not None:
            return known.clear()
        assert arrived is not None, "no key is touched of which nothing is known and for which nothing came"
        partial_rows = arrived if self.mergeable else self._combine_single(arrived)
        return (
            partial_rows.clear()
            .select(HASH, *self._keys, _PANE, *self._partials.plan.partial_columns)
            .with_columns(pl.lit(None, pl.Boolean).alias(_DIRTY))
        )

    def _combine_single(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Merge rows that are not merged yet; what else they carry is dropped."""
        return self.combine(rows.drop(ROWS, PLACE, ORIGINAL, strict=False))

    def _has_content(self, rows: pl.DataFrame) -> pl.Series:
        """Say of each row whether it is more than a tombstone."""
        has_pane = rows.get_column(_PANE).is_not_null()
        return has_pane | rows.get_column(CLOCK).is_not_null() if self._clock.per == "key" else has_pane

    def _due_hashes(self, state: SlotState, time: OperatorTime) -> Hashes:
        """Return the keys that must be looked at even if no row comes for them; some may turn out not to be due."""
        if not self._looks_for_due(time):
            return np.empty(0, np.uint64)
        found = []
        for panes in self._open_panes(state):
            hashes = hashes_of(panes)
            if time.drains:
                due = np.ones(len(hashes), np.bool_)
            elif self._clock.per == "key":
                due = self._is_silent(panes, time)
            else:
                due = self._is_passed(panes, time)
            found.append(hashes[due])
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)

    def _looks_for_due(self, time: OperatorTime) -> bool:
        if time.drains:
            return True
        if self._clock.per != "key":
            return time.shared is not None or max(time.closed_us, time.fire_us) > time.fired_us
        return time.floor_us > BEGINNING_OF_TIME or self._checks_idle(time)

    def _checks_idle(self, time: OperatorTime) -> bool:
        if self._clock.idle_us is None:
            return False
        step_us = max(1, self._clock.idle_us // _CHECKS_PER_IDLE_TIME)
        return time.now_us // step_us > time.last_now_us // step_us

    def _is_silent(self, panes: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        """Say of each pane whether its key is too far behind, or was not heard of for too long."""
        clock_us = panes.get_column(CLOCK).fill_null(BEGINNING_OF_TIME).to_numpy()
        silent = window_ends_after_us(self._window, panes.get_column(_PANE).to_numpy(), clock_us) <= time.floor_us
        if self._checks_idle(time) and self._clock.idle_us is not None:
            silent |= panes.get_column(SPOKE).to_numpy() + self._clock.idle_us <= time.now_us
        return silent

    def _is_passed(self, panes: pl.DataFrame, time: OperatorTime) -> NDArray[np.bool_]:
        """Say of each pane whether the watermark that its key shares closed a window of it, or left it behind."""
        starts_us = panes.get_column(_PANE).to_numpy()
        fired_us, closed_us = shared_times(self._clock, time, hashes_of(panes))
        closed_us = np.maximum(closed_us, time.fire_us)
        passed = window_ends_after_us(self._window, starts_us, fired_us) <= np.minimum(
            closed_us, last_window_ends_us(self._window, starts_us)
        )
        passed |= starts_us < drop_limit_us(self._window, closed_us - self._window.lateness_us)
        if self._window.early_us is not None:
            passed |= panes.get_column(_DIRTY).to_numpy() & (
                fired_us // self._window.early_us < closed_us // self._window.early_us
            )
        return passed

    def _open_panes(self, state: SlotState) -> Iterator[pl.DataFrame]:
        """Yield the panes of every run; those that a newer run has superseded are among them."""
        wanted = [name for name in (HASH, CLOCK, SPOKE, _PANE, _DIRTY) if name in self._run_columns]
        for rows in state.live():
            panes = rows.select(wanted).filter(pl.col(_PANE).is_not_null())
            if panes.height:
                yield panes

    def _next_due_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when the next window ends under a watermark that is raised between batches."""
        if self._clock.per == "key" or time.drains:
            return None
        ends_us = []
        for panes in self._open_panes(state):
            starts_us = panes.get_column(_PANE).to_numpy()
            _, closed_us = shared_times(self._clock, time, hashes_of(panes))
            passed_us = np.maximum(closed_us, time.fire_us)
            waits = last_window_ends_us(self._window, starts_us) > passed_us
            if waits.any():
                ends_us.append(int(window_ends_after_us(self._window, starts_us, passed_us)[waits].min()))
        return min(ends_us, default=None)

    def _wake_us(self, state: SlotState, time: OperatorTime) -> int | None:
        """Return when it must be looked for keys that fell silent."""
        if self._clock.per != "key" or self._clock.idle_us is None:
            return None
        spoke_us = [int(panes.get_column(SPOKE).min()) for panes in self._open_panes(state)]  # type: ignore[arg-type]
        if not spoke_us:
            return None
        # What newer runs have superseded may have spoken since: the next look must not come at once.
        return max(min(spoke_us), time.now_us - self._clock.idle_us + self._clock.idle_us // _CHECKS_PER_IDLE_TIME) + (
            self._clock.idle_us
        )
