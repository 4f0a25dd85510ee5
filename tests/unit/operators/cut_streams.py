"""One stream, cut into batches by chance: what operators emit in all must not depend on where it was cut.

No row is late, so that nothing but the cut differs: which rows are late is decided by batch, and said so in the guide.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import strategies as st

from anabranch.eventtime.operator_clocks import OperatorClocks
from anabranch.eventtime.windows import last_end_of
from anabranch.model import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    FLOW_CLOCK,
    HASH,
    AggregateSpec,
    Clock,
    DistinctSpec,
    OperatorSpec,
    OperatorTime,
    OrderSpec,
    ProcessSpec,
    RunRef,
    TopKSpec,
)
from anabranch.operators.kernels import make_kernel
from anabranch.operators.processors.declared_state import listed, mapped, value
from anabranch.operators.processors.processor import Processor
from anabranch.routing import hash_keys
from anabranch.state.runs import RunFiles, WriteName
from anabranch.state.slots import RunsOfSlot
from anabranch.state.store import open_store
from unit.operators.moving import AGGREGATES, KEY_CLOCK, SESSION, SLIDING, SPECS, TUMBLING, is_drained
from unit.operators.streams import SCHEMA, SECOND_US, Row, to_frame

DELAY_SECONDS = 2
"""That of KEY_CLOCK: no row is further behind those before it."""


class Timed(Processor):
    """Changes nested state in place by rows and timers, and tells of it."""

    hits = mapped(pl.Int64(), pl.Struct({"n": pl.Int64(), "seen": pl.List(pl.Int64())}))
    last = listed(pl.Struct({"whole": pl.Int64(), "real": pl.Float64()}))
    total = value(pl.Struct({"n": pl.Int64()}), default={"n": 0})

    def on_time(self, row: Any, state: Any, timers: Any) -> Any:
        number = row["whole"] or 0
        kept = state.hits.setdefault(number % 3, {"n": 0, "seen": []})
        kept["n"] += 1
        kept["seen"].append(number)
        state.last.append({"whole": number, "real": row["real"]})
        del state.last[:-3]
        state.total["n"] += 1
        timers.at(row["ts"] + timedelta(seconds=number % 5), tag=str(number % 2))
        yield self._tell("row", state)

    def on_timer(self, timer: Any, state: Any, timers: Any) -> Any:
        for kept in state.hits.values():
            kept["seen"] = kept["seen"][-2:]
        if state.last and timer.tag == "1":
            state.last[0]["whole"] -= 1
        yield self._tell(f"{timer.tag}@{timer.time}", state)

    def _tell(self, what: str, state: Any) -> dict[str, Any]:
        return {"text": f"{what} {state.hits} {state.last} {state.total}"}


GROUP_CLOCK = Clock("group", KEY_CLOCK.delay_us, groups=2)
SLOT_CLOCK = Clock("slot", KEY_CLOCK.delay_us)
TOLD: dict[str, pl.DataType] = {"key": pl.Int64(), "text": pl.String()}
CUT_SPECS: dict[str, OperatorSpec] = {
    **{
        name: spec
        for name, spec in SPECS.items()
        # A time-to-live counts from the watermark of a batch, frames are a batch's, and clocks without a delay have
        # late rows.
        if not isinstance(spec, ProcessSpec) and getattr(spec, "ttl_us", None) is None
        if "group" not in name and "slot" not in name
    },
    "windows by group": AggregateSpec(("key",), AGGREGATES, TUMBLING, "ts", clock=GROUP_CLOCK),
    "windows by slot": AggregateSpec(("key",), AGGREGATES, SLIDING, "ts", clock=SLOT_CLOCK),
    "sessions by group": AggregateSpec(("key",), AGGREGATES, SESSION, "ts", clock=GROUP_CLOCK),
    "sessions by slot": AggregateSpec(("key",), AGGREGATES, SESSION, "ts", clock=SLOT_CLOCK),
    "in order by slot": OrderSpec(("key",), "ts", SLOT_CLOCK),
    "processor by group, in order": ProcessSpec(("key",), Timed(), SCHEMA, TOLD, "ts", GROUP_CLOCK, ordered=True),
    "processor in order": ProcessSpec(("key",), Timed(), SCHEMA, TOLD, "ts", ordered=True),
    "processor by key, in order": ProcessSpec(("key",), Timed(), SCHEMA, TOLD, "ts", KEY_CLOCK, ordered=True),
}


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a stream is cut, and what of each batch chance decides."""

    ends: tuple[int, ...]
    splits: tuple[int, ...]
    """By batch, into how many parts it is read."""
    at_once: tuple[bool, ...]
    """By batch, whether it fires by the watermark that it leaves."""
    combined: tuple[bool, ...]


