"""Power curves, and figures that say where they come from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.loads import LoadError
from anabranch.model.power import (
    DEFAULT_POWER,
    PUBLISHED_CURVES,
    EnergyFigure,
    HostPower,
    PowerCurve,
    integrate_power,
)

CURVE = PowerCurve(100, 150, 250, 400)


@pytest.mark.parametrize(
    ("share", "watts"), [(0, 100), (0.05, 125), (0.1, 150), (0.3, 200), (0.5, 250), (0.75, 325), (1, 400), (1.7, 400)]
)
def test_a_curve_passes_its_points_and_goes_in_straight_lines(share: float, watts: float) -> None:
    assert CURVE.watts(share) == pytest.approx(watts)


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_work_never_draws_less(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for curve in (DEFAULT_POWER.expected, DEFAULT_POWER.lowest, DEFAULT_POWER.highest):
        assert curve.watts(low) <= curve.watts(high) + 1e-9
        assert curve.idle_watts <= curve.watts(low) <= curve.full_watts


def test_a_curve_that_falls_is_refused() -> None:
    with pytest.raises(LoadError, match="each no less than the one before"):
        PowerCurve(100, 90, 200, 300)


def test_the_default_is_the_mean_of_the_published_results_and_lies_between_their_extremes() -> None:
    full = DEFAULT_POWER.expected.full_watts
    assert full == pytest.approx(304.2)
    shares = [DEFAULT_POWER.expected.watts(load) / full for load in (0, 0.1, 0.5)]
    assert shares == pytest.approx([0.199, 0.306, 0.512], abs=0.001)
    for _, curve in PUBLISHED_CURVES:
        for load in (0, 0.1, 0.5, 1):
            share = curve.watts(load) / curve.full_watts
            assert DEFAULT_POWER.lowest.watts(load) / full - 1e-9 <= share
            assert share <= DEFAULT_POWER.highest.watts(load) / full + 1e-9


def test_integrated_power_is_called_modelled_and_has_an_interval() -> None:
    power = HostPower.from_curve(CURVE, margin=0.1, standby_watts=5)
    figure = integrate_power(power, [(10, 0.5), (20, None), (5, 0.0)])
    assert figure.joules == pytest.approx(10 * 250 + 20 * 5 + 5 * 100)
    assert figure.low_joules == pytest.approx(0.9 * 3_000 + 100)
    assert figure.high_joules == pytest.approx(1.1 * 3_000 + 100)
    assert figure.basis == "modelled"
    assert figure.describe() == "3.1 kJ (2.8–3.4), modelled"


def test_a_sum_is_measured_only_if_all_of_it_is() -> None:
    measured = EnergyFigure(10, 9, 11, "measured", "RAPL")
    modelled = EnergyFigure(5, 4, 6, "modelled", "a curve")
    assert (measured + measured).basis == "measured"
    both = measured + modelled
    assert (both.joules, both.low_joules, both.high_joules) == (15, 13, 17)
    assert both.basis == "modelled"
    assert both.source == "RAPL; a curve"


def test_energy_of_no_rows_is_no_figure_per_row() -> None:
    with pytest.raises(LoadError, match="no figure without rows"):
        EnergyFigure(10, 9, 11, "measured", "RAPL").per_million_rows(0)
