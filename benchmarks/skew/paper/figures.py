"""From what slots got and how fast they were to what the papers' tables and figures show; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.routing.strategies.scores import score_loads
from benchmarks.shared.answers import AnswerCheck
from benchmarks.skew.figures import HISTORY, BusyRun

CASES, TOPICS = "four cases, a costly operator", "top of topics"
BANDS_PCT = (1.27, 1.57, 1.87, 2.17, 2.47, 2.77)
"""Of the load that a slot has of all, with sixty slots: where the load distribution paper draws its lines."""
HARDEST_CASE = "other keys, other data"


@dataclass(frozen=True, slots=True)
class SpreadRun:
    """What every slot got of keys that are all alike."""

    system: str
    slot_rows: tuple[int, ...]
    answer: AnswerCheck

    @property
    def balance(self) -> float:
        """The least rows of a slot over the most."""
        return score_loads(self.slot_rows).balance

    @property
    def extra_time(self) -> float:
        """What the fullest slot has beyond the mean, as a part of it."""
        return score_loads(self.slot_rows).extra_time

    @property
    def shares_pct(self) -> tuple[float, ...]:
        """Of all rows, by slot."""
        total = sum(self.slot_rows)
        return tuple(100 * rows / total for rows in self.slot_rows)

    def count_by_band(self) -> list[int]:
        """Return how many slots lie in each band; a load on a line belongs to the band below it, as in the paper."""
        return [sum(low < share <= high for share in self.shares_pct) for low, high in pairwise(BANDS_PCT)]


@dataclass(frozen=True, slots=True)
class StreamRate:
    """How fast one system was on one stream, with an operator that costs processor time."""

    part: str
    stream: str
    run: BusyRun


def compute_paper_figures(spreads: Sequence[SpreadRun], rates: Sequence[StreamRate]) -> dict[str, float]:
    """Return the figures by name; nothing where an answer is wrong, and none of parts that did not run."""
    if not all(check.equal for check in list_answers(spreads, rates)):
        return {}
    figures = {f"balance_rising_{spread.system.replace('-', '_')}": spread.balance for spread in spreads}
    by_place = {(rate.part, rate.stream, rate.run.system): rate.run.rows_per_second for rate in rates}
    counted, hashed = (by_place.get((CASES, HARDEST_CASE, system)) for system in (HISTORY, "hash"))
    if counted and hashed:
        figures["x_hash_least_count_history"] = counted / hashed
    for stream in dict.fromkeys(rate.stream for rate in rates if rate.part == TOPICS):
        ours = by_place.get((TOPICS, stream, "mnrt"))
        label = "weibo" if stream.startswith("Weibo") else "made_up"
        for peer in ("hash", "readj", "pkg", "qmmp"):
            theirs = by_place.get((TOPICS, stream, peer))
            if ours and theirs:
                figures[f"topk_{label}_x_{peer}"] = ours / theirs
    return figures


def list_answers(spreads: Sequence[SpreadRun], rates: Sequence[StreamRate]) -> list[AnswerCheck]:
    """Return the checks of all answers."""
    return [spread.answer for spread in spreads] + [rate.run.answer for rate in rates]
