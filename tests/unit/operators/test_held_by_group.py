"""Rows that wait, of keys whose watermarks are kept per group: results are those of rows that are sent at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import AggregateSpec, WindowSpec
from anabranch.model.exchanges import HoldSpec
from anabranch.query.merging import why_not_held
from property_tests import tries
from unit.operators.key_time_oracle import KeyTimeOracle, KeyTimeSessions, as_rows
from unit.operators.oracle import place
from unit.operators.streams import EPOCH, SECOND_US, Batch, batches_strategy
from unit.operators.streams_by_key import AGGREGATES, group_times, shape, time_of_group
from unit.operators.test_buffered_premerge import Buffers, clocked, hold_choices, reader_counts

SHAPES = [(10, 10, 0), (10, 5, 0), (12, 4, 1), (9, 6, 2), (7, 7, 3)]


def emitted(row: dict[str, Any]) -> tuple[Any, ...]:
    start, end = ((row[name] - EPOCH) // timedelta(microseconds=1) for name in ("window_start", "window_end"))
    return start, end, row["key"], "final", (row["rows"], row["total"])


def check(
    window: WindowSpec,
    oracle: type[KeyTimeOracle],
    batches: list[Batch],
    holds: list[HoldSpec | None],
    readers: list[int],
    data: st.DataObject,
) -> None:
    """Fail unless every batch emits what the oracle does, and finds as many rows late."""
    clock, drawn = data.draw(group_times(len(batches)))
    times = clocked(batches, drawn)
    spec = AggregateSpec(("key",), AGGREGATES, window, "ts", clock=clock)
    assert why_not_held(spec) is None
    buffers, expected = Buffers(spec, holds), oracle(window, clock, time_of_group)
    for batch, time, count in zip([*batches, Batch((), 0)], times, readers, strict=False):
        rows = place(time.batch, batch) if time.batch < len(batches) else []
        finals, late, _ = expected.advance(rows, time)
        got = buffers.run(batch, time, count)
        assert (sorted(map(emitted, got.rows)), got.late_rows) == (as_rows(finals, shape), late), time.batch
    assert not buffers.held, "a drain leaves nothing held"


@tries(40)
@given(
    sizes=st.sampled_from(SHAPES), batches=batches_strategy, holds=hold_choices, readers=reader_counts, data=st.data()
)
def test_windows_in_the_time_of_a_group_answer_as_without_holding(
    sizes: tuple[int, int, int],
    batches: list[Batch],
    holds: list[HoldSpec | None],
    readers: list[int],
    data: st.DataObject,
) -> None:
    size_us, slide_us, offset_us = (seconds * SECOND_US for seconds in sizes)
    window = WindowSpec("tumbling" if size_us == slide_us else "sliding", size_us, slide_us, offset_us)
    check(window, KeyTimeOracle, batches, holds, readers, data)


@tries(40)
@given(
    gap_seconds=st.sampled_from([1, 5, 12]),
    batches=batches_strategy,
    holds=hold_choices,
    readers=reader_counts,
    data=st.data(),
)
def test_sessions_in_the_time_of_a_group_answer_as_without_holding(
    gap_seconds: int, batches: list[Batch], holds: list[HoldSpec | None], readers: list[int], data: st.DataObject
) -> None:
    gap_us = gap_seconds * SECOND_US
    check(WindowSpec("session", gap_us, gap_us), KeyTimeSessions, batches, holds, readers, data)
