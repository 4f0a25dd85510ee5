"""State that moves: what a slot hands over and what it keeps are together what was there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from anabranch.model import HASH, WINDOW, RunRef
from anabranch.state import Checkpoint, RunsOfSlot, Store, open_store, runs
from anabranch.state.repair import advance_on_intact_runs, verify
from anabranch.state.runs import RunDamaged, without_gone
from anabranch.state.slots import MOST_GONE_RANGES, join_ranges
from property_tests import tries
from unit.state.builders import HERE, hashes, manifest, places, run_files, slot_over, unwindowed, windowed

Row = tuple[int, int, int]

HASHES = [0, 1, 2, 3, 5, 8, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_verified", {})


def reopened(store: Store, slot: RunsOfSlot, batch: int = 1) -> RunsOfSlot:
    """Return the slot as the next batch finds it: from JSON, with nothing in memory."""
    refs = [RunRef.from_json(json.loads(json.dumps(ref.to_json()))) for ref in slot.runs()]
    return slot_over(store, refs, batch)


def rows_of(frames: Sequence[pl.DataFrame]) -> list[list[tuple[Any, ...]]]:
    return [frame.rows() for frame in frames]


def test_what_belongs_elsewhere_is_handed_over_by_slot_and_run(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(1, 10), (2, 20), (3, 30)]))
    slot.append(unwindowed([(2, 21), (9, 90)]))
    handed = slot.hand_off(places({2: 1, 3: 2}))
    assert {target: rows_of(frames) for target, frames in handed.items()} == {1: [[(2, 20)], [(2, 21)]], 2: [[(3, 30)]]}
    assert rows_of(slot.live()) == rows_of(reopened(store, slot).live()) == [[(1, 10)], [(9, 90)]]


def test_a_run_that_loses_rows_keeps_its_file(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(key, key) for key in range(100)]))
    before = store.list("state")
    slot.hand_off(places({key: 1 for key in range(40, 60)}))
    (ref,) = slot.runs()
    assert ref.gone == ((40, 59),)
    assert store.list("state") == before
    assert slot.lookup(hashes(50)) == []
    assert rows_of(reopened(store, slot).lookup(hashes(39, 50))) == [[(39, 39)]]


def test_a_slot_whose_keys_all_stay_is_as_it_was(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(1, 1)]))
    before = slot.runs()
    assert slot.hand_off(places({})) == {}
    assert slot.runs() == before


def test_a_run_that_loses_all_rows_is_no_more(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(1, 1)]))
    slot.append(unwindowed([(2, 2)]))
    slot.hand_off(places({1: 3}))
    assert rows_of(slot.live()) == [[(2, 2)]]
    assert len(slot.runs()) == 1


def test_a_run_of_which_nothing_is_left_is_no_more_once_its_slot_hands_over(store: Store) -> None:
    """Its later window was handed over, its earlier one has fired: a slot that goes must end up without runs."""
    slot = slot_over(store)
    slot.append(windowed([(0, 1, 1), (10, 2, 2)]))
    slot.hand_off(places({2: 1}))
    slot.drop_due(10)
    later = reopened(store, slot)
    assert [frame.height for frame in later.live()] == [0]
    assert later.hand_off(places({1: 1, 2: 1})) == {}
    assert later.runs() == ()


def test_rows_before_those_that_are_gone_fire_and_are_dropped(store: Store) -> None:
    slot = slot_over(store)
    slot.append(windowed([(0, 1, 1), (0, 2, 2), (0, 3, 3), (10, 1, 4), (10, 2, 5), (20, 2, 6), (20, 3, 7)]))
    slot.hand_off(places({2: 1}))
    assert rows_of(slot.due(10)) == [[(0, 1, 1), (0, 3, 3)]]
    slot.drop_due(10)
    (ref,) = slot.runs()
    # Places count in the file, where the rows that are gone still lie.
    assert (ref.first_live, ref.min_window) == (3, 10)
    assert rows_of(slot.live()) == rows_of(reopened(store, slot).live()) == [[(10, 1, 4), (20, 3, 7)]]
    later = reopened(store, slot)
    later.drop_due(20)
    assert rows_of(later.live()) == [[(20, 3, 7)]]


def test_a_key_that_came_back_does_not_bring_its_old_rows_to_life(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(1, 1), (2, 2)]))
    handed = slot.hand_off(places({2: 1}))
    other = run_files(store, batch=1, slot=1).write(pl.concat(handed[1]))
    back = reopened(store, slot, batch=2)
    back.adopt([other])
    assert rows_of(back.lookup(hashes(2))) == [[(2, 2)]]
    back.hand_off(places({2: 1}))
    assert rows_of(back.live()) == [[(1, 1)]]


def test_adopted_runs_are_the_newest(store: Store) -> None:
    other = run_files(store, batch=1, slot=7).write(unwindowed([(5, 50)]))
    slot = slot_over(store)
    slot.append(unwindowed([(5, 5)]))
    slot.adopt([other])
    assert rows_of(slot.newest(1)) == [[(5, 50)]]
    assert slot.runs()[-1] == other
    assert slot.read(other).rows() == [(5, 50)]


def test_too_many_ranges_write_the_run_again_without_its_history(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(0, 0)]))
    slot.append(unwindowed([(key, key) for key in range(2 * MOST_GONE_RANGES + 4)]))
    slot.replace_newest(2, pl.concat(slot.newest(2)).sort(HASH))
    scattered = {key: 1 for key in range(1, 2 * MOST_GONE_RANGES + 4, 2)}
    (before,) = slot.runs()
    handed = slot.hand_off(places(scattered))
    (ref,) = slot.runs()
    assert ref.file != before.file
    assert (ref.gone, ref.made_from) == ((), ())
    assert sum(frame.height for frame in handed[1]) == len(scattered)
    assert ref.rows == before.rows - len(scattered)


def test_as_many_ranges_as_are_allowed_leave_the_file(store: Store) -> None:
    slot = slot_over(store)
    slot.append(unwindowed([(key, key) for key in range(2 * MOST_GONE_RANGES)]))
    (before,) = slot.runs()
    slot.hand_off(places({key: 1 for key in range(0, 2 * MOST_GONE_RANGES, 2)}))
    (ref,) = slot.runs()
    assert (ref.file, len(ref.gone)) == (before.file, MOST_GONE_RANGES)
    slot.hand_off(places({1: 1}))
    # One range more; next to its neighbours it would fit, but nobody counts on that.
    assert slot.runs()[0].file != before.file
    assert rows_of(slot.live()) == [[(key, key) for key in range(3, 2 * MOST_GONE_RANGES, 2)]]


ROWS = st.lists(st.tuples(st.integers(0, 3).map(lambda n: n * 10), st.sampled_from(HASHES), st.integers(0, 9)))
MOVES = st.dictionaries(st.sampled_from(HASHES), st.integers(0, 3))
STEPS = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("hand off"), MOVES),
    st.tuples(st.just("drop"), st.sampled_from([0, 10, 20, 30, 40])),
    st.tuples(st.just("compact"), st.integers(1, 3)),
    st.tuples(st.just("next batch"), st.none()),
)


@pytest.mark.parametrize("kind", ["local", "memory"])
@given(steps=st.lists(STEPS, max_size=20))
@tries(150, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_handed_over_and_what_stays_is_what_was_there(kind: str, steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder if kind == "local" else f"memory://{folder}")
        slot = slot_over(store)
        held: list[Row] = []
        for number, (step, value) in enumerate(steps):
            if step == "append":
                slot.append(windowed(value))
                held += value
            elif step == "hand off":
                handed = slot.hand_off(places(value))
                for target, frames in handed.items():
                    assert target != HERE
                    expected = [row for row in held if value.get(row[1], HERE) == target]
                    assert sorted(row for frame in frames for row in frame.rows()) == sorted(expected)
                held = [row for row in held if value.get(row[1], HERE) == HERE]
            elif step == "drop":
                due = sorted(row for frame in slot.due(value) for row in frame.rows())
                assert due == sorted(row for row in held if row[0] < value)
                slot.drop_due(value)
                held = [row for row in held if row[0] >= value]
            elif step == "compact" and len(slot.runs()) >= value:
                newest = slot.newest(value)
                slot.replace_newest(value, pl.concat([windowed([]), *newest]).sort(WINDOW, HASH, maintain_order=True))
            else:
                slot = reopened(store, slot, batch=number + 1)
            assert sorted(row for frame in slot.live() for row in frame.rows()) == sorted(held)
            for frame in slot.live():
                places_of_rows = frame.select(WINDOW, HASH)
                assert places_of_rows.equals(places_of_rows.sort(WINDOW, HASH))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (min(pair), max(pair)))))
def test_joined_ranges_hold_the_same_hashes_and_do_not_overlap(ranges: list[tuple[int, int]]) -> None:
    joined = join_ranges(ranges)
    inside = {number for first, last in ranges for number in range(first, last + 1)}
    assert {number for first, last in joined for number in range(first, last + 1)} == inside
    assert all(first > before[1] for before, (first, _) in pairwise(joined))
    rows = unwindowed([(number, number) for number in range(60)])
    assert without_gone(rows, joined)["value"].to_list() == [number for number in range(60) if number not in inside]


def test_ranges_survive_json_to_the_last_bit() -> None:
    ref = RunRef("f", 1, 1, "crc32:0", 0, gone=((0, 0), (2**53 + 1, 2**53 + 3), (2**64 - 2, 2**64 - 1)))
    assert RunRef.from_json(json.loads(json.dumps(ref.to_json()))) == ref


# -- damage --------------------------------------------------------------------------------------------------------


def merged_then_handed(store: Store, moved: dict[int, int]) -> RunRef:
    """Return a run that was merged from three, and then lost rows to another slot."""
    slot = slot_over(store)
    for value in range(3):
        slot.append(windowed([(0, 1, value), (10, 1, value), (10, 2, value), (20, 3, value)]))
    merged = pl.concat(slot.newest(3)).group_by(WINDOW, HASH, maintain_order=True).agg(pl.col("value").sum())
    slot.replace_newest(3, merged.sort(WINDOW, HASH))
    slot.hand_off(places(moved))
    (ref,) = slot.runs()
    assert len(ref.made_from) == 3
    return ref


def test_what_was_handed_over_does_not_come_back_with_the_sources_of_a_damaged_merge(store: Store) -> None:
    ref = merged_then_handed(store, {1: 1})
    store.delete([ref.file])
    recovered = advance_on_intact_runs([ref], run_files(store, 1), lambda state: state.live())
    assert rows_of(recovered.outcome) == [[(10, 2, value), (20, 3, value)] for value in range(3)]
    assert len(recovered.problems) == 1


def test_what_was_handed_over_before_the_merge_stays_away_too(store: Store) -> None:
    slot = slot_over(store)
    for value in range(3):
        slot.append(windowed([(0, 1, value), (10, 2, value), (10, 3, value)]))
    slot.hand_off(places({1: 1}))
    slot.replace_newest(3, pl.concat(slot.newest(3)).sort(WINDOW, HASH, maintain_order=True))
    slot.hand_off(places({3: 1}))
    (ref,) = slot.runs()
    store.delete([ref.file])
    recovered = advance_on_intact_runs(reopened(store, slot).runs(), run_files(store, 1), lambda state: state.live())
    assert rows_of(recovered.outcome) == [[(10, 2, value)] for value in range(3)]


def test_windows_that_fired_and_rows_that_are_gone_both_stay_away(store: Store) -> None:
    ref = merged_then_handed(store, {2: 1})
    slot = slot_over(store, [ref])
    slot.drop_due(10)
    store.delete([ref.file])
    recovered = advance_on_intact_runs(slot.runs(), run_files(store, 1), lambda state: state.live())
    assert rows_of(recovered.outcome) == [[(10, 1, value), (20, 3, value)] for value in range(3)]


def test_damage_that_only_handing_over_finds_is_worked_around(store: Store) -> None:
    ref = merged_then_handed(store, {})
    store.delete([ref.file])
    recovered = advance_on_intact_runs([ref], run_files(store, 1), lambda state: state.hand_off(places({1: 1})))
    assert sorted(row for frame in recovered.outcome[1] for row in frame.rows()) == sorted(
        (window, 1, value) for window in (0, 10) for value in range(3)
    )
    assert len(recovered.problems) == 1


def test_a_damaged_handoff_has_no_second_copy(store: Store) -> None:
    handoff = run_files(store, batch=1, slot=4).write(unwindowed([(1, 1)]))
    store.delete([handoff.file])
    with pytest.raises(RunDamaged, match="is missing"):
        advance_on_intact_runs([], run_files(store, 2), lambda state: [state.read(handoff)])


def test_a_merge_that_lost_rows_can_be_rebuilt_without_them(checkpoint: Checkpoint) -> None:
    store = checkpoint.store
    ref = merged_then_handed(store, {1: 1})
    checkpoint.commit(manifest(0, [ref]))
    store.delete([ref.file])
    assert [problem.rebuildable for problem in verify(checkpoint)] == [True]
    forgotten = replace(ref, made_from=())
    with pytest.raises(RunDamaged):
        advance_on_intact_runs([forgotten], run_files(store, 1), lambda state: state.live())
