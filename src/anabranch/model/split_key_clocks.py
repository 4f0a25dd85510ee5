"""The watermarks of the few keys that several slots share, where keys have their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.model.columns import HASH
from anabranch.model.frame_texts import frame_from_text, frame_to_text

Times = NDArray[np.int64]

_ROW = "__row"
_TIMES = ("__before", "__clock", "__spoke")


@dataclass(frozen=True, slots=True, eq=False)
class PartedClocks:
    """By key, the time that its parts have together, as of the end of a batch.

    A part sees some of a key's rows only, so its watermark cannot lie with it: the driver keeps it while the key is
    split, and for one batch more, in which the slot that has the key whole again writes it into its state.
    """

    keys: pl.DataFrame
    """One row a key, by hash: HASH and the key columns."""
    before_us: Times
    """The watermark under which the batch took its rows in."""
    clock_us: Times
    """The watermark after it, under which the next one does."""
    spoke_us: Times
    """When the key last had a row, by the wall clock."""

    def __len__(self) -> int:
        return self.keys.height

    def hashes(self) -> NDArray[np.uint64]:
        """Return the hashes of the keys, sorted and unique."""
        hashes: NDArray[np.uint64] = np.unique(self.keys.get_column(HASH).to_numpy())
        return hashes

    def find(self, keys: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the given keys (HASH and key columns) are known, and where they are here."""
        numbered = self.keys.with_row_index(_ROW)
        columns = self.keys.columns
        rows = keys.select(columns).join(numbered, on=columns, how="left", maintain_order="left").get_column(_ROW)
        known = rows.is_not_null().to_numpy()
        return np.flatnonzero(known), rows.drop_nulls().cast(pl.Int64).to_numpy()

    def pick(self, chosen: NDArray[np.bool_]) -> PartedClocks | None:
        """Return the clocks of some of the keys; None for none."""
        if not chosen.any():
            return None
        keys = self.keys.filter(pl.Series(chosen))
        return PartedClocks(keys, self.before_us[chosen], self.clock_us[chosen], self.spoke_us[chosen])

    def to_text(self) -> str:
        """Return plain text, for ledgers and manifests."""
        times = (self.before_us, self.clock_us, self.spoke_us)
        named = [pl.Series(name, values, dtype=pl.Int64) for name, values in zip(_TIMES, times, strict=True)]
        return frame_to_text(self.keys.with_columns(named))

    @classmethod
    def from_text(cls, text: str) -> PartedClocks:
        """Read what ``to_text`` wrote."""
        rows = frame_from_text(text)
        return cls(rows.drop(_TIMES), *(rows.get_column(name).to_numpy() for name in _TIMES))


def follow_parts(
    known: PartedClocks | None, reported: Sequence[PartedClocks], split: Sequence[NDArray[np.uint64]]
) -> PartedClocks | None:
    """Return the clocks after a batch: what was reported counts, else what was known; None if nothing is left.

    ``split`` has the hashes of keys that are, or were until now, on several slots: others keep their time themselves.
    """
    every = [clocks for clocks in (known, *reported) if clocks is not None and len(clocks)]
    hashes = {key for part in split for key in part.tolist()}
    if not every or not hashes:
        return None
    keys = pl.concat([clocks.keys for clocks in every])
    newest = keys.with_row_index(_ROW).unique(keys.columns, keep="last", maintain_order=True)
    kept = newest.filter(pl.col(HASH).is_in(pl.Series(sorted(hashes), dtype=pl.UInt64).implode()))
    kept = kept.sort(HASH, maintain_order=True)
    if kept.is_empty():
        return None
    rows = kept.get_column(_ROW).to_numpy()
    times = (
        np.concatenate([getattr(clocks, name) for clocks in every])[rows]
        for name in ("before_us", "clock_us", "spoke_us")
    )
    return PartedClocks(kept.drop(_ROW), *times)
