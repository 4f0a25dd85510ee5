"""As many executors as what comes needs: in one step, no more often than need be, and never for imbalance alone."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.cluster import Executor
from anabranch.model.elasticity import Elasticity
from anabranch.model.loads import LoadError
from anabranch.model.measures import TaskMeasure
from anabranch.placement.elasticity import ClusterReading, ElasticState, decide_size, read_cluster
from property_tests import tries
from unit.placement.clusters import CORES, SECONDS_A_ROW, SimulatedCluster

QUICK = Elasticity(samples_up=1, samples_down=1, seconds_down=0.0, cool_down_seconds=0.0)
ONE_EXECUTOR = CORES / SECONDS_A_ROW
"""Rows a second that make one executor busy all the time."""


def _read(rows_per_second: float, executors: int = 2, now: float = 0.0, **changed: object) -> ClusterReading:
    everyone = tuple(Executor(str(number), f"h{number}", CORES) for number in range(executors))
    reading = ClusterReading(
        now_seconds=now,
        executors=everyone,
        rows=1_000,
        batch_seconds=1.0,
        cpu_seconds={one.id: 1_000 * SECONDS_A_ROW / executors for one in everyone},
        offered_rows_per_second=rows_per_second,
    )
    return replace(reading, **changed)  # type: ignore[arg-type]


def test_the_number_follows_from_what_comes_and_not_from_what_cores_do() -> None:
    # Cores are half busy in the reading; eight times what both can do comes.
    decision = decide_size(QUICK, ElasticState(), _read(8 * ONE_EXECUTOR, executors=2))
    assert decision.action == "grow"
    assert decision.executors == 13, "busy to 61.5 %: one more would bring them below the target of 60 %"
    assert decision.slots == decision.read_tasks == CORES * decision.executors
    assert decision.utilisation == pytest.approx(4.0)
    assert decision.reason == "1,600,000 rows/s take 400% of the cores, more than 80%: 13 executors, not 2"


def test_between_the_thresholds_nothing_changes() -> None:
    for load in (0.45, 0.6, 0.79):
        decision = decide_size(QUICK, ElasticState(), _read(2 * load * ONE_EXECUTOR))
        assert decision.action == "stay"
        assert decision.executors == 2


def test_slots_for_each_executor_may_be_said() -> None:
    settings = replace(QUICK, slots_per_executor=5)
    assert decide_size(settings, ElasticState(), _read(2 * ONE_EXECUTOR)).slots == 5 * 4


def test_what_waits_counts_by_the_time_in_which_it_is_to_be_done() -> None:
    waiting = int(60 * ONE_EXECUTOR * 3)
    decision = decide_size(QUICK, ElasticState(), _read(ONE_EXECUTOR, waiting_rows=waiting))
    assert decision.executors == math.ceil((1 + 3) / 0.8)
    assert "that wait 200%" in decision.reason
    patient = replace(QUICK, catch_up_seconds=600.0)
    assert decide_size(patient, ElasticState(), _read(ONE_EXECUTOR, waiting_rows=waiting)).action == "stay"


def test_memory_counts_as_well_as_cores() -> None:
    executors = tuple(Executor(str(number), "h", CORES, memory_bytes=1_000) for number in range(2))
    full = _read(ONE_EXECUTOR, executors=2, held_bytes=2_500)
    decision = decide_size(QUICK, ElasticState(), replace(full, executors=executors))
    assert (decision.action, decision.executors) == ("grow", 4)
    assert decision.reason == "memory is more than 70% full: 4 executors, not 2"
    idle = replace(_read(0.0, held_bytes=1_300), executors=executors)
    assert decide_size(QUICK, ElasticState(), idle).action == "stay"


def test_there_are_never_fewer_than_the_least_nor_more_than_the_most() -> None:
    settings = replace(QUICK, min_executors=2, max_executors=5)
    assert decide_size(settings, ElasticState(), _read(0.0)).executors == 2
    decision = decide_size(settings, ElasticState(), _read(50 * ONE_EXECUTOR))
    assert decision.executors == 5
    capped = decide_size(settings, decision.state, _read(50 * ONE_EXECUTOR, executors=5, now=1.0))
    assert capped.action == "stay"
    assert "83 executors would do, and there may be 5" in capped.reason
    assert decide_size(settings, ElasticState(), _read(0.0, executors=1)).executors == 2


def test_executors_that_are_too_many_lose_their_slots_first_and_go_a_boundary_later() -> None:
    busy = {"0": 0.3, "1": 0.1, "2": 0.2, "3": 0.1}
    first = decide_size(QUICK, ElasticState(), _read(ONE_EXECUTOR, executors=4, cpu_seconds=busy, rows=70_000))
    assert first.action == "offload"
    assert first.leaving == ("1", "3")
    assert first.executors == 2
    leaving = tuple(replace(one, is_leaving=one.id in first.leaving) for one in _read(0, executors=4).executors)
    second = decide_size(QUICK, first.state, replace(_read(ONE_EXECUTOR, executors=4, now=1.0), executors=leaving))
    assert (second.action, second.leaving, second.executors) == ("release", ("1", "3"), 2)
    third = decide_size(QUICK, second.state, _read(ONE_EXECUTOR, executors=2, now=2.0))
    assert third.action == "stay"
    assert third.state.reconfigurations == 1


def test_executors_that_were_to_go_stay_if_load_comes_back() -> None:
    first = decide_size(QUICK, ElasticState(), _read(ONE_EXECUTOR, executors=4))
    assert first.action == "offload"
    second = decide_size(QUICK, first.state, _read(2.4 * ONE_EXECUTOR, executors=4, now=1.0))
    assert (second.action, second.executors, second.leaving) == ("keep", 4, first.leaving)


def test_imbalance_is_shown_and_never_changes_the_number() -> None:
    uneven = {"0": 2.0, "1": 0.0, "2": 0.0}
    decision = decide_size(
        QUICK, ElasticState(), _read(1.8 * ONE_EXECUTOR, executors=3, cpu_seconds=uneven, rows=200_000)
    )
    assert decision.action == "stay"
    assert decision.executors == 3
    assert decision.deviation == pytest.approx(0.471, abs=1e-3)
    limited = replace(QUICK, cores_per_executor=CORES / 2)
    doubled = decide_size(limited, ElasticState(), _read(0.0, executors=3, cpu_seconds=uneven, rows=200_000))
    assert doubled.deviation == pytest.approx(2 * decision.deviation)


def test_a_quota_counts_where_it_gives_executors_less_than_their_cores() -> None:
    halved = replace(QUICK, cores_per_executor=CORES / 2)
    decision = decide_size(halved, ElasticState(), _read(1.2 * ONE_EXECUTOR, executors=2))
    assert decision.utilisation == pytest.approx(1.2)
    assert (decision.action, decision.executors) == ("grow", 4)
    assert decision.slots == 4 * CORES, "tasks run on the cores that Spark knows of"


@pytest.mark.parametrize(("busy", "executors"), [(0.6, 1), (0.63, 1), (0.66, 2), (2.4, 4), (2.55, 4), (2.8, 5)])
def test_noise_around_the_target_brings_no_executor_more(busy: float, executors: int) -> None:
    assert decide_size(QUICK, ElasticState(), _read(busy * ONE_EXECUTOR, executors=12)).executors == executors


def test_one_batch_is_no_reason_to_grow() -> None:
    settings = Elasticity()
    first = decide_size(settings, ElasticState(), _read(9 * ONE_EXECUTOR))
    assert first.action == "stay"
    back = decide_size(settings, first.state, _read(1.2 * ONE_EXECUTOR, now=1.0))
    assert decide_size(settings, back.state, _read(9 * ONE_EXECUTOR, now=2.0)).action == "stay"


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_step_is_answered_within_three_batches_by_one_change(factor: int) -> None:
    cluster = SimulatedCluster(
        Elasticity(catch_up_seconds=300.0),
        lambda now: ONE_EXECUTOR * 1.2 * (factor if now >= 60 else 1),
        executors=2,
        coming_seconds=5.0,
        noise=0.0,
    )
    cluster.run_until(180)
    grown = [(at, one) for at, one in cluster.changes if one.action == "grow"]
    assert len(grown) == 1
    since_step = [at for at, _ in cluster.decisions if 60 < at <= grown[0][0]]
    assert len(since_step) <= 3
    assert cluster.live == pytest.approx(2 * factor, rel=0.3)
    assert cluster.waiting == 0


@pytest.mark.parametrize("load", [0.4, 0.6, 0.8, 1.0, 1.2, 1.6, 2.4, 3.2, 4.8])
def test_around_a_threshold_half_an_hour_brings_hardly_any_change(load: float) -> None:
    cluster = SimulatedCluster(
        Elasticity(), lambda _: load * ONE_EXECUTOR, executors=3, noise=0.3, seed=round(10 * load)
    )
    cluster.run_until(1_800)
    assert cluster.state.reconfigurations <= 3
    assert not [at for at, _ in cluster.changes if at > 600]


@pytest.mark.parametrize("load", [0.55, 0.75, 1.1, 1.5, 2.3])
def test_batches_that_are_planned_late_by_chance_change_nothing_under_a_steady_load(load: float) -> None:
    cluster = SimulatedCluster(
        Elasticity(catch_up_seconds=300.0),
        lambda _: load * ONE_EXECUTOR,
        executors=math.ceil(load / 0.75),
        noise=0.02,
        planning_seconds=7.0,
        # Else cores wait for plans so long that rows do pile up.
        most_seconds=120.0,
        seed=round(100 * load),
    )
    cluster.run_until(1_800)
    assert cluster.changes == []


def test_a_batch_with_half_of_the_load_before_does_not_make_the_way_down_two_steps() -> None:
    settings = Elasticity(samples_down=3, seconds_down=8.0)
    state, actions = ElasticState(), []
    for batch, load in enumerate([2.4, 1.2, 0.6, 0.6, 0.6, 0.6]):
        decision = decide_size(settings, state, _read(load * ONE_EXECUTOR, executors=4, now=100.0 + 3.0 * batch))
        state = decision.state
        actions.append((decision.action, decision.executors))
    assert actions[-2:] == [("offload", 1), ("release", 1)]
    assert state.reconfigurations == 1


@tries(200)
@given(
    needs=st.lists(st.tuples(st.floats(0.05, 1.4), st.floats(0.5, 20.0)), min_size=1, max_size=30),
    samples=st.integers(1, 5),
    seconds=st.floats(0.0, 60.0),
)
def test_executors_go_to_the_most_that_batches_needed_of_late(
    needs: list[tuple[float, float]], samples: int, seconds: float
) -> None:
    settings = Elasticity(samples_down=samples, seconds_down=seconds, lower=0.4)
    state, now, seen = ElasticState(), 0.0, []
    for load, gap in needs:
        now += gap
        # Four executors, all of which stay below the lower threshold.
        decision = decide_size(settings, state, _read(load * ONE_EXECUTOR, executors=4, now=now))
        alone = replace(QUICK, max_executors=4)
        seen.append(
            (now, decide_size(alone, ElasticState(), _read(load * ONE_EXECUTOR, executors=4, now=now)).executors)
        )
        state = decision.state
        late = [needed for place, (at, needed) in enumerate(seen) if at > now - seconds or place >= len(seen) - samples]
        if decision.action == "offload":
            assert decision.executors == max(late)
            assert len(seen) >= samples
            return
        assert decision.action == "stay"


def test_a_load_that_comes_and_goes_is_followed_up_at_once_and_down_slowly() -> None:
    cluster = SimulatedCluster(
        Elasticity(), lambda now: ONE_EXECUTOR * (4.0 if 300 <= now < 900 else 0.5), executors=1, coming_seconds=5.0
    )
    cluster.run_until(300)
    assert cluster.live == 1
    cluster.run_until(360)
    assert cluster.live >= 7
    cluster.run_until(1_000)
    assert cluster.live >= 6
    cluster.run_until(1_500)
    assert cluster.live == 1
    assert cluster.state.reconfigurations <= 4


def test_a_saw_tooth_faster_than_the_way_down_does_not_make_executors_come_and_go() -> None:
    cluster = SimulatedCluster(
        Elasticity(), lambda now: ONE_EXECUTOR * (3.0 if now % 60 < 30 else 0.5), executors=1, coming_seconds=5.0
    )
    cluster.run_until(1_800)
    assert cluster.state.reconfigurations <= 3


def test_while_executors_are_on_their_way_no_more_are_asked_for() -> None:
    cluster = SimulatedCluster(Elasticity(), lambda _: 5 * ONE_EXECUTOR, executors=1, coming_seconds=25.0, noise=0.0)
    cluster.run_until(28)
    assert [one.action for _, one in cluster.changes] == ["grow"]


@tries(100)
@given(
    load=st.floats(0.01, 60.0),
    executors=st.integers(1, 50),
    target=st.floats(0.3, 0.7),
    gap=st.floats(0.1, 0.25),
)
def test_one_step_is_enough_from_any_number_to_the_right_one(
    load: float, executors: int, target: float, gap: float
) -> None:
    settings = replace(QUICK, target=target, upper=target + gap, lower=target - gap, max_executors=1_000)
    state, live = ElasticState(), executors
    numbers = []
    for batch in range(8):
        reading = _read(load * ONE_EXECUTOR, executors=live, now=float(batch))
        decision = decide_size(settings, state, reading)
        state = decision.state
        numbers.append(decision.executors)
        live = decision.executors if decision.action in ("grow", "release") else live
    assert len(set(numbers)) == 1
    assert state.reconfigurations <= 1
    is_right = settings.lower - 1e-6 <= load / numbers[-1] <= settings.upper + 1e-6
    is_near = target - 1e-6 <= load / numbers[-1] <= 1.08 * target + 1e-6
    assert is_right or is_near or numbers[-1] == max(1, math.ceil(load / target - 1e-9))


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e7), st.integers(1, 6), st.integers(0, 10**9), st.integers(0, 5_000), st.floats(0.1, 30)
        ),
        max_size=20,
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_comes_decisions_keep_to_their_bounds_and_do_not_depend_on_order(
    batches: list[tuple[float, int, int, int, float]], chance: random.Random
) -> None:
    settings = Elasticity(min_executors=1, max_executors=8, samples_down=2, seconds_down=10.0, cool_down_seconds=5.0)
    state, now, last = ElasticState(), 0.0, 0
    for rate, live, waiting, held, seconds in batches:
        now += seconds
        reading = _read(rate, executors=live, now=now, waiting_rows=waiting, held_bytes=held, batch_seconds=seconds)
        decision = decide_size(settings, state, reading)
        shuffled = list(reading.executors)
        chance.shuffle(shuffled)
        turned = dict(reversed(reading.cpu_seconds.items()))
        assert decision == decide_size(settings, state, replace(reading, executors=tuple(shuffled), cpu_seconds=turned))
        assert 1 <= decision.executors <= 8
        assert decision.reason
        assert set(decision.leaving) <= {one.id for one in reading.executors}
        assert len(decision.leaving) < live or decision.action in ("stay", "release", "keep")
        changed = decision.state.reconfigurations - state.reconfigurations
        assert changed == (decision.action in ("grow", "offload", "keep"))
        if not changed and last:
            assert decision.executors == last
        state, last = decision.state, decision.executors


def test_a_reading_adds_up_what_tasks_took_on_each_executor() -> None:
    measures = [
        TaskMeasure(0, 0, "b", "h", 1.0, 2.0, 0),
        TaskMeasure(1, 0, "a", "h", 0.5, 2.0, 0),
        TaskMeasure(1, 1, "b", "h", 0.25, 2.0, 0),
    ]
    reading = read_cluster(
        measures,
        [Executor("b", "h", 1), Executor("a", "h", 1)],
        now_seconds=5.0,
        rows=100,
        batch_seconds=2.0,
        offered_rows_per_second=None,
        waiting_rows=None,
        held_bytes=7,
    )
    assert reading.cpu_seconds == {"a": 0.5, "b": 1.25}
    assert [one.id for one in reading.executors] == ["a", "b"]
    assert (reading.offered_rows_per_second, reading.waiting_rows, reading.held_bytes) == (50.0, 0, 7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": 1.5}, "target is 1.5; it is a share"),
        ({"lower": 0.7}, "lower 0.7, target 0.6 and upper 0.8 must rise"),
        ({"min_executors": 0}, "give at least 1"),
        ({"min_executors": 5, "max_executors": 4}, "no fewer at most than at least"),
        ({"slots_per_executor": 0}, "slots_per_executor is 0"),
        ({"cores_per_executor": 0}, "cores_per_executor is 0; give a number above 0"),
        ({"memory_mb_per_executor": 0}, "memory_mb_per_executor is 0; give a number above 0"),
        ({"samples_up": 0}, "samples_up is 0; a decision needs at least 1 batch"),
        ({"catch_up_seconds": 0}, "catch_up_seconds is 0"),
        ({"cool_down_seconds": -1}, "cool_down_seconds is -1; give 0 for none"),
        ({"imbalance": math.nan}, "imbalance is nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises(LoadError, match=words):
        Elasticity(**given)  # type: ignore[arg-type]
