"""Let the first row of each key pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.model import BATCH, HASH, ORDER, SEEN, TIME, Fired, OperatorTime, Prepared, RunRef, SlotState, Standing
from anabranch.operators.aggregates.checks import check_columns
from anabranch.operators.aggregates.grouping import find_earliest, group_rows
from anabranch.operators.aggregates.partials import concatenate, sort_as_run
from anabranch.operators.compaction import compact
from anabranch.operators.keyed.known_keys import newest_by_key, wanted_hashes, without_known
from anabranch.operators.keyed.running import drop_expired

_ENGINE_COLUMNS = (BATCH, HASH, ORDER, SEEN, TIME)
_PLACE = "__place"


class Distinct:
    """Emits a row, with all its columns, if its key was not seen before.

    The time-to-live runs from the row that passed; later rows of the key do not prolong it. In event time, a row
    older than the watermark less the time-to-live is late: nothing is known any more about the keys of its time.
    """

    mergeable = True
    meeting = None

    def __init__(self, keys: Sequence[str], time_column: str | None = None, ttl_us: int | None = None) -> None:
        self._keys = tuple(keys)
        self._time_column = time_column
        self._ttl_us = ttl_us
        self._in_event_time = time_column is not None

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns of the rows themselves."""
        check_columns(input_schema, self._keys, "the key", self._time_column)
        return {column: dtype for column, dtype in input_schema.items() if column not in _ENGINE_COLUMNS}

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        keys = {key: str(input_schema[key]) for key in self._keys}
        return {"kind": "distinct", "ttl_us": self._ttl_us, "keys": keys}

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep all columns of the rows."""
        seen = pl.lit(time.now_us, dtype=pl.Int64)
        if self._time_column is not None:
            seen = pl.col(self._time_column).dt.timestamp("us")
        rows = frame.with_columns(seen.alias(SEEN)).drop(TIME, strict=False)
        if not self._in_event_time:
            return Prepared(rows)
        in_time = drop_expired(rows, self._ttl_us, self._in_event_time, time)
        return Prepared(in_time, late_rows=rows.height - in_time.height)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Keep the first row of each key."""
        if not self._in_event_time:
            # All rows of a batch were seen at the same time.
            earliest = find_earliest(prepared, self._keys, ORDER)
            if earliest is not None:
                return prepared[earliest]
        rank = pl.col(SEEN).cast(pl.Int128) * 2**64 + pl.col(ORDER)
        firsts = group_rows(prepared.with_row_index(_PLACE), self._keys, [pl.col(_PLACE).min_by(rank)])
        return prepared[firsts.get_column(_PLACE).sort()]

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Emit the first row of every key that is not known, and remember the key."""
        frames = [frame for frame in received if frame.height]
        if not frames:
            return Fired(pl.DataFrame())
        arrived = self.combine(concatenate(frames))
        found = state.lookup(wanted_hashes(arrived))
        if found:
            known = drop_expired(self._newest(found), self._ttl_us, self._in_event_time, time)
            arrived = without_known(arrived, known, self._keys)
        if arrived.is_empty():
            return Fired(pl.DataFrame())
        state.append(sort_as_run(arrived.select(*self._keys, HASH, SEEN)))
        compact(state, lambda runs: self._compacted(runs, time))
        return Fired(arrived.drop(_ENGINE_COLUMNS, strict=False))

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept of keys that come here whole."""
        state.adopt(handed)

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row a known key; what has expired since it was written is among them."""
        return sort_as_run(self._newest(runs))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of all slots: each key is on one."""
        return sort_as_run(concatenate(stored))

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the known keys, and when the row that passed was seen."""
        return stored.select(*self._keys, pl.col(SEEN).cast(pl.Datetime("us")).alias("seen"))

    def _newest(self, runs: list[pl.DataFrame]) -> pl.DataFrame:
        return newest_by_key(runs, self._keys)

    def _compacted(self, runs: list[pl.DataFrame], time: OperatorTime) -> pl.DataFrame:
        alive = drop_expired(self._newest(runs), self._ttl_us, self._in_event_time, time)
        return sort_as_run(alive)
