"""What a flow's hosts drew: by counters where there are any, else by a curve, idle and asleep included."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.metrics.cluster_load import LoadBook
from anabranch.metrics.energy_book import EnergyBook
from anabranch.model.cluster import Executor
from anabranch.model.energy import Energy
from anabranch.model.measures import BatchMeasures, ExecutorSample, HostLoad, TaskMeasure
from anabranch.model.power import DEFAULT_POWER, EnergyCounter, RaplReading

POWER = {"a": (100, 150, 250, 400), "*": (50, 60, 70, 80)}
BOTH = (Executor("1", "a", 4), Executor("2", "b", 2))


def busy(seconds: Mapping[str, float], **others: float) -> BatchMeasures:
    return BatchMeasures(
        hosts=tuple(HostLoad(host, 1, 2, busy_seconds=spent, **others) for host, spent in seconds.items())
    )


def test_hosts_draw_by_their_own_curve_from_the_end_of_one_batch_to_that_of_the_next() -> None:
    book = EnergyBook(Energy(5, power=POWER))
    first = book.add(busy({"a": 4.0}), BOTH, now_seconds=100.0, batch_seconds=2.0)
    # Half of the four cores of a for 2 s, b idle.
    assert first is not None and first.joules == pytest.approx(2 * 250 + 2 * 50)
    second = book.add(busy({"a": 16.0, "b": 1.0}), BOTH, now_seconds=110.0, batch_seconds=2.0)
    assert second is not None and second.joules == pytest.approx(10 * (150 + 100 * 0.3 / 0.4) + 10 * (50 + 5), rel=0.1)
    assert second.basis == "modelled" and second.low_joules == pytest.approx(0.9 * second.joules)


def test_hosts_that_were_let_go_draw_what_one_does_asleep() -> None:
    book = EnergyBook(Energy(5, power=POWER))
    book.add(None, BOTH, now_seconds=0.0, batch_seconds=1.0)
    drawn = book.add(None, BOTH[:1], now_seconds=10.0, batch_seconds=1.0)
    assert drawn is not None and drawn.joules == pytest.approx(10 * 100 + 10 * 0.02 * 80)


def test_without_a_curve_hosts_draw_as_published_servers_do() -> None:
    drawn = EnergyBook(Energy(5)).add(None, BOTH[1:], now_seconds=0.0, batch_seconds=3.0)
    assert drawn is not None and drawn.source == DEFAULT_POWER.source
    assert drawn.joules == pytest.approx(3 * DEFAULT_POWER.expected.idle_watts)
    assert drawn.low_joules < drawn.joules < drawn.high_joules


def test_counters_tell_when_a_second_sample_comes_and_nothing_is_told_twice() -> None:
    book = EnergyBook(Energy(5, power=POWER))
    counted = {"rapl_joules": 900.0, "rapl_seconds": 10.0}
    one = Executor("1", "a", 4)
    first = book.add(busy({"a": 0.0}, **counted), [one], now_seconds=0.0, batch_seconds=10.0)
    assert first is not None and (first.joules, first.basis) == (900.0, "measured")
    assert first.low_joules == pytest.approx(899.91) and first.high_joules == pytest.approx(900.09)
    # No sample in this batch: what it drew is in the next one.
    assert book.add(busy({"a": 1.0}), [one], now_seconds=10.0, batch_seconds=10.0) is None
    late = {"rapl_joules": 1_800.0, "rapl_seconds": 20.0}
    third = book.add(busy({"a": 1.0}, **late), [one], now_seconds=20.0, batch_seconds=10.0)
    assert third is not None and (third.joules, third.basis) == (1_800.0, "measured")
    # Counters that were not read for too long tell of the last stretch only; the rest is modelled.
    fourth = book.add(busy({"a": 0.0}, rapl_joules=90.0, rapl_seconds=1.0), [one], now_seconds=220.0, batch_seconds=1.0)
    assert fourth is not None and fourth.basis == "modelled"
    assert fourth.joules == pytest.approx(90 + 199 * 100)


def test_what_is_partly_modelled_is_not_called_measured() -> None:
    counted = HostLoad("a", 1, 4, rapl_joules=50.0, rapl_seconds=1.0)
    measures = BatchMeasures(hosts=(counted, HostLoad("b", 1, 2)))
    drawn = EnergyBook(Energy(5, power=POWER)).add(measures, BOTH, now_seconds=0.0, batch_seconds=1.0)
    assert drawn is not None and (drawn.joules, drawn.basis) == (100.0, "modelled")
    assert drawn.source == "RAPL; given by the user"


def test_a_host_has_the_difference_of_its_newest_counters_and_those_of_batches_before() -> None:
    def task(slot: int, executor: str, at: float, microjoules: int) -> TaskMeasure:
        reading = RaplReading(at, {"intel-rapl:0 package-0": EnergyCounter(microjoules, 262_143_328_850)})
        return TaskMeasure(1, slot, executor, "a", 0.1, 0.1, 1, sample=ExecutorSample(rapl=reading))

    book = LoadBook()
    executors = [Executor("1", "a", 1), Executor("2", "a", 1)]
    # The counters are the host's, whichever of its executors reads them.
    (first,) = book.add([task(0, "1", 5.0, 100_000_000), task(1, "2", 5.1, 101_000_000)], executors, 1.0).hosts
    assert (first.rapl_joules, first.rapl_seconds) == (0.0, 0.0)
    (second,) = book.add([task(0, "1", 7.1, 131_000_000)], executors, 1.0).hosts
    assert (second.rapl_joules, second.rapl_seconds) == (pytest.approx(30.0), pytest.approx(2.0))
    (third,) = book.add([TaskMeasure(1, 0, "1", "a", 0.1, 0.1, 1)], executors, 1.0).hosts
    assert third.rapl_seconds == 0.0
