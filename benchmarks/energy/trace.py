"""A day of load: passengers of New York's taxis, by the half hour.

The New York City Taxi and Limousine Commission publishes every trip; the counts of Thursday, 10 July 2014 stand here as
the Numenta Anomaly Benchmark (data/realKnownCause/nyc_taxi.csv) publishes them. A keyed stream of trips would rise and
fall like this. Between half hours the load goes in straight lines; chance on top of it is ours, and seeded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DAY_SECONDS = 86_400
SOURCE = "New York taxi passengers, 10 July 2014, half-hourly (TLC trip records, by the Numenta Anomaly Benchmark)"
CHANCE = 0.03
"""Standard deviation of a window's load, as a share of it; an assumption."""

# fmt: off
PASSENGERS = (
    15185, 11459, 8847, 6580, 5247, 4127, 3440, 2957, 2779, 2532, 2718, 4449,
    6601, 11202, 13934, 17176, 19057, 21112, 19882, 19024, 16989, 16979, 16381, 17815,
    18029, 17495, 17075, 18234, 18091, 18495, 17523, 16714, 14735, 13610, 16290, 19152,
    21865, 24347, 26186, 25852, 23995, 21664, 25027, 25431, 25643, 24654, 23154, 21863,
)
# fmt: on


def make_shape(window_seconds: float, seed: int) -> NDArray[np.float64]:
    """Return the load of each window of the day, with a mean of 1."""
    windows = max(1, round(DAY_SECONDS / window_seconds))
    hours = np.arange(len(PASSENGERS) + 1) * (DAY_SECONDS / len(PASSENGERS))
    # The count of a half hour is that of its middle; the day follows on itself.
    middles = hours[:-1] + hours[1] / 2
    at = (np.arange(windows) + 0.5) * (DAY_SECONDS / windows)
    shape = np.interp(at, middles, PASSENGERS, period=DAY_SECONDS)
    shape *= np.maximum(0.5, 1 + CHANCE * np.random.default_rng([seed, windows]).standard_normal(windows))
    found: NDArray[np.float64] = shape / shape.mean()
    return found
