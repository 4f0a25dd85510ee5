"""Which strategy to go by: leads, prices, and what chance may not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from anabranch.control.decide.choosing import HYSTERESIS, PLAN, Choice, Round

SLOT_ROWS = 10_000.0


def free(_: str) -> float:
    return 0.0


def sampled(choice: Choice, held: float, scores: Mapping[str, float], times: int = 1) -> Choice:
    for _ in range(times):
        choice = choice.after(Round(SLOT_ROWS, held, scores))
    return choice


def count_samples(held: float, scores: Mapping[str, float], find_cost: Callable[[str], float] = free) -> int | None:
    """Return how many equal samples it takes until another strategy is chosen; None if a hundred are not enough."""
    choice = Choice("hash")
    for samples in range(1, 101):
        choice = sampled(choice, held, {"hash": held, **scores})
        if choice.choose(find_cost) is not None:
            return samples
    return None


def test_a_large_advantage_is_taken_at_once_and_a_small_one_when_it_lasts() -> None:
    assert count_samples(2.6, {"ranges": 1.2}) == 1
    waits = [count_samples(held, {"ranges": 1.2}) for held in (1.6, 1.3, 1.27, 1.25)]
    assert waits == sorted(waits, key=lambda wait: wait or 1_000)
    assert waits[0] == 1 and (waits[-1] or 0) > 5


def test_an_advantage_within_the_hysteresis_is_never_taken() -> None:
    assert count_samples(1.2 * (1 + HYSTERESIS), {"ranges": 1.2}) is None


def test_state_to_carry_must_be_paid_for() -> None:
    waits = [count_samples(1.6, {"ranges": 1.2}, lambda _, cost=cost: cost) for cost in (0, 10_000, 100_000)]
    assert waits == [1, 4, 28]


def test_of_two_that_pay_the_better_is_taken_unless_its_state_costs_more_than_it_brings() -> None:
    choice = sampled(Choice("hash"), 3.0, {"hash": 3.0, "ranges": 1.2, "modulo": 1.3})
    assert choice.choose(free) == "ranges"
    assert choice.choose({"ranges": 5_000.0, "modulo": 0.0}.__getitem__) == "modulo"


def test_equal_ones_are_taken_by_name_and_a_plan_before_all() -> None:
    equal = sampled(Choice("hash"), 3.0, {"hash": 3.0, "ranges": 1.2, "modulo": 1.2})
    assert equal.choose(free) == "modulo"
    assert sampled(Choice("hash"), 3.0, {"hash": 3.0, PLAN: 1.2, "modulo": 1.2}).choose(free) == PLAN


def test_a_strategy_decides_anew_when_that_is_better_than_what_it_has() -> None:
    choice = sampled(Choice("ranges"), 2.0, {"ranges": 1.1, "hash": 1.3})
    assert choice.choose(free) == "ranges"


def test_another_strategy_must_be_better_than_this_one_would_be_anew() -> None:
    choice = sampled(Choice("ranges"), 2.0, {"ranges": 1.1, "hash": 1.09}, times=50)
    assert choice.standings["hash"].lead_rows == 0
    assert choice.choose(free) == "ranges"


def test_once_chosen_it_stays() -> None:
    choice = sampled(Choice("hash"), 2.6, {"hash": 2.6, "ranges": 1.2})
    choice = choice.changed("ranges")
    assert choice.strategy == "ranges"
    choice = sampled(choice, 1.2, {"hash": 2.6, "ranges": 1.2}, times=100)
    assert choice.choose(free) is None


def test_what_a_plan_promises_is_not_passed_over_for_what_is_no_better() -> None:
    choice = sampled(Choice(PLAN), 3.0, {PLAN: 3.0, "ranges": 1.2})
    assert choice.choose(free, promised=1.02) is None
    assert choice.choose(free, promised=2.6) == "ranges"


def test_promises_that_are_not_kept_count_for_less_and_less() -> None:
    scores = {PLAN: 1.5, "ranges": 1.1}
    assert sampled(Choice(PLAN), 1.5, scores, times=10).choose(free, promised=1.02) is None
    assert sampled(Choice(PLAN), 1.5, scores, times=40).choose(free, promised=1.02) == "ranges"


def test_a_new_plan_leaves_others_their_lead_and_another_strategy_does_not() -> None:
    choice = sampled(Choice(PLAN), 1.5, {PLAN: 1.5, "ranges": 1.1}, times=3)
    assert choice.changed(PLAN).standings["ranges"].lead_rows == choice.standings["ranges"].lead_rows > 0
    assert choice.changed("ranges").standings["ranges"].lead_rows == 0


def test_a_strategy_that_cannot_be_tried_any_more_is_forgotten() -> None:
    choice = sampled(Choice("hash"), 3.0, {"hash": 3.0, "ranges": 1.2})
    assert sampled(choice, 3.0, {"hash": 3.0}).choose(free) is None


@pytest.mark.parametrize("noise", [0.005, 0.03, 0.1])
@pytest.mark.parametrize("gap", [0.0, 0.02, HYSTERESIS, 0.05], ids=lambda gap: f"{gap:g} apart")
def test_chance_changes_strategy_once_at_most_in_ten_thousand_samples(noise: float, gap: float) -> None:
    """Three strategies whose scores differ by little, or by no more than chance does."""
    rng = np.random.default_rng([int(1_000 * noise), int(1_000 * gap)])
    means = {"hash": 1.2, "ranges": 1.2 - gap, "modulo": 1.2 - gap / 2}
    draws = rng.normal(0.0, noise, (10_000, len(means)))
    choice, changes = Choice("hash"), []
    for number, row in enumerate(draws):
        scores = {name: max(1.0, mean + float(error)) for (name, mean), error in zip(means.items(), row, strict=True)}
        # What is there is what this strategy decided, so that both have the same.
        choice = choice.after(Round(SLOT_ROWS, scores[choice.strategy], scores))
        chosen = choice.choose(free)
        if chosen is not None:
            changes += [number] if chosen != choice.strategy else []
            choice = choice.changed(chosen)
    assert sum(number >= 10 for number in changes) <= 1
