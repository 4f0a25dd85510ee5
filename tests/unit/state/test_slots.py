from __future__ import annotations

import tempfile
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from anabranch.model import HASH, WINDOW, RunRef
from anabranch.state import RunsOfSlot, Store, open_store
from property_tests import tries
from unit.state.builders import hashes, run_files, unwindowed, windowed

Row = tuple[int, int, int]


def slot_over(store: Store, runs: tuple[RunRef, ...] = (), batch: int = 0) -> RunsOfSlot:
    files = run_files(store, batch)
    return RunsOfSlot(runs, files, files)


def rows_of(frames: list[pl.DataFrame]) -> list[list[tuple[Any, ...]]]:
    return [frame.rows() for frame in frames]


def test_a_slot_without_runs_has_no_rows(store: Store) -> None:
    slot = slot_over(store)
    assert (slot.live(), slot.due(10**9), slot.lookup(hashes(1)), slot.newest(0), slot.runs()) == ([], [], [], [], ())


def test_an_empty_frame_adds_no_run(store: Store) -> None:
    slot = slot_over(store)
    slot.append(windowed([]))
    assert slot.runs() == ()


def test_dropping_moves_the_beginning_and_writes_nothing(store: Store) -> None:
    slot = slot_over(store)
    slot.append(windowed([(0, 1, 1), (0, 2, 2), (10, 1, 3)]))
    files_before = store.list("state")
    slot.drop_due(10)
    (ref,) = slot.runs()
    assert (ref.first_live, ref.rows, ref.live_rows, ref.min_window) == (2, 3, 1, 10)
    assert store.list("state") == files_before
    assert rows_of(slot_over(store, slot.runs()).live()) == [[(10, 1, 3)]]


def test_a_run_whose_rows_are_all_dropped_is_gone_without_being_read(store: Store) -> None:
    slot = slot_over(store)
    slot.append(windowed([(0, 1, 1), (10, 2, 2)]))
    runs = slot.runs()
    store.delete([ref.file for ref in runs])
    later = slot_over(store, runs)
    later.drop_due(11)
    assert later.runs() == ()


def test_a_run_with_nothing_due_is_not_opened(store: Store) -> None:
    slot = slot_over(store)
    slot.append(windowed([(10, 2, 2)]))
    runs = slot.runs()
    store.delete([ref.file for ref in runs])
    later = slot_over(store, runs)
    assert later.due(10) == []
    later.drop_due(10)
    assert later.runs() == runs


def test_lookup_finds_a_key_in_every_window_and_run(store: Store) -> None:
    slot = slot_over(store)
    slot.append(windowed([(0, 1, 1), (0, 5, 2), (10, 5, 3)]))
    slot.append(windowed([(20, 7, 4)]))
    slot.append(windowed([(10, 5, 5)]))
    assert rows_of(slot.lookup(hashes(4, 5, 6))) == [[(0, 5, 2), (10, 5, 3)], [(10, 5, 5)]]


def test_lookup_finds_colliding_keys_together(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(1, 1), (2, 2), (2, 3), (2, 4), (9, 5)]))
    assert rows_of(slot.lookup(hashes(0, 2, 9))) == [[(2, 2), (2, 3), (2, 4), (9, 5)]]


def test_lookup_compares_hashes_beyond_53_bits_exactly(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(2**63, 1), (2**63 + 1, 2), (2**64 - 1, 3)]))
    assert rows_of(slot.lookup(hashes(2**63 + 1, 2**64 - 2))) == [[(2**63 + 1, 2)]]


def test_lookup_refuses_signed_hashes(store: Store) -> None:
    with pytest.raises(ValueError, match="UInt64"):
        slot_over(store).lookup(pl.Series([1], dtype=pl.Int64))


