"""How even loads are, and how even every strategy makes them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch.model import RouteError
from anabranch.routing import KeySample, Routes, Score, score_all, score_loads, strategy_names
from unit.routing.builders import hashes_of, with_powers


def test_even_loads_score_best() -> None:
    assert score_loads([5, 5, 5]) == Score(balance=1.0, extra_time=0.0, max_over_mean=1.0)
    assert score_loads([0, 0]) == Score(balance=1.0, extra_time=0.0, max_over_mean=1.0)


def test_loads_measured_on_flink_score_as_published() -> None:
    # 60 subtasks; the fullest has 111 % more than the emptiest and needs 60.8 % more time than the mean, balance 0.47.
    mean = 100 / 60
    fullest = 1.608 * mean
    emptiest = fullest / 2.11
    others = [(100 - fullest - emptiest) / 58] * 58
    score = score_loads([emptiest, fullest, *others])
    assert score.balance == pytest.approx(0.474, abs=1e-3)
    assert score.extra_time == pytest.approx(0.608)
    assert score.max_over_mean == pytest.approx(1.608)


def test_loads_are_weighed_by_power() -> None:
    assert score_loads([20, 50, 30], powers=[2, 5, 3]) == Score(1.0, 0.0, 1.0)
    assert score_loads([30, 30], powers=[1, 2]) == Score(balance=0.5, extra_time=0.5, max_over_mean=1.5)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_score_stays_within_its_bounds(loads: list[float]) -> None:
    score = score_loads(loads)
    assert 0 <= score.balance <= 1
    assert score.extra_time >= -1e-9
    assert 1 - 1e-9 <= score.max_over_mean <= len(loads) + 1e-9
    assert score.max_over_mean == pytest.approx(1 + score.extra_time)


@pytest.mark.parametrize("powers", [[1], [1, 0], [1, -1]])
def test_powers_must_fit_the_slots(powers: list[float]) -> None:
    with pytest.raises(RouteError, match="one power above 0 for every slot"):
        score_loads([1, 2], powers)


# All strategies on the four cases of the load distribution paper: keys × data, uniform or not, on 60 slots.
# Uniform keys are dense ids; the others begin with a district's number, and most districts numbered in steps.

SLOTS = 60


def uniform_keys() -> NDArray[np.int64]:
    return np.arange(12_000)


def district_keys() -> NDArray[np.int64]:
    sizes_and_steps = [(5000, 1), (3000, 2), (2500, 5), (1500, 10)]
    return np.concatenate(
        [100_000 * (d + 1) + step * np.arange(size) for d, (size, step) in enumerate(sizes_and_steps)]
    )


def stream(keys: NDArray[np.int64], uniform_data: bool) -> KeySample:
    """Return all rows of a stream; where data is not uniform, a key's rows follow its rank in a random order.

    The hottest key has less than a slot's share: no strategy that leaves keys whole could be even otherwise.
    """
    ranks = np.random.default_rng(3).permutation(len(keys)) + 1
    counts = np.full(len(keys), 80.0) if uniform_data else np.rint(10_000 * ranks**-0.6)
    return KeySample.gather(hashes_of(keys), counts, pl.Series(keys))


CASES = {
    "uniform keys, uniform data": stream(uniform_keys(), uniform_data=True),
    "other keys, uniform data": stream(district_keys(), uniform_data=True),
    "uniform keys, other data": stream(uniform_keys(), uniform_data=False),
    "other keys, other data": stream(district_keys(), uniform_data=False),
}


def balance(case: str, strategy: str) -> float:
    scores = score_all(CASES[case], Routes.even(SLOTS), np.random.default_rng(1), names=[strategy])
    return scores.of(strategy).score.balance


@pytest.mark.parametrize("case", CASES)
def test_hash_is_uneven_in_every_case(case: str) -> None:
    assert balance(case, "hash") < 0.8


def test_modulo_is_even_only_where_keys_and_data_are() -> None:
    assert balance("uniform keys, uniform data", "modulo") > 0.99
    others = [balance(case, "modulo") for case in list(CASES)[1:]]
    assert max(others) < 0.8


def test_least_key_is_even_where_data_is() -> None:
    assert balance("uniform keys, uniform data", "least-key") > 0.99
    assert balance("other keys, uniform data", "least-key") > 0.99
    assert balance("uniform keys, other data", "least-key") < 0.8
    assert balance("other keys, other data", "least-key") < 0.8


@pytest.mark.parametrize("case", CASES)
def test_least_count_that_knows_the_counts_reaches_97_percent_in_every_case(case: str) -> None:
    assert balance(case, "least-count-history") >= 0.97


def sampled_rows(of: KeySample, rows: int, seed: int) -> KeySample:
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(rows, of.counts / of.counts.sum())
    seen = np.flatnonzero(drawn)
    assert of.values is not None
    return KeySample(of.keys[seen], drawn[seen].astype(np.float64), of.values.gather(seen))


@pytest.mark.parametrize("case", ["uniform keys, other data", "other keys, other data"])
def test_history_is_what_makes_least_count_even_on_rows_to_come(case: str) -> None:
    whole = CASES[case]
    known = sampled_rows(whole, 20_000, seed=0)
    for seed in range(1, 200):
        known = sampled_rows(whole, 20_000, seed).remembering(known)
    scores = score_all(whole, Routes.even(SLOTS), np.random.default_rng(1), decided_on=known)
    with_history, without = scores.of("least-count-history").score, scores.of("least-count").score
    assert with_history.balance >= 0.97
    assert without.balance < 0.9
    assert with_history.max_over_mean < without.max_over_mean


# The comparison itself.


def test_every_strategy_is_scored_best_first() -> None:
    scores = score_all(CASES["other keys, other data"], Routes.even(8), np.random.default_rng(1))
    assert sorted(scored.strategy for scored in scores.ranked) == sorted(strategy_names())
    ranks = [scored.score.max_over_mean for scored in scores.ranked]
    assert ranks == sorted(ranks)
    assert scores.refused == {}


def test_score_is_that_of_the_loads_and_the_loads_those_of_the_routes() -> None:
    sample = CASES["uniform keys, other data"]
    for scored in score_all(sample, Routes.even(8), np.random.default_rng(1)).ranked:
        assert scored.loads.sum() == pytest.approx(sample.counts.sum())
        assert scored.score == score_loads(scored.routes.loads(sample))


def test_score_does_not_depend_on_who_else_is_scored() -> None:
    sample, current = CASES["uniform keys, other data"], Routes.even(8)
    together = score_all(sample, current, np.random.default_rng(1)).of("weight-random")
    alone = score_all(sample, current, np.random.default_rng(1), names=["weight-random"]).of("weight-random")
    assert together.score == alone.score


def test_strategy_that_cannot_be_tried_says_why() -> None:
    scores = score_all(KeySample.gather([1, 2, 3]), Routes.even(2), np.random.default_rng(1))
    assert list(scores.refused) == ["ranges"]
    with pytest.raises(RouteError, match="'ranges' has no score: ranges are cut at the quantiles"):
        scores.of("ranges")
    with pytest.raises(RouteError, match="'mine' has no score: it was not tried"):
        scores.of("mine")


def test_weights_follow_the_powers_of_the_slots() -> None:
    keys = np.arange(50_000)
    sample = with_powers(KeySample.gather(hashes_of(keys), values=pl.Series(keys)), 1, 2, 5)
    scores = score_all(sample, Routes.even(3), np.random.default_rng(1))
    for name in ("weight-hash", "weight-random", "least-count", "least-key", "ranges"):
        assert scores.of(name).score.balance > 0.95
    assert scores.of("hash").score.balance < 0.25
