"""Batches as large as a target for their latency allows: steady, never swinging, never starving."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, pstdev, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.placement.admission import (
    FEWEST_ROWS,
    START_ROWS,
    BatchTiming,
    CostModel,
    admit,
    begin_admission,
    measure_offered,
)
from property_tests import tries
from unit.placement.plants import Batch, Plant, simulate

TARGET = 2.0


def _p95(batches: list[Batch]) -> float:
    return quantiles([batch.seconds for batch in batches], n=20)[-1]


def _spread(batches: list[Batch]) -> float:
    sizes = [batch.admitted for batch in batches]
    return pstdev(sizes) / fmean(sizes)


@tries(60)
@given(
    fixed=st.floats(0.1, 1.0),
    microseconds=st.floats(0.2, 5.0),
    target=st.sampled_from([1.5, 2.0, 5.0]),
    overhead=st.sampled_from([0.0, 0.5, 0.9]),
    seed=st.integers(0, 10_000),
)
def test_the_target_is_held_and_used_whatever_a_batch_costs(
    fixed: float, microseconds: float, target: float, overhead: float, seed: int
) -> None:
    plant = Plant(fixed, microseconds * 1e-6, overhead_share=overhead)
    batches, _ = simulate(plant, target, 120, seed)
    settled = batches[40:]
    assert _p95(settled) <= 1.1 * target
    assert fmean(batch.seconds for batch in settled) >= 0.7 * target
    assert _spread(settled) < 0.3


@pytest.mark.parametrize("seed", [4181, 9090])
def test_rows_that_are_lost_in_the_noise_do_not_grow_beyond_what_the_target_leaves(seed: int) -> None:
    # Most of a batch is fixed, and its noise is as large as what rows take: a quarter of a million of them is right.
    batches, _ = simulate(Plant(1.0, 1e-6, overhead_share=0.0), 1.5, 120, seed)
    assert max(batch.admitted for batch in batches) < 500_000


def test_without_noise_sizes_come_to_rest() -> None:
    batches, _ = simulate(replace(Plant(), noise=0.0), TARGET, 60)
    assert len({batch.admitted for batch in batches[35:]}) == 1
    assert batches[-1].seconds == pytest.approx(TARGET / 1.1, rel=0.05)


def test_sizes_begin_small_and_at_most_double() -> None:
    batches, _ = simulate(Plant(), TARGET, 30)
    assert batches[0].admitted == START_ROWS
    assert all(later.admitted <= 2 * max(one.rows for one in batches[: place + 1]) for place, later in _pairs(batches))
    assert max(batch.seconds for batch in batches[:10]) < 1.2 * TARGET


def _pairs(batches: list[Batch]) -> list[tuple[int, Batch]]:
    return list(enumerate(batches[1:]))


def test_state_that_grows_makes_batches_smaller() -> None:
    plant = Plant(slower=lambda batch: 1 + 0.02 * batch)
    batches, _ = simulate(plant, TARGET, 120)
    assert _p95(batches[20:]) < 1.15 * TARGET
    assert batches[-1].admitted < 0.5 * batches[20].admitted


def test_a_load_that_rises_fourfold_is_taken_up_without_going_over() -> None:
    plant = Plant(rows_per_second=lambda batch: 200_000 * (1 + 3 * min(1.0, max(0.0, (batch - 40) / 20))))
    batches, _ = simulate(plant, TARGET, 120)
    assert _p95(batches) < 1.1 * TARGET
    assert fmean(batch.rows for batch in batches[90:]) > 3 * fmean(batch.rows for batch in batches[20:40])


def test_where_more_comes_than_fits_latency_is_held_and_it_is_said() -> None:
    plant = Plant(rows_per_second=lambda batch: 300_000.0 if batch < 50 else 1_200_000.0)
    batches, state = simulate(plant, TARGET, 120)
    assert _p95(batches[60:]) < 1.1 * TARGET
    assert "1,200,000 rows/s come" in state.admitted.reason
    assert "what waits at the sources grows" in state.admitted.reason


def test_when_rows_take_four_times_as_long_three_batches_are_over_and_no_more() -> None:
    plant = Plant(slower=lambda batch: 4.0 if batch >= 60 else 1.0)
    batches, _ = simulate(plant, TARGET, 120)
    assert sum(batch.seconds > 1.1 * TARGET for batch in batches) <= 3
    assert _p95(batches[64:]) < 1.1 * TARGET


def test_when_rows_take_a_quarter_sizes_follow_within_ten_batches() -> None:
    plant = Plant(slower=lambda batch: 0.25 if batch >= 60 else 1.0)
    batches, _ = simulate(plant, TARGET, 120)
    assert fmean(batch.seconds for batch in batches[70:]) > 0.7 * TARGET


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fixed", [0.2, 1.0])
def test_when_executors_become_four_batches_have_as_many_rows_within_five(fixed: float, seed: int) -> None:
    plant = Plant(fixed, 50e-6, executors=lambda batch: 4 if batch >= 60 else 1)
    batches, _ = simulate(plant, 4.0, 100, seed)
    before, settled = (fmean(batch.rows for batch in batches[first : first + 15]) for first in (40, 85))
    assert settled > 3 * before
    assert min(batch.rows for batch in batches[65:]) > 0.75 * settled
    assert max(batch.seconds for batch in batches[60:]) < 1.25 * 4.0


@pytest.mark.parametrize("seed", range(5))
def test_when_one_executor_of_four_is_left_one_batch_is_over_and_no_more(seed: int) -> None:
    plant = Plant(1.0, 50e-6, executors=lambda batch: 4 if batch < 60 else 1)
    batches, _ = simulate(plant, 4.0, 100, seed)
    assert sum(batch.seconds > 1.2 * 4.0 for batch in batches[40:]) <= 1


def test_one_batch_that_takes_long_hardly_changes_anything() -> None:
    plant = Plant(slower=lambda batch: 5.0 if batch == 60 else 1.0)
    batches, _ = simulate(plant, TARGET, 120)
    before = fmean(batch.admitted for batch in batches[50:60])
    assert min(batch.admitted for batch in batches[61:80]) > 0.6 * before


@pytest.mark.parametrize("fixed", [2.5, 3.0])
def test_a_target_that_no_batch_can_hold_does_not_bring_the_flow_to_a_stop(fixed: float) -> None:
    batches, state = simulate(replace(Plant(), fixed_seconds=fixed), TARGET, 200)
    assert batches[-1].admitted > 50_000
    assert batches[-1].seconds < 1.4 * fixed
    assert "hardly any rows fit into 2 s" in state.admitted.reason
    assert state.admitted.expected_seconds is not None
    assert state.admitted.expected_seconds > TARGET


def test_sizes_never_fall_below_a_floor() -> None:
    batches, _ = simulate(replace(Plant(), seconds_a_row=0.1), TARGET, 30)
    assert min(batch.admitted for batch in batches) == FEWEST_ROWS


def test_a_start_that_takes_long_does_not_keep_batches_small() -> None:
    # As seen on a busy machine: the third batch of a run took six times as long as the second.
    plant = Plant(fixed_seconds=0.5, seconds_a_row=0.3e-6, slower=lambda batch: 6.0 if batch == 1 else 1.0)
    batches, _ = simulate(plant, TARGET, 30)
    assert max(batch.rows for batch in batches[:15]) > 2_000_000


@pytest.mark.parametrize("seed", range(5))
def test_on_a_machine_that_others_use_batches_grow_all_the_same(seed: int) -> None:
    # 0.7 s and 0.3 µs a row: 3.2 million rows would take 1.67 s.
    plant = Plant(fixed_seconds=0.7, seconds_a_row=0.3e-6, noise=0.0, sigma=0.4)
    batches, _ = simulate(plant, TARGET, 100, seed)
    assert fmean(batch.rows for batch in batches[20:]) > 800_000
    assert fmean(batch.seconds for batch in batches[20:]) < TARGET


def test_empty_batches_say_nothing_of_rows_and_something_of_the_rest() -> None:
    state = begin_admission(TARGET)
    for _ in range(5):
        state = admit(state, BatchTiming(0, 0.4))
    assert state.admitted.rows == START_ROWS
    assert state.admitted.reason == "a batch without rows takes 0.40 s"
    for rows in (10_000, 20_000, 40_000):
        state = admit(state, BatchTiming(rows, 0.4 + 1e-5 * rows))
    assert state.model.fixed_seconds == pytest.approx(0.4, rel=0.1)
    assert state.model.seconds_a_row == pytest.approx(1e-5, rel=0.2)


@given(
    st.lists(st.tuples(st.integers(0, 10**8), st.floats(0.0, 1e4), st.floats(0.0, 1.0)), max_size=40),
    st.floats(0.05, 600.0),
)
def test_whatever_is_seen_the_limit_is_a_number_of_rows(seen: list[tuple[int, float, float]], target: float) -> None:
    state = begin_admission(target)
    for rows, seconds, share in seen:
        state = admit(state, BatchTiming(rows, seconds, share * seconds))
        most = max((earlier for earlier, _, _ in seen), default=0)
        assert FEWEST_ROWS <= state.admitted.rows <= max(START_ROWS, 2 * most)


def test_a_second_odd_batch_is_the_beginning_of_something_new() -> None:
    model = CostModel()
    for _ in range(20):
        model = model.learn(BatchTiming(100_000, 1.0))
    once = model.learn(BatchTiming(100_000, 4.0))
    assert once.expect(100_000) < 1.1
    assert once.learn(BatchTiming(100_000, 4.0)).expect(100_000) == pytest.approx(4.0)


def test_what_is_offered_is_what_came_between_two_plans() -> None:
    assert measure_offered(1_000, waiting=500, waiting_before=300, seconds=2.0) == 600.0
    assert measure_offered(1_000, waiting=None, waiting_before=300, seconds=2.0) is None
    assert measure_offered(1_000, waiting=0, waiting_before=0, seconds=0.0) is None
