"""Whatever moves, splits and merges between slots at every boundary: together they emit what one slot emits."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.decisions import RouteChange
from anabranch.model import OperatorSpec, RoutingTable
from anabranch.operators.kernels import make_kernel
from anabranch.routing import ChoiceSplitter, Routes
from property_tests import tries
from unit.operators import oracle
from unit.operators.many_slots import HashKeys, ManySlots, run_on_slots
from unit.operators.moving import (
    SPECS,
    check_long_stream,
    hash_apart,
    hash_together,
    is_drained,
    make_changes,
)
from unit.operators.streams import Batch, Row, batches_strategy, moments_strategy, run_kernel, times_of


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@tries(5)
@given(
    batches=batches_strategy,
    seed=st.integers(0, 2**32),
    hashes=st.sampled_from([hash_apart, hash_together]),
    first_hop=st.booleans(),
    at_once=moments_strategy,
    combined=st.booleans(),
)
def test_random_routes_at_every_boundary_do_not_change_what_is_emitted(
    spec: OperatorSpec,
    batches: list[Batch],
    seed: int,
    hashes: HashKeys,
    first_hop: bool,
    at_once: list[bool],
    combined: bool,
) -> None:
    times = times_of(batches, first_hop, is_drained(spec), at_once)
    first, changes = make_changes(seed, spec, hashes, len(times))
    got = run_on_slots(ManySlots(spec, first, hashes), batches, times, combined, changes)
    oracle.assert_same(got, run_kernel(make_kernel(spec), batches, times, combined))


@pytest.mark.parametrize("name", SPECS)
def test_two_dozen_batches_with_moves_and_compactions_emit_and_hold_what_one_slot_does(name: str) -> None:
    """Under one seed of each operator; `make soak` takes thousands, and forty batches of each.

    What is read of all slots is what one slot holds, whatever is on its way, and where windows overlap: rows that two
    owners have for a while count once. When the rows of a ttl go is up to each slot.
    """
    slots = check_long_stream(SPECS[name], 0, count=24, reads="ttl" not in name)
    assert slots.moved_rows > 0
    assert slots.meetings > 0 or slots.kernel.meeting is None
    assert slots.transitions > 0 or slots.window is None or slots.window.kind == "session"


@pytest.mark.thorough
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_merged_runs_that_are_damaged_while_keys_move_are_worked_around(spec: OperatorSpec) -> None:
    check_long_stream(spec, 2, damages=True, count=24)


def test_merged_runs_of_sessions_name_nothing_to_fall_back_on() -> None:
    """Fragments that were merged wait together; the single ones would be over while their session goes on."""
    slots = ManySlots(SPECS["session"], Routes.even(1, 8), hash_apart)
    batches = [Batch(((Row(0, second, 1, 1.0),),), second - 3) for second in range(30)]
    for batch, time in zip(batches, times_of(batches, first_hop=True, drain=False), strict=True):
        slots.advance(batch, time, True)
        assert [ref.made_from for ref in slots.runs[0] if ref.made_from] == []
    assert len(slots.runs[0]) < 10


def total_of(
    parts: Sequence[Batch], spec: OperatorSpec, routes: Routes, changes: Sequence[RouteChange | None]
) -> list[int]:
    times = times_of(parts, first_hop=True, drain=is_drained(spec))
    slots = ManySlots(spec, routes, hash_apart)
    outcomes = run_on_slots(slots, parts, times, True, [*changes, *[None] * (len(times) - len(changes))])
    return [row["rows"] for outcome in outcomes for row in outcome.rows]


def split(*slots: int) -> Routes:
    """Return routes over four slots that share key 0 among the given ones."""
    key = int(hash_apart(pl.DataFrame({"key": [0]}))[0])
    return Routes.even(4, 4).with_table(RoutingTable.of({key: {slot: 1 / len(slots) for slot in slots}}))


ONE_KEY = [Batch(((Row(0, second, 1, 1.0),) * 10,), -20) for second in range(4)]


def test_a_running_total_counts_every_part_of_a_key_even_those_that_were_silent() -> None:
    running = SPECS["running"]
    few = [ONE_KEY[0], Batch(((Row(0, 1, 1, 1.0),),), -20), Batch((), -20), ONE_KEY[3]]
    assert total_of(few, running, split(0, 1, 2), []) == [10, 11, 21]


def test_a_key_that_is_split_merged_and_split_again_keeps_its_total() -> None:
    changes = [RouteChange(split(0), "state"), RouteChange(split(1, 2), "state"), RouteChange(split(3), "state")]
    assert total_of(ONE_KEY, SPECS["running"], split(0, 1, 2), changes) == [10, 20, 30, 40]


def test_running_totals_under_a_row_splitter_meet_too() -> None:
    """Any key may be on two slots then, and none is in the routing table."""
    pkg = Routes(Routes.even(4, 32).base, splitter=ChoiceSplitter(4))
    assert total_of(ONE_KEY, SPECS["running"], pkg, []) == [10, 20, 30, 40]
    assert total_of(ONE_KEY, SPECS["running"], pkg, [RouteChange(split(0, 2), "state")]) == [10, 20, 30, 40]


def test_open_windows_stay_with_their_owner_under_the_window_protocol() -> None:
    slots = ManySlots(SPECS["tumbling"], split(0), hash_apart)
    batches = [Batch(((Row(0, 5, 1, 1.0),),), -20), Batch(((Row(0, 7, 1, 1.0), Row(0, 15, 1, 1.0)),), -20)]
    times = times_of([*batches, Batch((), 13), Batch((), 40)], first_hop=True, drain=False)
    slots.advance(batches[0], times[0], True, RouteChange(split(1), "window"))
    assert slots.phases.earlier is not None
    slots.advance(batches[1], times[1], True)
    assert [len(slots.runs[slot]) for slot in (0, 1)] == [2, 1]
    closing = slots.advance(Batch((), 13), times[2], True)
    assert [row["rows"] for row in closing.rows] == [2]
    assert slots.phases.earlier is None
    assert [row["rows"] for row in slots.advance(Batch((), 40), times[3], True).rows] == [1]
    assert slots.moved_rows == 0
