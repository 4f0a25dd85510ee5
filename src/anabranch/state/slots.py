"""One operator's state on one slot: its runs, searched and cut, never rewritten in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.compiled.hash_order import find_wanted
from anabranch.model import HASH, WINDOW, RunReader, RunRef, RunWriter
from anabranch.model.runs import Leaving

Handed = dict[int, list[pl.DataFrame]]
"""Slot → the rows it gets."""

MOST_GONE_RANGES = 512
"""Ranges a run keeps in the manifest; one that would have more is written again without the rows."""


class RunsOfSlot:
    """A ``SlotState`` over run files.

    Frames that were read or written are kept until the batch is over, so a run is opened at most once.
    """

    def __init__(self, runs: Iterable[RunRef], reader: RunReader, writer: RunWriter, section: int = 0) -> None:
        """``section`` is given to runs that are written."""
        self._runs = list(runs)
        self._reader = reader
        self._writer = writer
        self._number = section
        self._sections: dict[int, RunsOfSlot] = {}
        self.changes_hands = False
        self._frames: dict[str, tuple[int, pl.DataFrame]] = {}

    def section(self, number: int) -> RunsOfSlot:
        """Return the runs of a section as a state of their own; from then on they are not among this one's."""
        if number not in self._sections:
            mine = [ref for ref in self._runs if ref.section == number]
            self._runs = [ref for ref in self._runs if ref.section != number]
            self._sections[number] = RunsOfSlot(mine, self._reader, self._writer, number)
        section = self._sections[number]
        section.changes_hands = self.changes_hands
        return section

    def live(self) -> list[pl.DataFrame]:
        """Return the live rows of every run, oldest run first."""
        return [self._rows_of(ref) for ref in self._runs]

    def due(self, window_limit: int) -> list[pl.DataFrame]:
        """Return the rows with window < limit of every run that has some, oldest first, without dropping them."""
        found = []
        for ref in self._runs:
            if not _may_be_due(ref, window_limit):
                continue
            rows = self._rows_of(ref)
            count = _rows_before(rows, window_limit)
            if count > 0:
                found.append(rows.head(count))
        return found

    def drop_due(self, window_limit: int) -> None:
        """Forget the rows with window < limit, by moving where a run begins; no file is read twice or written."""
        kept = []
        for ref in self._runs:
            if not _may_be_due(ref, window_limit):
                kept.append(ref)
                continue
            if ref.max_window is not None and ref.max_window < window_limit:
                continue
            # Places in the file count rows that are gone, too.
            rows = self._reader.read(replace(ref, gone=())) if ref.gone else self._rows_of(ref)
            count = _rows_before(rows, window_limit)
            kept.append(
                replace(ref, first_live=ref.first_live + count, min_window=rows[WINDOW][count]) if count else ref
            )
        self._runs = kept

    def lookup(self, hashes: pl.Series) -> list[pl.DataFrame]:
        """Return the rows whose hash is among the (sorted, unique) hashes, oldest run first, by search, not scan.

        Runs without such a row are left out; rows come in the order of their run.
        """
        wanted = _checked(hashes)
        found = []
        for ref in self._runs if wanted.size else ():
            rows = self._rows_of(ref)
            positions, _ = _positions_of(rows, wanted)
            if positions.size > 0:
                found.append(rows[positions])
        return found

    def lookup_everywhere(self, hashes: pl.Series) -> list[pl.DataFrame]:
        """Do the same, in the sections as well."""
        of_sections = (self._sections[number].lookup_everywhere(hashes) for number in sorted(self._sections))
        return [*self.lookup(hashes), *(rows for found in of_sections for rows in found)]

    def lookup_newest(self, hashes: pl.Series) -> list[pl.DataFrame]:
        """Do the same, but return the rows of each hash from the newest run only that has it."""
        wanted = _checked(hashes)
        found = []
        for ref in reversed(self._runs):
            if not wanted.size:
                break
            rows = self._rows_of(ref)
            positions, is_found = _positions_of(rows, wanted)
            if positions.size > 0:
                found.append(rows[positions])
                wanted = wanted[~is_found]
        return found[::-1]

    def append(self, frame: pl.DataFrame) -> None:
        """Add one run; an empty frame adds none. The frame must be sorted."""
        if frame.height > 0:
            self._runs.append(self._write(frame, ()))

    def read(self, run: RunRef) -> pl.DataFrame:
        """Return the live rows of any run."""
        return self._rows_of(run)

    def adopt(self, runs: Sequence[RunRef]) -> None:
        """Add runs that other slots wrote, as the newest ones."""
        self._runs.extend(runs)

    def hand_off(self, leave: Callable[[pl.DataFrame], Leaving]) -> Handed:
        """Take out the rows that belong to other slots, and return them by slot, oldest run first.

        What a run loses is marked as gone where a few ranges of hashes say it; else the run is written again.
        """
        handed: Handed = {}
        kept: list[RunRef] = []
        for ref in self._runs:
            rows = self._rows_of(ref)
            if rows.is_empty():
                # All that is left of the file was handed over before: a slot that goes must not keep it.
                continue
            leaving = leave(rows)
            for target in np.unique(leaving.slots).tolist():
                handed.setdefault(target, []).append(rows[leaving.rows[leaving.slots == target]])
            if leaving.stays.all():
                kept.append(ref)
            elif leaving.stays.any():
                kept.append(self._leave(ref, rows, ~leaving.stays))
        self._runs = kept
        for section in self._sections.values():
            for target, frames in section.hand_off(leave).items():
                handed.setdefault(target, []).extend(frames)
        return handed

    def newest(self, count: int) -> list[pl.DataFrame]:
        """Return the live rows of the newest ``count`` runs, oldest of them first."""
        return [self._rows_of(ref) for ref in self._runs[len(self._runs) - count :]]

    def replace_newest(self, count: int, frame: pl.DataFrame, rebuildable: bool = True) -> None:
        """Put one run in the place of the newest ``count``; an empty frame only takes them away.

        The frame must be a merge of those runs and of nothing else: they can stand in for it as long as they are kept,
        unless ``rebuildable`` is said not to hold.
        """
        kept, merged = self._runs[: len(self._runs) - count], self._runs[len(self._runs) - count :]
        sources = tuple(merged) if rebuildable else ()
        self._runs = [*kept, self._write(frame, sources)] if frame.height > 0 else kept

    def replace(self, frame: pl.DataFrame) -> None:
        """Make this frame the whole state; an empty frame leaves no runs."""
        self._runs = [self._write(frame, ())] if frame.height > 0 else []

    def runs(self) -> tuple[RunRef, ...]:
        """Return the runs as they stand now, oldest first, section by section."""
        return (*self._runs, *(ref for number in sorted(self._sections) for ref in self._sections[number].runs()))

    def _leave(self, ref: RunRef, rows: pl.DataFrame, moving: npt.NDArray[np.bool_]) -> RunRef:
        ranges = _ranges_of(rows[HASH].to_numpy(), moving)
        if ranges is None or len(ranges) + len(ref.gone) > MOST_GONE_RANGES:
            return self._write(rows.filter(pl.Series(~moving)), ())
        self._frames.pop(ref.file, None)
        # Ranges are found among the rows that were left, so none lies within an older one, but one may hold it.
        return replace(ref, gone=join_ranges([*ref.gone, *ranges]))

    def _write(self, frame: pl.DataFrame, made_from: tuple[RunRef, ...]) -> RunRef:
        ref = replace(self._writer.write(frame, made_from), section=self._number)
        self._frames[ref.file] = (0, frame)
        return ref

    def _rows_of(self, ref: RunRef) -> pl.DataFrame:
        first, rows = self._frames.get(ref.file) or (ref.first_live, self._reader.read(ref))
        if first != ref.first_live:
            rows = self._reader.read(ref) if ref.gone else rows.slice(ref.first_live - first)
        self._frames[ref.file] = (ref.first_live, rows)
        return rows


