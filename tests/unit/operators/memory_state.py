"""A slot's state in memory, that refuses what a real one would suffer from in silence."""

from __future__ import annotations

import polars as pl

from anabranch.model import HASH, WINDOW, RunRef


class MemoryState:
    """A ``SlotState`` as a list of frames."""

    def __init__(self) -> None:
        self._runs: list[pl.DataFrame] = []
        self.compactions = 0
        self.changes_hands = False

    def live(self) -> list[pl.DataFrame]:
        return list(self._runs)

    def due(self, window_limit: int) -> list[pl.DataFrame]:
        found = [run.filter(pl.col(WINDOW) < window_limit) for run in self._runs]
        return [frame for frame in found if frame.height]

    def drop_due(self, window_limit: int) -> None:
        kept = [run.filter(pl.col(WINDOW) >= window_limit) for run in self._runs]
        self._runs = [run for run in kept if run.height]

    def lookup(self, hashes: pl.Series) -> list[pl.DataFrame]:
        assert hashes.dtype == pl.UInt64
        assert hashes.is_sorted() and hashes.n_unique() == hashes.len(), "hashes must be sorted and unique"
        found = [run.filter(pl.col(HASH).is_in(hashes.implode())) for run in self._runs]
        return [frame for frame in found if frame.height]

    def lookup_newest(self, hashes: pl.Series) -> list[pl.DataFrame]:
        assert hashes.dtype == pl.UInt64
        found: list[pl.DataFrame] = []
        for run in reversed(self._runs):
            older = run.filter(pl.col(HASH).is_in(hashes.implode()))
            for newer in found:
                older = older.filter(~pl.col(HASH).is_in(newer[HASH].implode()))
            if older.height:
                found.append(older)
        return found[::-1]

    def append(self, frame: pl.DataFrame) -> None:
        _check_sorted(frame)
        if self._runs:
            assert frame.schema == self._runs[0].schema, "every run of an operator has the same columns"
        if frame.height:
            self._runs.append(frame)

    def newest(self, count: int) -> list[pl.DataFrame]:
        return self._runs[len(self._runs) - count :]

    def replace_newest(self, count: int, frame: pl.DataFrame, rebuildable: bool = True) -> None:
        _check_sorted(frame)
        assert frame.schema == self._runs[0].schema
        self.compactions += 1
        self._runs = self._runs[: len(self._runs) - count] + ([frame] if frame.height else [])

    def replace(self, frame: pl.DataFrame) -> None:
        self.replace_newest(len(self._runs), frame)

    def runs(self) -> tuple[RunRef, ...]:
        return tuple(_ref(number, run) for number, run in enumerate(self._runs))


def _ref(number: int, run: pl.DataFrame) -> RunRef:
    windows = (run[WINDOW][0], run[WINDOW][-1]) if WINDOW in run.columns else (None, None)
    return RunRef(f"run-{number}", run.height, 0, "", number, min_window=windows[0], max_window=windows[1])


def _check_sorted(frame: pl.DataFrame) -> None:
    by = [WINDOW, HASH] if WINDOW in frame.columns else [HASH]
    places = frame.select(by)
    assert places.equals(places.sort(by)), f"a run must be sorted by {by}"
