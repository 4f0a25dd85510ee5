"""Table 9 in the lab: triggers that switch strategies, beside strategies that never do."""

from __future__ import annotations

from io import StringIO

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from anabranch.routing import ModuloRoute, Routes
from benchmarks.skew.report import SkewReport, print_report
from benchmarks.skew.switching.lab import Lab, rows_a_second
from benchmarks.skew.switching.table import (
    CHANGES_A_MINUTE,
    TRIGGERS,
    ChangingData,
    SwitchingRun,
    compute_switching_figures,
    make_lab,
    run_fixed,
    run_trigger,
)


def test_a_batch_takes_as_long_as_its_busiest_slot() -> None:
    lab = Lab(pl.Series([0, 1, 2, 3]), 2, seed=1, rows_a_batch=1_000, seconds_a_row=1e-3)
    even, uneven = (
        lab.run(None, Routes(ModuloRoute(2)), lambda _, w=w: np.array(w), batches=3)
        for w in ([1, 1, 1, 1], [1, 0, 1, 0])
    )
    assert [batch.seconds for batch in uneven] == [1.0] * 3
    assert rows_a_second(even) > 1.8 * rows_a_second(uneven) == 1_800


def test_state_that_moves_takes_time() -> None:
    times = []
    for seconds_a_byte in (0.0, 1e-5):
        lab = make_lab(3)
        lab.seconds_a_byte = seconds_a_byte
        hot = np.where(np.arange(len(lab.values)) % lab.slots == 0, 5.0, 1.0)
        times.append(run_trigger(lab, "default", ChangingData(0.1, 12.0, [hot])))
    assert times[0].moved_bytes > 0
    assert times[0].rows_per_second > times[1].rows_per_second


def test_slots_that_share_keys_take_time_to_meet() -> None:
    lab = make_lab(1, splittable=True)
    data = ChangingData.draw(lab, 1.0, 8.0, 1)
    shared, whole = (run_fixed(lab, name, data)[0] for name in ("pkg", "modulo"))
    assert shared.rows_per_second == pytest.approx(lab.rows_a_batch / (0.4 + 0.1), rel=0.01)
    assert whole.rows_per_second != shared.rows_per_second


def test_equal_seeds_give_equal_runs_and_the_data_is_the_same_for_all() -> None:
    first, again = (
        run_trigger(make_lab(5), "default", ChangingData.draw(make_lab(5), 10.0, 12.0, 5)) for _ in range(2)
    )
    assert first == again
    lab = make_lab(5)
    weights = ChangingData.draw(lab, 10.0, 12.0, 5).weights_at(0.0)
    assert (lab.draw(2, weights).counts == make_lab(5).draw(2, weights).counts).all()


def test_keys_that_stay_whole_have_no_strategies_that_split_them() -> None:
    lab = make_lab(1)
    data = ChangingData.draw(lab, 1.0, 8.0, 1)
    assert run_fixed(lab, "pkg", data) == []
    assert [run.name for run in run_fixed(lab, "ranges", data)] == ["ranges", "ranges, anew"]


@pytest.mark.thorough
def test_switching_comes_near_the_best_fixed_strategy_at_a_change_a_minute() -> None:
    """All strategies, more seeds, keys that may be split, and the slower rate are in the soak tests."""
    lab = make_lab(7)
    data = ChangingData.draw(lab, 1.0, 75.0, 7)
    own = run_trigger(lab, "default", data)
    names = ("hash", "modulo", "ranges", "least-count")
    fixed = [run.settled_rows_per_second for name in names for run in run_fixed(lab, name, data)]
    assert own.settled_rows_per_second >= 0.95 * max(fixed)
    assert own.switches >= 1


def make_runs() -> list[SwitchingRun]:
    runs = [SwitchingRun(name, False, rate, 1e6, 1.1e6, 2, 5e6) for name in TRIGGERS for rate in CHANGES_A_MINUTE]
    return runs + [SwitchingRun("ranges, anew", True, rate, 1.2e6, 1e6, 0, 0.0) for rate in CHANGES_A_MINUTE]


def test_the_table_has_the_papers_triggers_and_rates_and_the_best_fixed_strategy() -> None:
    text = StringIO()
    figures = {"answers_equal": 1.0, "rows": 5.0}
    report = SkewReport(
        workload={"name": "skew"}, figures=figures, loads=[], busy=[], pairs=[], switching=make_runs(), seed=7
    )
    print_report(report, Console(file=text, width=100))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert ["every", "10", "M", "rows", *["1.00"] * 5] in lines
    assert ["best", "fixed", *["1.20"] * 5] in lines
    assert [len([name for name in TRIGGERS if name.startswith(word)]) for word in ("every", "balance")] == [4, 2]
    assert len(report.list_parts()["switching"]) == len(make_runs())


def test_figures_compare_without_the_first_decision() -> None:
    figures = compute_switching_figures(make_runs())
    assert figures == {
        "switching_over_best_fixed_0_1": pytest.approx(1.1),
        "switching_over_best_fixed_1": pytest.approx(1.1),
    }


def test_a_flow_that_starts_from_modulo_leaves_it_where_it_is_bad() -> None:
    lab = make_lab(2)
    hot = np.where(np.arange(len(lab.values)) % lab.slots == 0, 5.0, 1.0)
    data = ChangingData(0.1, 24.0, [hot])
    own, modulo = run_trigger(lab, "default", data), run_fixed(lab, "modulo", data)[0]
    assert own.settled_rows_per_second > 1.5 * modulo.settled_rows_per_second
