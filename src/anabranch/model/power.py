"""What hosts draw and what a flow's rows cost in energy, always with a word on where a figure comes from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from anabranch.model.loads import LoadError

Basis = Literal["measured", "modelled"]
"""*measured*: counters of the hardware. *modelled*: a power curve over measured or simulated processor time."""
_POINTS = (0.0, 0.1, 0.5, 1.0)
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """A counter of the hardware as it stood."""

    microjoules: int
    range_microjoules: int
    """The largest value; after it comes 0."""


@dataclass(frozen=True, slots=True)
class RaplReading:
    """All counters of a machine that tell different joules, at a moment."""

    at_seconds: float
    counters: Mapping[str, EnergyCounter]
    """By the zone and its name: ``intel-rapl:0 package-0``."""


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """What a host draws when it is idle, and at 10, 50 and 100 % of its processor time; straight lines between."""

    idle_watts: float
    tenth_watts: float
    half_watts: float
    full_watts: float

    def __post_init__(self) -> None:
        points = self.points
        if not all(0 <= low <= high < math.inf for low, high in itertools.pairwise(points)):
            msg = f"a power curve of {', '.join(f'{watts:g}' for watts in points)} W; "
            msg += "give watts when idle, at 10, 50 and 100 % load, each no less than the one before"
            raise LoadError(msg)

    @property
    def points(self) -> tuple[float, float, float, float]:
        """The watts, in the order of loads."""
        return self.idle_watts, self.tenth_watts, self.half_watts, self.full_watts

    def watts(self, utilisation: float) -> float:
        """Return what is drawn at a share of the processor time; above 1 as at 1."""
        share = min(max(utilisation, 0.0), 1.0)
        points = self.points
        for place in range(3):
            low, high = _POINTS[place], _POINTS[place + 1]
            if share <= high:
                part = (share - low) / (high - low)
                # Weighted, not added to: rounding must not lead beyond the ends.
                return points[place] * (1 - part) + points[place + 1] * part
        return self.full_watts

    def scale(self, factor: float) -> PowerCurve:
        """Return the curve of a host that draws so many times as much."""
        return PowerCurve(*(watts * factor for watts in self.points))


@dataclass(frozen=True, slots=True)
class HostPower:
    """The curve of a host, and between which two its true one is expected to lie."""

    expected: PowerCurve
    lowest: PowerCurve
    highest: PowerCurve
    source: str
    """Where the curves come from, for people."""
    standby_watts: float = 0.0
    """What is drawn by a host that sleeps: its board controller and power supplies stay awake."""

    @classmethod
    def from_curve(
        cls, curve: PowerCurve, *, margin: float = 0.1, source: str = "given by the user", standby_watts: float = 0.0
    ) -> HostPower:
        """Return a curve that somebody measured, right within ``margin``, as a share."""
        if not 0 <= margin < 1:
            msg = f"margin is {margin}; it says how far off the curve may be: give a share from 0 to below 1"
            raise LoadError(msg)
        return cls(curve, curve.scale(1 - margin), curve.scale(1 + margin), source, standby_watts)


PUBLISHED_CURVES: tuple[tuple[str, PowerCurve], ...] = (
    ("Acer Altos R380 F2, 20130409-00602", PowerCurve(71.5, 89, 174, 316)),
    ("Acer AR360 F2, 20121224-00594", PowerCurve(69.4, 103, 182, 315)),
    ("Dell PowerEdge R620, 20120306-00434", PowerCurve(54.1, 78.4, 126, 243)),
    ("Dell PowerEdge R720, 20120306-00435", PowerCurve(51, 75, 120, 231)),
    ("Dell PowerEdge T620, 20120306-00436", PowerCurve(50.2, 73.7, 119, 227)),
    ("Fujitsu PRIMERGY RX300 S7, 20120305-00429", PowerCurve(53.1, 74.9, 117, 245)),
    ("Huawei RH2288 V2 (E5-2660), 20120229-00423", PowerCurve(59.7, 87.2, 133, 257)),
    ("Huawei RH2288 V2 (E5-2670), 20120306-00438", PowerCurve(55.6, 79.4, 128, 282)),
    ("Dell PowerEdge R640, 20170829-00781", PowerCurve(55, 125, 232, 469)),
    ("Dell PowerEdge R740, 20170829-00780", PowerCurve(52.3, 129, 224, 457)),
)
"""Results of SPECpower_ssj2008, by the number of the published result (spec.org), as public simulators copied them:
those of servers with two processors, from 2012 on. Servers of 2008, which draw over 60 % when idle, are left out: with
them sleeping would save more."""


def _average(curves: Iterable[PowerCurve]) -> HostPower:
    """Return the mean of curves as shares of full load, and the lowest and the highest share at each point."""
    known = list(curves)
    full = sum(curve.full_watts for curve in known) / len(known)
    shares = [[watts / curve.full_watts for watts in curve.points] for curve in known]
    by_load = [list(point) for point in zip(*shares, strict=True)]
    return HostPower(
        expected=PowerCurve(*(full * sum(point) / len(point) for point in by_load)),
        lowest=PowerCurve(*(full * min(point) for point in by_load)),
        highest=PowerCurve(*(full * max(point) for point in by_load)),
        source=f"mean of {len(known)} published SPECpower_ssj2008 results, 2012 to 2017",
        standby_watts=0.02 * full,
    )


DEFAULT_POWER = _average(curve for _, curve in PUBLISHED_CURVES)
"""A server with two processors: 20 % of its full power when idle, 31 % at a tenth of the load, 51 % at half.

