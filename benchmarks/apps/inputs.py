"""The inputs of the applications: voltages of sensors whose areas lag behind each other, and crowns that come down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.apps.rules import LOW_VOLTAGE, VAULT
from benchmarks.disorder.inputs import FILE_FORMAT, DisorderInput, plan_input
from benchmarks.shared.registry import BenchError
from benchmarks.shared.workload import write_files

# Raise it when the rows change, or caches would mix old files with new ones.
GENERATOR_VERSION = 1
HOUSEHOLD_FILE = "household_voltage.parquet"
LAGGING_PCT = {LOW_VOLTAGE: 50, VAULT: 0}
"""Sources that lag by several windows: in a grid, half and more of the rows; in a bridge, all are on one wire."""
SENSORS = {LOW_VOLTAGE: 100_000, VAULT: 4_000}
ROWS_PER_EVENT_SECOND = {LOW_VOLTAGE: 300_000, VAULT: 200_000}
"""A voltage three times a second, and the height of a crown fifty times."""
LOW_VOLTS, HOUSEHOLD_LOW_VOLTS = 207.0, 228.0
"""0.9 of 230 V; and 0.95 of 240 V, below which that household's good supply falls now and then."""
_READINGS_A_SAG = 20
_SAG_SHARE = 0.02
_MINUTES_A_DAY = 1_440


@dataclass(frozen=True)
class AppInput:
    """Readings of an application; equal inputs have equal bytes."""

    app: str
    readings: DisorderInput
    """Who reports when, and in which order that comes in."""
    traces: NDArray[np.float64] | None = None
    """Real voltages, one row a day; a sensor follows the trace of some day. None: they are made up."""

    @property
    def rows(self) -> int:
        return self.readings.rows

    @property
    def file_count(self) -> int:
        return self.readings.file_count

    @property
    def low_volts(self) -> float:
        """Below this, a voltage is low."""
        return LOW_VOLTS if self.traces is None else HOUSEHOLD_LOW_VOLTS

    @property
    def name(self) -> str:
        """The application, and whose readings they are if they are real ones."""
        return self.app if self.traces is None else f"{self.app}-real"

    def make_rows(self, file_index: int) -> pl.DataFrame:
        """Return the rows of one file in the order of their arrival."""
        frame = self.readings.make_rows(file_index)
        first = file_index * self.readings.rows_per_file
        # Every sensor reports once a round.
        rounds = np.arange(first, first + frame.height, dtype=np.int64) // self.readings.sensors
        sensors = frame["sensor"].to_numpy()
        rng = np.random.default_rng([self.readings.seed, self.readings.rows_per_file, file_index])
        if self.app == VAULT:
            values = self._measure_crowns(sensors, rounds, rng)
        elif self.traces is None:
            values = self._measure_volts(sensors, rounds, rng)
        else:
            values = self._replay(sensors, rounds)
        return frame.with_columns(value=pl.Series(values))

    def _draw(self) -> np.random.Generator:
        """Return the chance that makes sensors what they are, always the same."""
        return np.random.default_rng([self.readings.seed, self.readings.sensors])

    @cached_property
    def _usual_volts(self) -> NDArray[np.float64]:
        return self._draw().normal(230.0, 4.0, self.readings.sensors)

    def _measure_volts(
        self, sensors: NDArray[np.int64], rounds: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return voltages around each sensor's own, with sags of some readings in a row."""
        volts = self._usual_volts[sensors] + rng.normal(0.0, 2.0, len(sensors))
        for block in np.unique(rounds // _READINGS_A_SAG):
            drawn = np.random.default_rng([self.readings.seed, int(block)]).random(self.readings.sensors)
            volts -= 25.0 * ((drawn < _SAG_SHARE)[sensors] & (rounds // _READINGS_A_SAG == block))
        return _round_to_quarters(volts)

    def _replay(self, sensors: NDArray[np.int64], rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return real voltages: each sensor begins at some minute of some day, a reading a minute."""
        assert self.traces is not None
        days, minutes = self._starts
        return np.asarray(self.traces[days[sensors], (minutes[sensors] + rounds) % self.traces.shape[1]], np.float64)

    @cached_property
    def _starts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        assert self.traces is not None
        days, minutes = self.traces.shape
        size, chance = self.readings.sensors, self._draw()
        return chance.integers(0, days, size), chance.integers(0, minutes, size)

    @cached_property
    def _crowns(self) -> tuple[NDArray[np.float64], ...]:
        """Of each sensor: height, how far it settles, creep and slip, all in µm, and when it begins to slip."""
        size, chance = self.readings.sensors, self._draw()
        creeps = chance.random(size) < 0.1
        slips = chance.random(size) < 0.02
        return (
            chance.normal(100_000, 20_000, size).round(),
            chance.gamma(2.0, 2_500.0, size),
            np.where(creeps, chance.uniform(20, 100, size), 0.0),
            np.where(slips, chance.uniform(100, 400, size), 0.0),
            chance.uniform(20, 120, size),
        )

    def _measure_crowns(
        self, sensors: NDArray[np.int64], rounds: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Return how far crowns have come down, in µm: most settle, some creep on, few let go; noise is 80 µm."""
        height, settles, creep, slip, slips_at = (each[sensors] for each in self._crowns)
        seconds = rounds * (self.readings.sensors / self.readings.rows_per_event_second)
        settled = settles * -np.expm1(-seconds / 8.0)
        slipped = slip * np.maximum(0.0, seconds - slips_at) ** 1.2
        warmth = 400.0 * np.sin(seconds / 12.0)
        return _round_to_quarters(
            height + settled + creep * seconds + slipped + warmth + rng.normal(0.0, 80.0, len(sensors))
        )


def _round_to_quarters(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return quarters: every sum of them is exact in a double, so answers are equal or wrong, never close."""
    return np.asarray(np.round(values * 4.0) / 4.0, np.float64)


def plan_app_input(
    app: str, rows: int, seed: int, sensors: int | None = None, traces: NDArray[np.float64] | None = None
) -> AppInput:
    """Return an application's input of whole, equal files with at least ``rows`` rows."""
    readings = plan_input(rows, LAGGING_PCT[app], sensors or SENSORS[app], ROWS_PER_EVENT_SECOND[app], seed)
    return AppInput(app, readings, traces)


def read_household(folder: Path) -> NDArray[np.float64] | None:
    """Return a household's voltages by day and minute, of whole days; None where the folder has no such file."""
    path = folder / HOUSEHOLD_FILE
    if not path.exists():
        return None
    volts = pl.read_parquet(path, columns=["ts", "voltage"]).drop_nulls().sort("ts")
    days = volts.group_by(pl.col("ts").dt.date(), maintain_order=True).agg(pl.col("voltage"))
    whole = days.filter(pl.col("voltage").list.len() == _MINUTES_A_DAY)
    if not whole.height:
        msg = f"{path} has no whole day of {_MINUTES_A_DAY:,} voltages; take it away, or give another data folder"
        raise BenchError(msg)
    return np.stack([np.asarray(day, np.float64) for day in whole["voltage"].to_list()])


def write_app_input(given: AppInput, cache_dir: Path) -> Path:
    """Return the folder with the input's files, writing those that the cache lacks."""
    planned = given.readings
    name = (
        f"v{GENERATOR_VERSION}-{given.name}-rows{planned.rows}-n{planned.rows_per_file}-k{planned.sensors}"
        f"-s{planned.seed}"
    )
    folder = cache_dir / name / FILE_FORMAT
    write_files(folder, given.file_count, given.make_rows, FILE_FORMAT)
    return folder
