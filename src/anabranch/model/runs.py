"""State as immutable sorted runs, and what a kernel may do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RunRef:
    """One immutable run of one operator's slot, as the manifest names it.

    ``first_live`` is the number of leading rows that are gone already (their windows fired):
    runs are sorted by (window, hash), so what fired is always a prefix. ``min_window`` is that of the first live row.
    ``made_from`` names the runs that a compaction merged, while they can still rebuild this one. ``gone`` has the
    ranges of hashes, first and last, whose rows were handed to another slot: they lie in the file, and do not count.
    ``section`` tells runs of different columns apart, where an operator has such.
    """

    file: str
    rows: int
    bytes: int
    checksum: str
    batch: int
    first_live: int = 0
    min_window: int | None = None
    max_window: int | None = None
    made_from: tuple[RunRef, ...] = ()
    gone: tuple[tuple[int, int], ...] = ()
    section: int = 0

    @property
    def live_rows(self) -> int:
        """The rows that have not fired; those that are gone are among them until the run is merged with others."""
        return self.rows - self.first_live

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        data: dict[str, Any] = {
            "file": self.file,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "batch": self.batch,
        }
        if self.first_live:
            data["first_live"] = self.first_live
        if self.min_window is not None:
            data["windows"] = [self.min_window, self.max_window]
        if self.made_from:
            data["made_from"] = [ref.to_json() for ref in self.made_from]
        if self.gone:
            # JSON numbers end at 2**53 in many readers.
            data["gone"] = [[f"{first:016x}", f"{last:016x}"] for first, last in self.gone]
        if self.section:
            data["section"] = self.section
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunRef:
        """Read what ``to_json`` wrote."""
        windows = data.get("windows") or (None, None)
        return cls(
            file=data["file"],
            rows=data["rows"],
            bytes=data["bytes"],
            checksum=data["checksum"],
            batch=data["batch"],
            first_live=data.get("first_live", 0),
            min_window=windows[0],
            max_window=windows[1],
            made_from=tuple(cls.from_json(ref) for ref in data.get("made_from", ())),
            gone=tuple((int(first, 16), int(last, 16)) for first, last in data.get("gone", ())),
            section=data.get("section", 0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """Which rows of a slot stay there, and which go where; a row may go to several slots, and stay all the same."""

    stays: NDArray[np.bool_]
    rows: NDArray[np.int64]
    """The places of those that go, and to which slot each."""
    slots: NDArray[np.int32]

    @classmethod
    def to(cls, slots: NDArray[np.int32], slot: int) -> Leaving:
        """Return that each row goes to one slot, which may be the one it is on."""
        stays = slots == slot
        rows = np.flatnonzero(~stays)
        return cls(stays, rows, slots[rows])


class RunReader(Protocol):
    """Reads a run's live rows, without those that are gone; raises ``StateDamaged`` when the bytes are not those of
    the manifest."""

    def read(self, ref: RunRef) -> pl.DataFrame: ...


class RunWriter(Protocol):
    """Writes a frame, already sorted, as a new run."""

    def write(self, frame: pl.DataFrame, made_from: Sequence[RunRef] = ()) -> RunRef: ...


class SlotState(Protocol):
    """The state of one operator on one slot, as a kernel sees it within one batch.

    Frames are sorted by (window, hash) or, without windows, by hash. Nothing is lost if the task dies:
    the changes exist only once the driver's manifest names the resulting runs.
    """

    changes_hands: bool
    """Whether parts of the state come from other slots or go to them in this batch, which is work enough for it."""

    def section(self, number: int) -> SlotState:
        """Return the runs of a section as a state of their own; its frames have columns of their own."""
        ...

    def live(self) -> list[pl.DataFrame]:
        """Return the live rows of every run, oldest run first."""
        ...

    def due(self, window_limit: int) -> list[pl.DataFrame]:
        """Return the rows with window < limit of every run, oldest first, without dropping them."""
        ...

    def drop_due(self, window_limit: int) -> None:
        """Forget the rows with window < limit."""
        ...

    def lookup(self, hashes: pl.Series) -> list[pl.DataFrame]:
        """Return the rows whose hash is among the (sorted, unique) hashes, oldest run first, by search, not scan."""
        ...

    def lookup_newest(self, hashes: pl.Series) -> list[pl.DataFrame]:
        """Do the same, but return the rows of each hash from the newest run only that has it."""
        ...

    def append(self, frame: pl.DataFrame) -> None:
        """Add one run; an empty frame adds none. The frame must be sorted."""
        ...

    def read(self, run: RunRef) -> pl.DataFrame:
        """Return the live rows of any run."""
        ...

    def adopt(self, runs: Sequence[RunRef]) -> None:
        """Add runs that other slots wrote, as the newest ones."""
        ...

    def newest(self, count: int) -> list[pl.DataFrame]:
        """Return the live rows of the newest ``count`` runs, oldest of them first."""
        ...

    def replace_newest(self, count: int, frame: pl.DataFrame, rebuildable: bool = True) -> None:
        """Put one run in the place of the newest ``count`` (a compaction); an empty frame only takes them away.

        ``rebuildable``: at any later time, those runs would do in its place."""
        ...

    def replace(self, frame: pl.DataFrame) -> None:
        """Make this frame the whole state (a compaction or a rewrite); an empty frame leaves no runs."""
        ...

    def runs(self) -> tuple[RunRef, ...]:
        """Return the runs as they stand now, oldest first."""
        ...