Averages of newer results say the same of idling: 15 to 28 % of full power, by processor (coefficients of Cloud
Carbon Footprint, made of all SPECpower results up to March 2026). What a sleeping host draws is an assumption."""


@dataclass(frozen=True, slots=True)
class EnergyFigure:
    """Joules, between which bounds they are expected, and whether they were measured or modelled.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.to_memory())
        >>> energy = ab.Energy(latency_seconds=5, policy="awake")
        >>> told = flow.run("state", trigger="available-now", energy=energy)[0].energy
        >>> told.basis, 0 < told.low_joules < told.joules < told.high_joules
        ('modelled', True)
    """

    joules: float
    low_joules: float
    high_joules: float
    basis: Basis
    source: str

    def __add__(self, other: EnergyFigure) -> EnergyFigure:
        """Return both together: a sum is measured only if all of it is."""
        basis: Basis = "measured" if self.basis == other.basis == "measured" else "modelled"
        sources = dict.fromkeys([*self.source.split("; "), *other.source.split("; ")])
        return EnergyFigure(
            self.joules + other.joules,
            self.low_joules + other.low_joules,
            self.high_joules + other.high_joules,
            basis,
            "; ".join(sources),
        )

    def per_million_rows(self, rows: float) -> EnergyFigure:
        """Return what a million rows took, of so many that came."""
        if not rows > 0:
            msg = f"energy is to be shared out among {rows} rows; there is no figure without rows"
            raise LoadError(msg)
        factor = MILLION / rows
        return EnergyFigure(
            self.joules * factor, self.low_joules * factor, self.high_joules * factor, self.basis, self.source
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnergyFigure:
        """Read what the history keeps of a figure."""
        return cls(**{one.name: data[one.name] for one in fields(cls)})

    def describe(self) -> str:
        """Return the figure in words: ``12.4 kJ (11.0–13.9), modelled``."""
        size, unit = (1e6, "MJ") if self.joules >= 1e6 else (1e3, "kJ") if self.joules >= 1e3 else (1.0, "J")
        low, high = self.low_joules / size, self.high_joules / size
        return f"{self.joules / size:.3g} {unit} ({low:.3g}–{high:.3g}), {self.basis}"


def integrate_power(power: HostPower, stretches: Iterable[tuple[float, float | None]]) -> EnergyFigure:
    """Return what a host drew over stretches of (seconds, share of its processor time); None while it slept."""
    totals = [0.0, 0.0, 0.0]
    for seconds, utilisation in stretches:
        for place, curve in enumerate((power.expected, power.lowest, power.highest)):
            watts = power.standby_watts if utilisation is None else curve.watts(utilisation)
            totals[place] += seconds * watts
    return EnergyFigure(totals[0], totals[1], totals[2], "modelled", power.source)
