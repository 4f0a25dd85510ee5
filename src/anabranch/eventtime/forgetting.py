"""Keys that were silent for so long that their clocks are dropped: one time for each group of keys is left of them.

Whether a key is forgotten follows from its row and from a moment that the manifest holds, wherever the row lies and
whether or not it is still in a file. So results do not depend on when runs are merged, or on who has the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anabranch.compiled.hash_order import Hashes, hashes_of, is_among
from anabranch.eventtime.key_clocks import CLOCK, SPOKE, PartTimes, Times, align_split_keys, places_of
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    FORGOTTEN_GROUPS,
    Clock,
    ForgottenClocks,
    OperatorTime,
)

Mask = Callable[[pl.DataFrame], NDArray[np.bool_]]
"""Says something of each row."""
Sweep = Callable[[Mask], Sequence[pl.DataFrame]]
"""Returns the rows of the state that are over, and may write the state anew without them."""

_SAMPLED_ROWS = 4096
_NOBODY: Hashes = np.empty(0, np.uint64)


def is_forgotten(over_us: Times, spoke_us: Times, until_us: int) -> NDArray[np.bool_]:
    """Say of each key whether it is forgotten, by when nothing of it can change any more, and when it last spoke."""
    return (over_us <= until_us) & (spoke_us <= until_us)


@dataclass(frozen=True, slots=True, eq=False)
class Forgetting:
    """Says which rows of the state belong to keys that are forgotten."""

    clock: Clock
    lateness_us: int = 0
    """So long after its watermark passed them, what a key has closed may still change."""
    holds: Mask | None = None
    """Which rows have to stay whatever the time is; those of windows have closed before their key is forgotten."""

    def find(self, rows: pl.DataFrame, until_us: int, shared: Hashes) -> NDArray[np.bool_]:
        """Say of each row whether its key is forgotten; never those that slots share (sorted hashes)."""
        if until_us == BEGINNING_OF_TIME or not self.clock.forgets:
            return np.zeros(rows.height, np.bool_)
        over_us = rows.get_column(CLOCK).fill_null(END_OF_TIME).to_numpy() + self.lateness_us
        found = is_forgotten(over_us, _last_spoke_us(rows), until_us)
        if self.holds is not None and found.any():
            found &= ~self.holds(rows)
        if shared.size and found.any():
            found &= ~is_among(hashes_of(rows), shared)
        return found

    def leave_out(self, rows: pl.DataFrame | None, time: OperatorTime, is_dead: Mask) -> pl.DataFrame | None:
        """Return rows without those that say nothing, and those of keys that were forgotten when the batch began.

        Such rows may be gone from the files or not: whoever has no other is as one that was never there. None for none.
        Parts of keys that the driver tells of stay; they have ``recall_parts``.
        """
        if rows is None or time.forgotten is None:
            return rows
        found = self.find(rows, time.forgotten.until_us, _NOBODY)
        if time.split_keys is not None and found.any():
            # By key, not by hash: one with the hash of a key that the driver tells of may be forgotten.
            told, _ = time.split_keys.find(rows)
            found[told] = False
        found |= is_dead(rows)
        if not found.any():
            return rows
        return None if found.all() else rows.filter(pl.Series(~found))

    def recall_parts(
        self, keys: pl.DataFrame, known: pl.DataFrame | None, came: NDArray[np.bool_], time: OperatorTime
    ) -> tuple[PartTimes | None, pl.DataFrame | None]:
        """Return what the driver tells of keys, and the rows that are known of them; rows have their PLACE.

        A key that was forgotten when the batch began starts anew where rows of it came: nothing is known of it. Where
        none came its parts go by its own time once more, and hear how far it was; it is as forgotten as before.
        """
        parts = align_split_keys(time.split_keys, keys)
        if parts is None or time.forgotten is None or not self.clock.forgets:
            return parts, known
        is_told = parts.clock_us > BEGINNING_OF_TIME
        anew = is_told & came
        anew &= is_forgotten(parts.clock_us + self.lateness_us, parts.spoke_us, time.forgotten.until_us)
        if not anew.any():
            return parts, known
        if known is not None:
            left = known.filter(pl.Series(~anew[places_of(known)]))
            known = left if left.height else None
        return parts.starting(anew), known

    def settle(
        self, written: Sequence[pl.DataFrame], time: OperatorTime, shared: Hashes, is_dead: Mask, sweep: Sweep
    ) -> dict[int, int]:
        """Forget who is silent for too long now; return by group up to when rows of them all are late.

        ``written`` is what this batch wrote, ``is_dead`` says which rows only hide older ones.
        """
        until_us = time.forget_until_us(self.clock)
        if until_us == BEGINNING_OF_TIME:
            return {}
        seen = list(written)
        if time.looks_for_idle(self.clock):
            seen += sweep(lambda rows: self.find(rows, until_us, shared) | is_dead(rows))
        return self._latest_by_group([rows.filter(pl.Series(self.find(rows, until_us, shared))) for rows in seen])

    def wake_us(self, runs: Sequence[pl.DataFrame], time: OperatorTime) -> int | None:
        """Return when, by the wall clock, half of the clocks that are left can be dropped."""
        remembers_us = self.clock.remembers_us
        if remembers_us is None or self.clock.per != "key":
            return None
        until_us = time.forget_until_us(self.clock)
        samples = []
        for run in runs:
            rows = run.select(CLOCK, SPOKE).gather_every(max(1, run.height // _SAMPLED_ROWS)).drop_nulls(CLOCK)
            over_us = np.maximum(rows.get_column(CLOCK).to_numpy() + self.lateness_us, _last_spoke_us(rows))
            samples.append(over_us[over_us > until_us])
        sampled_us = np.sort(np.concatenate(samples)) if samples else np.empty(0, np.int64)
        if not sampled_us.size:
            return None
        return max(int(sampled_us[len(sampled_us) // 2]) + remembers_us, time.next_idle_look_us(remembers_us))

    def _latest_by_group(self, over: Sequence[pl.DataFrame]) -> dict[int, int]:
        latest_us = np.full(FORGOTTEN_GROUPS, BEGINNING_OF_TIME, np.int64)
        for rows in over:
            groups = ForgottenClocks.groups_of(hashes_of(rows))
            np.maximum.at(latest_us, groups, rows.get_column(CLOCK).to_numpy() + self.lateness_us)
        return {int(group): int(latest_us[group]) for group in np.flatnonzero(latest_us > BEGINNING_OF_TIME)}


def _last_spoke_us(rows: pl.DataFrame) -> Times:
    """Return when keys last spoke; those that were let go since have it beyond the end of time."""
    spoke_us: Times = rows.get_column(SPOKE).to_numpy()
    return np.where(spoke_us >= END_OF_TIME, spoke_us - END_OF_TIME, spoke_us)