@st.composite
def streams(draw: st.DrawFn, most_rows: int = 40) -> list[Row]:
    """Return rows that are out of order, but none by more than the delay."""
    rows = []
    reached = draw(st.integers(-20, 20))
    for _ in range(draw(st.integers(0, most_rows))):
        reached += draw(st.sampled_from([0, 0, 1, 1, 2, 6]))
        rows.append(
            Row(
                draw(st.integers(0, 4)),
                reached - draw(st.integers(0, DELAY_SECONDS)),
                draw(st.none() | st.integers(-9, 9)),
                draw(st.none() | st.integers(-40, 40).map(lambda quarters: quarters / 4)),
            )
        )
    return rows


def cuts(most_rows: int = 40) -> st.SearchStrategy[Cut]:
    """Return a way to cut a stream."""
    either = st.lists(st.booleans(), min_size=1, max_size=4).map(tuple)
    return st.builds(
        Cut,
        st.lists(st.integers(0, most_rows), max_size=12).map(tuple),
        st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple),
        either,
        either,
    )


def run_cut(spec: OperatorSpec, rows: Sequence[Row], cut: Cut) -> list[list[dict[str, Any]]]:
    """Return what is emitted by batch; between two batches nothing is left but the slot's files."""
    edges = [0, *sorted(min(end, len(rows)) for end in cut.ends), len(rows)]
    watermark_us = fired_us = BEGINNING_OF_TIME
    clocks = OperatorClocks()
    runs: list[str] = []
    emitted = []
    with tempfile.TemporaryDirectory() as folder:
        for batch, (begin, end) in enumerate([*pairwise(edges), (len(rows), len(rows))]):
            is_last = batch == len(edges) - 1
            if is_last and not is_drained(spec):
                break
            kernel = make_kernel(spec)
            closed_us = watermark_us
            for row in rows[begin:end]:
                watermark_us = max(watermark_us, row.time_us - DELAY_SECONDS * SECOND_US)
            fire_us = watermark_us if cut.at_once[batch % len(cut.at_once)] else closed_us
            fire_us = END_OF_TIME if is_last else max(fire_us, fired_us)
            time = OperatorTime(batch, closed_us, fire_us, 0, fired_us)
            fired_us = fire_us
            if (clock := _clock_of(spec)).per in {"group", "slot"}:
                time = OperatorTime(
                    batch,
                    fire_us=END_OF_TIME if is_last else BEGINNING_OF_TIME,
                    shared=clocks.shared(clock, 1),
                    slot_closed_us=clocks.slot_closed_us(clock, 1),
                ).on_slot(0, clock)
            combined = kernel.mergeable and cut.combined[batch % len(cut.combined)]
            received = []
            for frame in _split(rows[begin:end], cut.splits[batch % len(cut.splits)]):
                prepared = kernel.prepare(frame, time)
                assert not prepared.late_rows
                sent = kernel.combine(prepared.frame) if combined else prepared.frame
                received.append(sent.with_columns(hash_keys(sent, ["key"]).alias(HASH)))
            files = RunFiles(open_store(folder), "state/0/0", WriteName(1, batch, 0, "x"))
            state = RunsOfSlot([RunRef.from_json(run) for run in runs], files, files)
            fired = kernel.advance(received, combined, state, time)
            assert not fired.late_rows
            runs = [run.to_json() for run in state.runs()]
            groups = fired.group_latest_us or {}
            clocks = clocks.advanced(clock, [fired.latest_us], groups, last_end_of(spec), now_us=0)
            clocks = OperatorClocks.from_json(clocks.to_json())
            emitted.append(fired.frame.to_dicts())
    return emitted


def _clock_of(spec: OperatorSpec) -> Clock:
    return getattr(spec, "clock", FLOW_CLOCK)


def _split(rows: Sequence[Row], count: int) -> list[pl.DataFrame]:
    size = max(1, -(-len(rows) // count))
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [to_frame([((number << 36) | at, row) for at, row in enumerate(part)]) for number, part in enumerate(parts)]


def settle(spec: OperatorSpec, emitted: list[list[dict[str, Any]]]) -> Any:
    """Return what is left of a stream of results when it has ended, whatever the batches were that it came in."""
    rows = [row for batch in emitted for row in batch]
    if isinstance(spec, ProcessSpec | OrderSpec):
        return {key: [_plain(row) for row in rows if row["key"] == key] for key in sorted({row["key"] for row in rows})}
    if isinstance(spec, AggregateSpec | TopKSpec) and spec.window is None and spec.count_window is None:
        latest = {}
        for batch in emitted:
            for key in {row["key"] for row in batch}:
                latest[key] = [_plain(row) for row in batch if row["key"] == key]
        return latest
    if isinstance(spec, DistinctSpec):
        return sorted(row["key"] for row in rows)
    return sorted((_plain(row) for row in rows if row.get("emission", "final") == "final"), key=repr)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    # Sums of floats depend on their order in the last digits.
    return {name: round(found, 9) if isinstance(found, float) else found for name, found in row.items()}


def check_cut(spec: OperatorSpec, rows: Sequence[Row], cut: Cut) -> None:
    """Fail unless a stream that is cut so gives what it gives in one batch."""
    whole = Cut((), (1,), (True,), (False,))
    assert settle(spec, run_cut(spec, rows, cut)) == settle(spec, run_cut(spec, rows, whole))
