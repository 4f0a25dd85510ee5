from __future__ import annotations

import pytest

from anabranch.metrics import RunHistory
from anabranch.metrics.history import skew
from unit.cli.builders import batch, history_of


def test_totals_count_batches_that_are_no_longer_kept() -> None:
    history = RunHistory(started_seconds=0.0, kept_batches=2)
    for number in range(5):
        history.add(batch(number, rows_in=10, late_rows=1, slot_rows=(3, 7)), float(number))
    assert [timed.progress.batch for timed in history.recent] == [3, 4]
    assert (history.totals.batches, history.totals.rows_in, history.totals.late_rows) == (5, 50, 5)
    assert history.totals.slot_rows == (15, 35)


def test_a_batch_is_spread_over_the_time_it_took() -> None:
    history = history_of(batch(rows_in=300, batch_seconds=3.0), every_seconds=4.0)
    assert history.throughput(until_seconds=5.0, bin_seconds=1.0, bins=5) == pytest.approx([0, 100, 100, 100, 0])


def test_throughput_loses_no_rows_however_time_is_cut() -> None:
    history = history_of(*(batch(n, rows_in=1000 + n, batch_seconds=0.7) for n in range(9)))
    for bin_seconds in (0.3, 1.0, 2.5):
        bins = int(20 / bin_seconds)
        rates = history.throughput(until_seconds=9.5, bin_seconds=bin_seconds, bins=bins)
        assert sum(rates) * bin_seconds == pytest.approx(history.totals.rows_in)


def test_batches_before_the_first_bin_do_not_count() -> None:
    history = history_of(batch(rows_in=500), batch(1, rows_in=100, batch_seconds=0.5))
    assert history.throughput(until_seconds=2.0, bin_seconds=1.0, bins=1) == pytest.approx([100])


def test_the_rate_of_a_young_run_is_over_its_own_time() -> None:
    history = history_of(batch(rows_in=1000, batch_seconds=1.0))
    assert history.rows_per_second(until_seconds=2.0) == pytest.approx(500)
    assert history.rows_per_second(until_seconds=0.0) == 0


def test_bars_keep_the_last_batch_with_rows_between_ticks() -> None:
    history = history_of(batch(0, slot_rows=(1, 2)), batch(1, rows_in=0, slot_rows=(0, 0)))
    assert history.latest is not None and history.latest.batch == 1
    assert history.latest_with_rows is not None and history.latest_with_rows.batch == 0


def test_slots_that_are_added_later_start_at_nothing() -> None:
    assert history_of(batch(slot_rows=(1, 2)), batch(1, slot_rows=(1, 2, 3))).totals.slot_rows == (2, 4, 3)


def test_a_problem_that_comes_again_is_named_once() -> None:
    history = history_of(batch(problems=("a grew",)), batch(1, problems=("b vanished", "a grew")))
    assert history.problems == ["a grew", "b vanished"]


def test_a_history_without_batches_has_no_figures() -> None:
    history = RunHistory(started_seconds=0.0)
    assert history.latest is None and history.latest_with_rows is None
    assert history.median_batch_seconds() is None
    assert history.throughput(10.0, 1.0, 3) == [0, 0, 0]


def test_skew_is_the_fullest_slot_over_the_mean() -> None:
    assert skew((10, 10, 10)) == pytest.approx(1.0)
    assert skew((30, 0, 0)) == pytest.approx(3.0)
    assert skew((0, 0)) is None
    assert skew(()) is None
