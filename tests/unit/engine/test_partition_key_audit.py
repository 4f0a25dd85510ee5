"""A key in two partitions at once is found, and none is found where there is none."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engine.ahead.partition_key_audit import (
    EVERY_KEY,
    MOST_PAIRS,
    AuditedKeys,
    Breach,
    PartitionKeySampler,
    describe_breaches,
)
from anabranch.model import HASH, WINDOW, WindowSpec
from anabranch.routing import hash_keys

SECOND_US = 1_000_000
TUMBLING = WindowSpec("tumbling", 10 * SECOND_US, 10 * SECOND_US)
SLIDING = WindowSpec("sliding", 10 * SECOND_US, 5 * SECOND_US)


def see(rows: Sequence[tuple[int, int]], window: WindowSpec | None, below: int = EVERY_KEY):
    """Return what a slot says of rows of (key, seconds at which their window or pane begins)."""
    frame = pl.DataFrame({"key": [key for key, _ in rows], WINDOW: [seconds * SECOND_US for _, seconds in rows]})
    frame = frame.with_columns(hash_keys(frame, ["key"]).alias(HASH))
    sampler = PartitionKeySampler(["key"], window, below)
    sampler.see(frame)
    report = sampler.report()
    assert report is not None
    return report


def test_a_key_in_two_slots_is_found_with_its_name() -> None:
    _, breaches = AuditedKeys().meet({0: see([(1, 0), (2, 0)], None), 1: see([(2, 0), (3, 0)], None)}, None)
    assert breaches == (Breach("2", None, (0, 1)),)


def test_a_key_may_change_slots_between_windows() -> None:
    seen = {0: see([(1, 0)], TUMBLING), 1: see([(1, 10)], TUMBLING)}
    memory, breaches = AuditedKeys().meet(seen, TUMBLING)
    assert breaches == ()
    _, breaches = memory.meet({1: see([(1, 0)], TUMBLING)}, TUMBLING)
    assert breaches == (Breach("1", 0, (0, 1)),)


def test_overlapping_windows_keep_a_key_in_its_slot() -> None:
    _, breaches = AuditedKeys().meet({0: see([(1, 0)], SLIDING), 1: see([(1, 5)], SLIDING)}, SLIDING)
    assert breaches == (Breach("1", 5 * SECOND_US, (0, 1)),)
    _, breaches = AuditedKeys().meet({0: see([(1, 0)], SLIDING), 1: see([(1, 10)], SLIDING)}, SLIDING)
    assert breaches == ()


def test_what_was_seen_batches_ago_counts_as_long_as_its_window_is_open() -> None:
    memory, _ = AuditedKeys().meet({0: see([(1, 0)], TUMBLING)}, TUMBLING)
    memory = AuditedKeys.from_json(memory.to_json())
    open_still = memory.without_closed(TUMBLING, 9 * SECOND_US)
    assert open_still.meet({1: see([(1, 0)], TUMBLING)}, TUMBLING)[1]
    closed = memory.without_closed(TUMBLING, 10 * SECOND_US)
    assert not closed.meet({1: see([(1, 0)], TUMBLING)}, TUMBLING)[1]


def test_keys_without_windows_are_never_forgotten() -> None:
    memory, _ = AuditedKeys().meet({0: see([(1, 0)], None)}, None)
    assert memory.without_closed(None, 10**15).meet({1: see([(1, 0)], None)}, None)[1]


def test_more_keys_than_can_be_remembered_are_sampled_alike_by_all_slots() -> None:
    keys = 3 * MOST_PAIRS
    memory, breaches = AuditedKeys().meet(
        {0: see([(key, 0) for key in range(keys)], None), 1: see([(keys + key, 0) for key in range(keys)], None)}, None
    )
    assert breaches == ()
    assert memory.below < EVERY_KEY
    assert memory.pairs is not None
    assert memory.pairs.height == MOST_PAIRS
    # Half of the keys break the promise: those of them that are in the sample are found, and none that does not.
    _, breaches = memory.meet({1: see([(key, 0) for key in range(keys)], None, memory.below)}, None)
    assert 0.3 * MOST_PAIRS < len(breaches) < 0.7 * MOST_PAIRS
    assert {int(breach.key) for breach in breaches} <= set(range(keys))


def test_an_error_names_keys_partitions_and_what_to_do() -> None:
    breaches = [Breach("4711", 0, (0, 3)), Breach("12", 0, (1, 2))]
    text = describe_breaches(breaches, ["sensor"], "the partitions of kafka readings (json)")
    for part in ("'4711'", "sensor", "partitions 0 and 3", "1970-01-01", "1 more"):
        assert part in text
    for way_out in ('exchange="routed"', "ab.Partitioner"):
        assert way_out in text


@given(
    batches=st.lists(
        st.dictionaries(
            st.integers(0, 2), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=6), max_size=3
        ),
        max_size=5,
    ),
    kind=st.sampled_from([None, TUMBLING, SLIDING]),
)
def test_exactly_the_keys_are_found_that_two_slots_have_at_once(
    batches: list[dict[int, list[tuple[int, int]]]], kind: WindowSpec | None
) -> None:
    step = 0 if kind is None else kind.slide_us // SECOND_US
    size = 1 if kind is None else kind.size_us // SECOND_US
    memory = AuditedKeys()
    found: set[str] = set()
    seen: set[tuple[int, int, int]] = set()
    for batch in batches:
        placed = {slot: [(key, number * step) for key, number in rows] for slot, rows in batch.items()}
        seen |= {(key, second, slot) for slot, rows in placed.items() for key, second in rows}
        memory, breaches = memory.meet({slot: see(rows, kind) for slot, rows in placed.items() if rows}, kind)
        found = {breach.key for breach in breaches}
        if found:
            # The flow stops here.
            break
    expected = {
        str(key)
        for key, second, slot in seen
        for other, at, elsewhere in seen
        if key == other and slot != elsewhere and abs(second - at) < size
    }
    assert found == expected


@pytest.mark.parametrize("dtype", [pl.String(), pl.Binary(), pl.Date()])
def test_keys_of_any_type_are_named(dtype: pl.DataType) -> None:
    column = pl.Series("key", [1]).cast(pl.Date) if dtype == pl.Date else pl.Series("key", ["a"]).cast(dtype)
    frame = pl.DataFrame([column]).with_columns(hash_keys(pl.DataFrame([column]), ["key"]).alias(HASH))
    seen = []
    for _ in range(2):
        sampler = PartitionKeySampler(["key"], None, EVERY_KEY)
        sampler.see(frame)
        seen.append(sampler.report())
    _, breaches = AuditedKeys().meet(dict(enumerate(seen)), None)
    assert breaches[0].key in ("a", "61", "1970-01-02")