def _ranges_of(hashes: npt.NDArray[np.uint64], chosen: npt.NDArray[np.bool_]) -> list[tuple[int, int]] | None:
    """Return the fewest ranges that hold the hashes of all chosen rows and of no other; None if there are none such."""
    distinct, inside = hashes, chosen
    if (hashes[1:] < hashes[:-1]).any():
        # Rows of several windows: each of them is sorted, and all together are not.
        distinct, places, of_row = np.unique(hashes, return_index=True, return_inverse=True)
        inside = chosen[places]
        if (inside[of_row] != chosen).any():
            return None
    elif ((hashes[1:] == hashes[:-1]) & (chosen[1:] != chosen[:-1])).any():
        return None
    edges = np.flatnonzero(np.diff(inside.astype(np.int8), prepend=0, append=0))
    return [(int(distinct[start]), int(distinct[end - 1])) for start, end in zip(edges[::2], edges[1::2], strict=True)]


def join_ranges(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the ranges sorted, with those that overlap made one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _may_be_due(ref: RunRef, window_limit: int) -> bool:
    return ref.min_window is not None and ref.min_window < window_limit


def _rows_before(rows: pl.DataFrame, window_limit: int) -> int:
    return int(np.searchsorted(rows[WINDOW].to_numpy(), window_limit, side="left"))


def _checked(hashes: pl.Series) -> npt.NDArray[np.uint64]:
    if hashes.dtype != pl.UInt64:
        # NumPy would compare them as floats, and miss keys.
        msg = f"hashes are UInt64, these are {hashes.dtype}"
        raise ValueError(msg)
    wanted: npt.NDArray[np.uint64] = hashes.to_numpy()
    return wanted


def _positions_of(
    rows: pl.DataFrame, wanted: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.bool_]]:
    """Return the positions of the rows with a wanted hash, rising, and which of the wanted have some."""
    hashes = rows[HASH].to_numpy()
    if WINDOW not in rows.columns:
        return find_wanted(hashes, wanted)
    found = np.zeros(len(wanted), np.bool_)
    pieces = []
    for start, end in _segments(rows):
        positions, found_here = find_wanted(hashes[start:end], wanted)
        pieces.append(positions.astype(np.int64) + start)
        found |= found_here
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64), found


def _segments(rows: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Yield the stretches of rows within which hashes rise, one a window."""
    windows = rows[WINDOW].to_numpy()
    start = 0
    while start < rows.height:
        end = int(np.searchsorted(windows, windows[start], side="right"))
        yield start, end
        start = end
