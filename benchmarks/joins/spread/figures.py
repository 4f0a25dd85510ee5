"""From what slots received and kept to the figures that are claimed; pure, so that each can be tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.joins.spread.growth import GrowthRun
from benchmarks.joins.spread.received import ReceivedRun
from benchmarks.joins.spread.strategies import MNRT, RIVALS
from benchmarks.joins.streams import NEAR_ORDERS

SKEWED_FROM = 0.8
"""The zipf exponent from which on MNRT is held against the best of the others."""


def compute_received_figures(runs: Sequence[ReceivedRun]) -> dict[str, float]:
    """Return what MNRT's slots received over the best of the others, by point, and the worst of EQ5's skewed ones.

    It counts rows of the whole run or of its second half, whichever is worse; the worst of each are told beside it.
    """
    figures: dict[str, float] = {}
    skewed_whole, skewed_settled = [], []
    for point in dict.fromkeys(run.point for run in runs):
        by_strategy = {run.strategy: run for run in runs if run.point == point}
        if MNRT not in by_strategy or not any(name in by_strategy for name in RIVALS):
            continue
        whole = _hold_against_rivals(by_strategy, lambda run: run.whole.mean)
        settled = _hold_against_rivals(by_strategy, lambda run: run.settled.mean)
        figures[f"{point.stem}_mnrt_rows_received_over_best_other_{point.ending}"] = max(whole, settled)
        figures[f"{point.stem}_mnrt_most_received_over_best_other_{point.ending}"] = _hold_against_rivals(
            by_strategy, lambda run: run.settled.most
        )
        if point.query not in NEAR_ORDERS and point.exponent >= SKEWED_FROM:
            skewed_whole.append(whole)
            skewed_settled.append(settled)
    if skewed_whole:
        figures["mnrt_rows_received_over_best_other"] = max(skewed_whole + skewed_settled)
        figures["mnrt_rows_received_over_best_other_whole_run"] = max(skewed_whole)
        figures["mnrt_rows_received_over_best_other_second_half"] = max(skewed_settled)
    return figures


def compute_growth_figures(runs: Sequence[GrowthRun]) -> dict[str, float]:
    """Return how many slots MNRT needed, by point, where a number was found that will do, and the time to add them."""
    figures: dict[str, float] = {}
    for run in runs:
        if run.strategy == MNRT and run.fits:
            figures[f"{run.point.stem}_mnrt_slots_needed_{run.point.ending}"] = run.slots
            figures[f"{run.point.stem}_mnrt_adjustment_seconds_{run.point.ending}"] = run.adjustment_seconds
    return figures


def _hold_against_rivals(by_strategy: Mapping[str, ReceivedRun], measure: Callable[[ReceivedRun], float]) -> float:
    """Return MNRT's measure over the smallest of its rivals'."""
    return measure(by_strategy[MNRT]) / min(measure(by_strategy[name]) for name in RIVALS if name in by_strategy)
