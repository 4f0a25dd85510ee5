"""From what the ways of exchanging did to the figures that are claimed; pure, so that every claim can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.shared.answers import AnswerCheck

PLAIN, LOCAL, HELD, GLOBAL, AHEAD = "plain", "local", "held", "global", "ahead"
WAYS = (PLAIN, LOCAL, HELD, GLOBAL, AHEAD)
FIGURE_STEMS = {LOCAL: "local_merge", HELD: "held_merge", GLOBAL: "global_merge", AHEAD: "ahead"}
LIMITED_STEMS = {LOCAL: "limited_local", HELD: "limited_held", GLOBAL: "limited_global", AHEAD: "limited_ahead"}


@dataclass(frozen=True, slots=True)
class ExchangeRun:
    """One way of bringing the rows of a key together, over one input."""

    way: str
    sensors: int
    rows: int
    answer: AnswerCheck
    rows_per_second: float | None
    """Behind the warm-up, over all rounds; none when the run was too short to have one."""
    batch_seconds: float | None
    """The longest batch behind the warm-up."""
    exchanged_bytes: int
    """What readers sent to slots, in the whole run."""
    shuffle_bytes: int
    """What Spark wrote for its shuffles, reports and task plumbing included."""
    limit_mbit: float | None = None
    """Of each host's wire; none where driver and executors are one process."""
    wire_bytes: int | None = None
    """What both hosts sent, to each other and to the driver."""
    driver_bytes: int | None = None
    """The part of it that went to the driver."""
    details: Mapping[str, Any] = field(default_factory=dict)


def pool_rates(rates: Sequence[float | None]) -> float | None:
    """Return the rate of rounds of equal length together; none if one of them has none."""
    known = [rate for rate in rates if rate]
    return len(known) / sum(1 / rate for rate in known) if known and len(known) == len(rates) else None


def compute_figures(
    runs: Sequence[ExchangeRun],
    limited: Sequence[ExchangeRun],
    headline_mbit: float,
    curves: Sequence[ExchangeRun] = (),
) -> dict[str, float]:
    """Return the figures by name; those of parts that did not run are absent.

    Unequal answers leave no claim about bytes or speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    everything = [*runs, *limited, *curves]
    figures: dict[str, float] = {
        "answers_equal": int(bool(everything) and all(run.answer.equal for run in everything)),
        "rows": max((run.rows for run in runs), default=0),
    }
    longest = [run.batch_seconds for run in runs if run.batch_seconds is not None]
    if longest:
        figures["batch_seconds"] = max(longest)
    if not figures["answers_equal"]:
        return figures
    by_way = {run.way: run for run in runs}
    candidates: dict[str, float | None] = {}
    for way, stem in FIGURE_STEMS.items():
        candidates[f"{stem}_bytes_pct"] = find_bytes_pct(by_way, way)
        candidates[f"{stem}_x_plain"] = find_speed_up(by_way, way)
    candidates["plain_bytes_per_row"] = by_way[PLAIN].exchanged_bytes / by_way[PLAIN].rows if PLAIN in by_way else None
    candidates["plain_rows_per_second"] = by_way[PLAIN].rows_per_second if PLAIN in by_way else None
    throttled = {run.way: run for run in limited if run.limit_mbit == headline_mbit}
    for way, stem in LIMITED_STEMS.items():
        candidates[f"{stem}_x_plain"] = find_speed_up(throttled, way)
    candidates["limited_plain_rows_per_second"] = throttled[PLAIN].rows_per_second if PLAIN in throttled else None
    return figures | {name: value for name, value in candidates.items() if value is not None}


def find_bytes_pct(by_way: Mapping[str, ExchangeRun], way: str) -> float | None:
    """Return what a way exchanges in % of the bytes of the plain exchange."""
    if way not in by_way or PLAIN not in by_way or not by_way[PLAIN].exchanged_bytes:
        return None
    return 100 * by_way[way].exchanged_bytes / by_way[PLAIN].exchanged_bytes


def find_speed_up(by_way: Mapping[str, ExchangeRun], way: str) -> float | None:
    """Return how many times as fast as the plain exchange a way is."""
    if way not in by_way or PLAIN not in by_way:
        return None
    rate, plain_rate = by_way[way].rows_per_second, by_way[PLAIN].rows_per_second
    return rate / plain_rate if rate and plain_rate else None
