"""Running aggregates per key, without windows: every batch emits the new values of the keys it touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from anabranch.eventtime.key_clocks import PLACE
from anabranch.model import HASH, SEEN, Aggregate, Fired, Meeting, OperatorTime, Prepared, RunRef, SlotState, Standing
from anabranch.operators.aggregates.checks import check_aggregates, describe_aggregates, empty_rows
from anabranch.operators.aggregates.partials import Partials, concatenate, sort_as_run
from anabranch.operators.compaction import compact
from anabranch.operators.keyed.known_keys import newest_by_key, place_keys, wanted_hashes

_TOUCHED = "__touched"


class RunningAggregate:
    """Aggregates from a key's first row on, or since its last silence longer than the time-to-live.

    State rows are totals: the newest run that has a key holds its value. Expired rows count as absent at once
    and are dropped when their runs are compacted.
    """

    mergeable = True
    meets_by_interval = False

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        time_column: str | None = None,
        ttl_us: int | None = None,
    ) -> None:
        self._keys = tuple(keys)
        self._time_column = time_column
        self._ttl_us = ttl_us
        self._partials = Partials(keys, aggregates, time_column)
        self._latest = [pl.col(SEEN).max()] if ttl_us is not None else []

    @property
    def meeting(self) -> Meeting | None:
        """Where parts of a key meet; a silent part must not expire while the key lives on in others."""
        return self if self._ttl_us is None else None

    def output_schema(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
        """Return the columns that ``advance`` emits."""
        check_aggregates(self._partials, input_schema)
        prepared = self.prepare(empty_rows(input_schema), OperatorTime(batch=0)).frame
        return dict(self._partials.finish(self.combine(prepared)).schema)

    def structure(self, input_schema: Mapping[str, pl.DataType]) -> dict[str, object]:
        """Describe what a checkpoint depends on."""
        return {
            "kind": "running aggregate",
            "ttl_us": self._ttl_us,
            **describe_aggregates(self._partials, input_schema),
        }

    def prepare(self, frame: pl.DataFrame, time: OperatorTime) -> Prepared:
        """Keep the columns that are needed; no row is late."""
        return Prepared(self._partials.select_rows(frame, time, self._seen(time)))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Aggregate rows into one partial row per key."""
        return self._partials.combine(prepared, extra=self._latest)

    def advance(
        self,
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Merge the batch into the totals of its keys, and emit these."""
        frames = [frame for frame in received if frame.height]
        if not frames:
            return Fired(pl.DataFrame(), shared=self._parts(None, state, standing))
        arrived = concatenate(frames)
        if not combined:
            arrived = self._partials.combine(arrived, extra=self._latest)
        totals = sort_as_run(self._add_to_known(arrived, state, time))
        state.append(totals)
        compact(state, lambda runs: sort_as_run(self._alive(self._newest(runs), time)))
        shared = self._parts(totals, state, standing)
        if standing is not None and shared is not None:
            totals = totals.filter(~standing.shares(totals[HASH], None))
        return Fired(self._partials.finish(totals), shared=shared)

    def advance_held(
        self,
        held: list[pl.DataFrame],
        received: list[pl.DataFrame],
        combined: bool,
        state: SlotState,
        time: OperatorTime,
        standing: Standing | None = None,
    ) -> Fired:
        """Do the same with rows of earlier batches that waited where they were read."""
        if received and not combined:
            received = [self.combine(concatenate(received))]
        return self.advance([*held, *received], combined=True, state=state, time=time, standing=standing)

    def hold(self, combined: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return combined

    def unite_held(self, held: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a key."""
        return self.unite(held)

    def release(self, held: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return held

    def must_go_until_us(self, time: OperatorTime) -> None:
        """Say that no row ever has to be sent: nothing fires."""
        return

    def must_go(self, held: pl.DataFrame, time: OperatorTime) -> None:
        """Never asked."""
        return

    def next_held_due_us(self, state: SlotState, time: OperatorTime) -> None:
        """Say that nothing is ever due."""
        return

    def with_held(self, stored: list[pl.DataFrame], runs: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a key: what waits are deltas, unlike the totals of slots."""
        return self.unite([*stored, *runs])

    def by_window(self, rows: pl.DataFrame, after_us: int) -> pl.DataFrame:
        """Return the rows as they are: there are no windows."""
        return rows

    def results(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return partial rows as results, row by row."""
        return self._partials.finish(rows)

    def meet(self, shared: list[pl.DataFrame]) -> pl.DataFrame:
        """Merge the parts of each key that at least one slot touched."""
        whole = self._partials.merge(shared, extra=[pl.col(_TOUCHED).any()])
        return self._partials.finish(whole.filter(_TOUCHED))

    def absorb(self, handed: Sequence[RunRef], state: SlotState) -> None:
        """Add what other slots kept to what is here of the same keys: totals replace each other, they do not meet."""
        frames = [state.read(run) for run in handed]
        hashes = pl.concat([frame[HASH] for frame in frames]).unique().sort()
        found = state.lookup(hashes)
        if len(handed) == 1 and not found:
            state.adopt(handed)
            return
        known = [self._newest(found)] if found else []
        state.append(sort_as_run(self._partials.merge([*known, *frames], extra=self._latest)))

    def stored(self, runs: list[pl.DataFrame], passed_us: int) -> pl.DataFrame:
        """Return one row a key; what has expired since it was written is among them."""
        return sort_as_run(self._newest(runs))

    def unite(self, stored: list[pl.DataFrame]) -> pl.DataFrame:
        """Return one row a key."""
        return sort_as_run(self._partials.merge(stored, extra=self._latest))

    def values(self, stored: pl.DataFrame) -> pl.DataFrame:
        """Return the values so far."""
        return self._partials.finish(stored)

    def _seen(self, time: OperatorTime) -> list[pl.Expr]:
        if self._ttl_us is None:
            return []
        if self._time_column is None:
            return [pl.lit(time.now_us, dtype=pl.Int64).alias(SEEN)]
        return [pl.col(self._time_column).dt.timestamp("us").alias(SEEN)]

    def _add_to_known(self, arrived: pl.DataFrame, state: SlotState, time: OperatorTime) -> pl.DataFrame:
        """Return the new totals of the keys of partial rows."""
        wanted = wanted_hashes(arrived)
        # Nearly always, the newest run that has a hash has the key.
        found = state.lookup_newest(wanted)
        keys, known, placed = place_keys(self._keys, concatenate(found) if found else None, arrived)
        # What has expired counts here: it may hide an older run's row of the key that came.
        shares_hash = keys.height > len(wanted)
        if shares_hash:
            found = state.lookup(wanted)
            keys, known, placed = place_keys(self._keys, self._newest(found) if found else None, arrived)
        assert placed is not None
        known = None if known is None else self._alive(known, time)
        rows = [frame.select(placed.columns) for frame in (known, placed) if frame is not None]
        if self._latest:
            firsts = [pl.col(name).first() for name in (HASH, *self._keys)]
            totals = self._partials.merge_groups(concatenate(rows), [PLACE], [*firsts, *self._latest])
        else:
            totals = self._partials.merge_placed(rows, [PLACE])
        if shares_hash:
            # Another key has the hash of one that came: it is not touched.
            totals = totals.join(placed, on=PLACE, how="semi", maintain_order="left")
        return totals.select(*self._keys, HASH, pl.exclude(*self._keys, HASH, PLACE))

    def _parts(self, touched: pl.DataFrame | None, state: SlotState, standing: Standing | None) -> pl.DataFrame | None:
        """Return the totals of all shared keys that are held here: each part counts if any of them was touched.

        Where any key may be shared, that is the whole state of the slot.
        """
        if standing is None:
            return None
        hashes = standing.split_hashes
        found = state.live() if hashes is None else state.lookup(hashes)
        if not found:
            return None
        parts = self._newest(found)
        if hashes is None:
            parts = parts.filter(standing.shares(parts[HASH], None))
        if touched is None:
            return parts.with_columns(pl.lit(False).alias(_TOUCHED))
        mark = touched.select(*self._keys, pl.lit(True).alias(_TOUCHED))
        joined = parts.join(mark, on=self._keys, how="left", maintain_order="left", nulls_equal=True)
        return joined.with_columns(pl.col(_TOUCHED).fill_null(False))

    def _newest(self, runs: list[pl.DataFrame]) -> pl.DataFrame:
        return newest_by_key(runs, self._keys)

    def _alive(self, totals: pl.DataFrame, time: OperatorTime) -> pl.DataFrame:
        return drop_expired(totals, self._ttl_us, self._time_column is not None, time)


def drop_expired(rows: pl.DataFrame, ttl_us: int | None, in_event_time: bool, time: OperatorTime) -> pl.DataFrame:
    """Return the rows that were seen within the time-to-live before this batch.

    In event time that is before the watermark the batch began with: what a drain closes does not expire.
    """
    if ttl_us is None:
        return rows
    return rows.filter(pl.col(SEEN) >= (time.closed_us if in_event_time else time.now_us) - ttl_us)