def test_a_compaction_remembers_what_it_merged_and_a_rewrite_does_not(store: Store) -> None:
    slot = slot_over(store)
    for value in range(4):
        slot.append(unwindowed([(1, value)]))
    before = slot.runs()
    slot.replace_newest(3, unwindowed([(1, 6)]))
    assert slot.runs()[0] == before[0]
    assert slot.runs()[1].made_from == before[1:]
    slot.replace(unwindowed([(1, 100)]))
    assert [ref.made_from for ref in slot.runs()] == [()]
    slot.replace(unwindowed([]))
    assert slot.runs() == ()


def test_replacing_the_newest_by_nothing_takes_them_away(store: Store) -> None:
    slot = slot_over(store)
    for value in range(3):
        slot.append(unwindowed([(1, value)]))
    slot.replace_newest(2, unwindowed([]))
    assert rows_of(slot.live()) == [[(1, 0)]]


class PlainRuns:
    """The same state as plain lists of (window, hash, value), one a run."""

    def __init__(self) -> None:
        self.runs: list[list[Row]] = []

    def append(self, rows: list[Row]) -> None:
        if rows:
            self.runs.append(rows)

    def drop_due(self, limit: int) -> None:
        kept = [[row for row in run if row[0] >= limit] for run in self.runs]
        self.runs = [run for run in kept if run]

    def due(self, limit: int) -> list[list[Row]]:
        found = [[row for row in run if row[0] < limit] for run in self.runs]
        return [run for run in found if run]

    def lookup(self, wanted: set[int]) -> list[list[Row]]:
        found = [[row for row in run if row[1] in wanted] for run in self.runs]
        return [run for run in found if run]

    def replace_newest(self, count: int, rows: list[Row]) -> None:
        self.runs = self.runs[: len(self.runs) - count]
        self.append(rows)


HASHES = st.sampled_from([0, 1, 2, 3, 2**63 - 1, 2**63, 2**64 - 1])
ROWS = st.lists(st.tuples(st.integers(-5, 15), HASHES, st.integers(0, 9)), max_size=12)
STEPS = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("drop"), st.integers(-6, 16)),
    st.tuples(st.just("due"), st.integers(-6, 16)),
    st.tuples(st.just("lookup"), st.sets(HASHES)),
    st.tuples(st.just("compact"), st.integers(0, 4)),
    st.tuples(st.just("rewrite"), ROWS),
    st.tuples(st.just("next batch"), st.none()),
)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[:2])


@pytest.mark.parametrize("kind", ["local", "memory"])
@given(steps=st.lists(STEPS, max_size=25))
@tries(150, suppress_health_check=[HealthCheck.too_slow])
def test_a_slot_behaves_like_plain_lists(kind: str, steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder if kind == "local" else f"memory://{folder}")
        slot, plain = slot_over(store), PlainRuns()
        for number, (step, value) in enumerate(steps):
            if step == "append":
                slot.append(windowed(value))
                plain.append(in_order(value))
            elif step == "drop":
                slot.drop_due(value)
                plain.drop_due(value)
            elif step == "due":
                assert rows_of(slot.due(value)) == plain.due(value)
            elif step == "lookup":
                assert rows_of(slot.lookup(hashes(*sorted(value)))) == plain.lookup(value)
            elif step == "compact":
                count = min(value, len(plain.runs))
                newest = slot.newest(count)
                assert rows_of(newest) == plain.runs[len(plain.runs) - count :]
                merged = pl.concat([windowed([]), *newest]).sort(WINDOW, HASH, maintain_order=True)
                slot.replace_newest(count, merged)
                plain.replace_newest(count, merged.rows())
            elif step == "rewrite":
                slot.replace(windowed(value))
                plain.replace_newest(len(plain.runs), in_order(value))
            else:
                slot = slot_over(store, slot.runs(), batch=number + 1)
            assert sum(ref.live_rows for ref in slot.runs()) == sum(len(run) for run in plain.runs)
        assert rows_of(slot_over(store, slot.runs()).live()) == plain.runs
