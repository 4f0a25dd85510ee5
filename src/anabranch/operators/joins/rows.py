"""The rows of one input of a join: how they are laid out, how long they are needed, which of them met somebody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, order_by_number
from anabranch.compiled.partners import Places, order_by_hash_and_time
from anabranch.model import BATCH, END_OF_TIME, HASH, ORDER, WINDOW, SlotState
from anabranch.model.columns import DRAW, SECTION, USE
from anabranch.model.joins import AT, PROBE, STORE, JoinInput, fates_section, rows_section
from anabranch.operators.aggregates.partials import concatenate, sort_as_run
from anabranch.operators.compaction import compact

MET = "__met"
"""Boolean: whether a row had a partner when it was written."""

EARLIEST = "__earliest"
"""Int64 microseconds: the AT of a row's earliest partner in this batch."""

_ID = [HASH, AT, BATCH, ORDER]
"""What tells a row from all others of its input; rows that are equal in all of it are equal in everything."""
_SEGMENTS = 4
_MOST_SEGMENTS_COUNTED = 1 << 16
"""Segments may be microseconds long, and rows hours apart."""
_SORT_FIRST_BEYOND = 0.5
"""The share of all rows from which on it is worth it to sort all first: neighbours are taken faster than others."""

Times = NDArray[np.int64]
FindOver = Callable[[pl.DataFrame], NDArray[np.bool_]]
"""Says of each row, or of what became of it, whether it is over: nobody can meet it any more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of an input lie in state."""

    source: JoinInput
    keys: tuple[str, ...]
    """What results call the keys."""
    number: int
    """Which of the inputs it is."""
    hold_us: int | None
    """A row is needed until the watermark reaches its AT and so much more; None: for ever."""
    remembers: bool
    """Whether it matters if a row ever met a partner."""
    may_be_copied: bool = False
    """Whether other slots may have a copy of such a row, each of which met others."""
    draws: bool = False
    """Whether rows have a number drawn for them."""
    is_ranked: bool = False
    """Whether it matters which of several rows with the same AT came last."""

    @property
    def rows_section(self) -> int:
        """The section of the state that has the rows."""
        return rows_section(self.number)

    @property
    def fates_section(self) -> int:
        """The section of the state that says which of the rows met somebody after they were written."""
        return fates_section(self.number)

    @property
    def columns(self) -> list[str]:
        """The columns of a run."""
        arrival = [BATCH, ORDER] if self.remembers or self.is_ranked else []
        fate = [MET] if self.remembers else []
        draw = [DRAW] if self.draws else []
        return [*self._segment, HASH, SECTION, *self.keys, AT, *draw, *arrival, *fate, *self.source.columns]

    @property
    def fate_columns(self) -> list[str]:
        """The columns of a run that says which rows met somebody."""
        return [*self._segment, HASH, SECTION, *self.keys, AT, BATCH, ORDER]

    @property
    def _segment(self) -> list[str]:
        return [] if self.hold_us is None else [WINDOW]

    @property
    def segment_us(self) -> int:
        """The length of the segments of time in which runs can be searched and dropped."""
        assert self.hold_us is not None
        return max(1, abs(self.hold_us) // _SEGMENTS)

    def segment_at(self, at_us: int) -> int:
        """Return the segment of rows with this AT."""
        assert self.hold_us is not None
        return (at_us + self.hold_us) // self.segment_us * self.segment_us

    def first_needed(self, passed_us: int) -> int:
        """Return the first segment that may be needed once the watermark is there."""
        return (passed_us + 1) // self.segment_us * self.segment_us

    def is_needed(self, at_us: Times, passed_us: int) -> NDArray[np.bool_]:
        """Say of rows with these AT whether they are needed once the watermark is there."""
        if self.hold_us is None:
            return np.ones(len(at_us), np.bool_)
        needed: NDArray[np.bool_] = at_us + self.hold_us > passed_us
        return needed

    def select(self, frame: pl.DataFrame, at: pl.Expr) -> pl.DataFrame:
        """Return rows as they travel: keys and columns with their names in results, AT, and ORDER."""
        keys = [pl.col(own).alias(name) for own, name in zip(self.source.keys, self.keys, strict=True)]
        columns = [pl.col(own).alias(name) for name, own in self.source.columns.items()]
        return frame.select(*keys, at.alias(AT), ORDER, *columns)

    def order_by_segment(self, at_us: Times) -> Places | None:
        """Return the stable order of rows by segment; None where they have none, or all the same."""
        if self.hold_us is None or not len(at_us):
            return None
        segments = (at_us + self.hold_us) // self.segment_us
        first, last = int(segments.min()), int(segments.max())
        if first == last:
            return None
        if last - first < _MOST_SEGMENTS_COUNTED:
            return order_by_number((segments - first).astype(np.int32), last - first + 1)[0]
        return np.argsort(segments, kind="stable")

    def cut(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows, sorted by hash and time, as a run."""
        by_segment = self.order_by_segment(_times_of(rows))
        return self.as_run(rows if by_segment is None else rows[by_segment])

    def as_run(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows, sorted by segment, hash and time, as a run."""
        return self.in_segments(rows, self.rows_section).select(self.columns)

    def in_segments(self, rows: pl.DataFrame, section: int) -> pl.DataFrame:
        """Return rows that say their section and, if they end, their segment of time."""
        rows = rows.with_columns(pl.lit(section, pl.Int8).alias(SECTION))
        if self.hold_us is None:
            return rows
        return rows.with_columns(((pl.col(AT) + self.hold_us) // self.segment_us * self.segment_us).alias(WINDOW))

    def unite(self, runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of several runs as one."""
        rows = concatenate(list(runs)).rechunk()
        if self.is_ranked:
            rows = rows.sort(BATCH, ORDER)
        order, _, at_us = order_by_hash_and_time(hashes_of(rows), _times_of(rows))
        by_segment = self.order_by_segment(at_us)
        return rows[order if by_segment is None else order[by_segment]]


class Piece:
    """Rows in the order of hash and time, and which of them met a partner in this batch."""

    def __init__(self, rows: pl.DataFrame, *, is_sorted: bool) -> None:
        self._rows = rows
        self._order: Places | None = None
        self.hashes: Hashes = hashes_of(rows)
        self.at_us: Times = _times_of(rows)
        if not is_sorted:
            # Most columns of most rows are taken once or never: sorting all of them first would be work for nothing.
            self._order, self.hashes, self.at_us = order_by_hash_and_time(self.hashes, self.at_us)
        self.met: NDArray[np.bool_] | None = None
        self._earliest_us: Times | None = None

    def __len__(self) -> int:
        return self._rows.height

    def has(self, column: str) -> bool:
        """Say whether the rows have a column."""
        return column in self._rows.columns

    @property
    def rows(self) -> pl.DataFrame:
        """All rows, in their order."""
        if self._order is not None:
            self._rows, self._order = self._rows[self._order], None
        return self._rows

    def take(self, columns: Sequence[str], places: Places) -> pl.DataFrame:
        """Return columns of rows, by their places."""
        if len(places) > _SORT_FIRST_BEYOND * len(self):
            rows = self.rows.select(columns)
            return rows if _are_all(places, rows.height) else rows[places]
        rows = self._rows.select(columns)
        return rows[places] if self._order is None else rows[self._order[places]]

    def meet(self, places: Places, partners_us: Times) -> None:
        """Note that rows met partners, whose AT are given."""
        if self.met is None or self._earliest_us is None:
            self.met = np.zeros(len(self), np.bool_)
            self._earliest_us = np.full(len(self), END_OF_TIME, np.int64)
        self.met[places] = True
        np.minimum.at(self._earliest_us, places, partners_us)

    def met_rows(self) -> pl.DataFrame | None:
        """Return the rows that met a partner, with the AT of their earliest; None if there are none."""
        if self.met is None:
            return None
        return self.rows.with_columns(pl.Series(EARLIEST, self._earliest_us)).filter(pl.Series(self.met))


class InputState:
    """What a slot has of one input: its rows in one section of the state, and in another which of them met somebody."""

    def __init__(self, layout: Layout, rows: SlotState, fates: SlotState, find_over: FindOver | None = None) -> None:
        """``find_over``: where segments of time do not tell, which rows and fates are over; they go with the merging
        of runs."""
        self._layout = layout
        self._rows = rows
        self._fates = fates
        self._find_over = find_over

    def lookup(self, hashes: Hashes) -> list[pl.DataFrame]:
        """Return the rows of some keys (sorted, unique hashes), run by run, each by hash and time."""
        return self._rows.lookup(pl.Series(hashes, dtype=pl.UInt64)) if hashes.size else []

    def sweep(self) -> None:
        """Write anew, without what is over, what consists of that by half."""
        if self._find_over is None:
            return
        for state, unite in ((self._rows, self._layout.unite), (self._fates, sort_fates)):
            runs = state.live()
            over = sum(int(self._find_over(rows).sum()) for rows in runs)
            # State that changes hands is work enough for a batch.
            if over and 2 * over >= sum(rows.height for rows in runs) and not state.changes_hands:
                state.replace(self._leave_out(unite(runs)))

    def _leave_out(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows of a run without those that are over."""
        return rows if self._find_over is None else rows.filter(pl.Series(~self._find_over(rows)))

    def pieces(self, earliest_us: int, latest_us: int) -> list[Piece]:
        """Return the rows whose AT may be in [earliest, latest], segment by segment."""
        layout = self._layout
        found = []
        for rows in self._rows.live():
            if layout.hold_us is None:
                found.append(Piece(rows, is_sorted=True))
                continue
            for start_us, segment in _segments(rows):
                first_us = start_us - layout.hold_us
                if first_us <= latest_us and first_us + layout.segment_us > earliest_us:
                    found.append(Piece(segment, is_sorted=True))
        return found

    def keep(self, new: Piece, batch: int, is_needed: NDArray[np.bool_]) -> pl.DataFrame | None:
        """Write the new rows that are needed; return those of the others that met nobody, if that matters."""
        layout = self._layout
        places = _places_of(is_needed)
        by_segment = layout.order_by_segment(new.at_us[places])
        rows = self._take(new, places if by_segment is None else places[by_segment], batch)
        if layout.remembers and layout.may_be_copied:
            # What this copy met is this slot's to know: one that goes to another slot must not take it along.
            self._write_fates(rows.filter(MET))
            rows = rows.with_columns(pl.lit(value=False).alias(MET))
        self._rows.append(layout.as_run(rows))
        compact(self._rows, lambda runs: self._leave_out(layout.unite(runs)))
        if not layout.remembers or is_needed.all():
            return None
        return self._take(new, _places_of(~is_needed), batch).filter(~pl.col(MET))

    def show(self, new: Piece, chosen: NDArray[np.bool_], batch: int) -> pl.DataFrame:
        """Return some of the new rows as they would be written."""
        return self._take(new, _places_of(chosen), batch)

    def _take(self, new: Piece, places: Places, batch: int) -> pl.DataFrame:
        layout = self._layout
        more = [name for name, is_there in ((DRAW, layout.draws), (ORDER, layout.remembers)) if is_there]
        rows = new.take([HASH, *layout.keys, AT, *more, *layout.source.columns], places)
        if not layout.remembers:
            return rows
        met = np.zeros(len(places), np.bool_) if new.met is None else new.met[places]
        return rows.with_columns(pl.Series(MET, met), pl.lit(batch, pl.Int64).alias(BATCH))

    def remember(self, pieces: Sequence[Piece]) -> pl.DataFrame | None:
        """Write down which stored rows met a partner for the first time, and return them with their earliest one."""
        met = [rows for rows in (piece.met_rows() for piece in pieces) if rows is not None]
        if not met:
            return None
        first = self._unmet(met)
        if not first.height:
            return None
        self._write_fates(first)
        return first

    def take_unmet(self, after_us: int, until_us: int) -> pl.DataFrame | None:
        """Return the rows that are not needed any more from a watermark in (after, until] on and met nobody."""
        hold_us = self._layout.hold_us
        assert hold_us is not None
        done_us = pl.col(AT) + hold_us
        due = [rows.filter((done_us > after_us) & (done_us <= until_us)) for rows in self._rows.due(until_us + 1)]
        return self.find_unmet(due)

    def find_unmet(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Return those of stored rows that met nobody so far; None if there are none."""
        rows = self._unmet(frames)
        return rows if rows.height else None

    def forget(self, until_us: int) -> None:
        """Drop what is not needed from this watermark on, by whole segments."""
        if self._layout.hold_us is not None:
            limit_us = self._layout.first_needed(until_us)
            self._rows.drop_due(limit_us)
            self._fates.drop_due(limit_us)

    def keep_met_only(self) -> None:
        """Drop all rows that met nobody."""
        rows = concatenate(self._rows.live()) if self._rows.runs() else None
        if rows is not None:
            unmet = self._unmet([rows])
            self._rows.replace(self._layout.unite([rows.join(unmet, on=_ID, how="anti", maintain_order="left")]))

    def next_due_us(self, passed_us: int) -> int | None:
        """Return the watermark at which the next row that met nobody is not needed any more."""
        hold_us = self._layout.hold_us
        assert hold_us is not None
        # Nearly always something is due in the segment that is open now; only else all runs are looked through.
        for frames in (self._rows.due(passed_us + self._layout.segment_us), self._rows.live()):
            waiting = self._unmet([rows.filter(pl.col(AT) + hold_us > passed_us) for rows in frames])
            if waiting.height:
                return int(waiting.get_column(AT).min()) + hold_us  # type: ignore[arg-type]
        return None

    def _write_fates(self, met: pl.DataFrame) -> None:
        if not met.height:
            return
        fates = self._layout.in_segments(met, self._layout.fates_section)
        self._fates.append(sort_fates([fates.select(self._layout.fate_columns)]))
        compact(self._fates, lambda runs: self._leave_out(sort_fates(runs)))

    def _unmet(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        some = [rows.filter(~pl.col(MET)) for rows in frames]
        rows = concatenate(some) if some else pl.DataFrame(schema=dict.fromkeys([*_ID, AT], pl.Int64))
        if rows.height:
            hashes = rows.get_column(HASH).unique().sort()
            for met in self._fates.lookup(hashes):
                rows = rows.join(met, on=_ID, how="anti", maintain_order="left")
        return rows


@dataclass(frozen=True, slots=True)
class Came:
    """The new rows of an input: those that are to be stored, and those that look for partners; mostly the same."""

    stored: Piece | None
    probing: Piece | None


def gather_rows(frames: Sequence[pl.DataFrame]) -> Piece | None:
    """Return all rows by hash, then time, else as they came; None if there are none."""
    some = [frame for frame in frames if frame.height]
    return Piece(concatenate(some).rechunk(), is_sorted=False) if some else None


def part_by_use(rows: Piece | None) -> Came:
    """Return new rows by what they are for; unless they say it, for both."""
    if rows is None or not rows.has(USE):
        return Came(rows, rows)
    parts = [rows.rows.filter((pl.col(USE) & use) > 0).drop(USE) for use in (STORE, PROBE)]
    return Came(*(Piece(part, is_sorted=True) if part.height else None for part in parts))


def leave_strangers(
    other_places: Places, places: Places, others: Piece, seeking: Piece, keys: Sequence[str]
) -> tuple[Places, Places]:
    """Return pairs without those of different keys with the same hash, and of null, which equals nothing."""
    same = np.ones(len(places), np.bool_)
    some, other = seeking.take(keys, places), others.take(keys, other_places)
    for key in keys:
        same &= (some[key] == other[key]).fill_null(value=False).to_numpy()
    return (other_places, places) if same.all() else (other_places[same], places[same])


def sort_fates(runs: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the fates in several runs as one."""
    return sort_as_run(concatenate(list(runs)).sort(BATCH, ORDER))


def _times_of(rows: pl.DataFrame) -> Times:
    at_us: Times = rows.get_column(AT).to_numpy()
    return at_us


def _places_of(chosen: NDArray[np.bool_]) -> Places:
    # Polars counts rows in 32 bits.
    return np.flatnonzero(chosen).astype(np.uint32)


def _are_all(places: Places, count: int) -> bool:
    """Say whether these are the places of all rows, in order."""
    return len(places) == count and bool((places == np.arange(count, dtype=places.dtype)).all())


def _segments(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the segments of a run, each with its start."""
    windows = rows.get_column(WINDOW).to_numpy()
    start = 0
    while start < rows.height:
        end = int(np.searchsorted(windows, windows[start], side="right"))
        yield int(windows[start]), rows[start:end]
        start = end
