"""From what the strategies and the systems did to the figures that are claimed; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.shared.answers import AnswerCheck
from benchmarks.skew.loads import SETTLING_BATCHES, LoadRun, is_four_cases, is_zipf

MOVING_NORMAL = ("moving mean", "narrowing")
HISTORY = "least-count-history"


@dataclass(frozen=True, slots=True)
class BusyRun:
    """One system with an operator that costs processor time."""

    system: str
    rows_per_second: float
    """In batches that are long enough after a change."""
    batch_seconds: float
    """The median of such batches, from commit to commit."""
    max_over_mean: float | None
    """The worst of such batches; none where the rows of each slot are not known."""
    answer: AnswerCheck


@dataclass(frozen=True, slots=True)
class OverheadPair:
    """Processor seconds of two runs on keys without skew, one right after the other."""

    on_seconds: float
    off_seconds: float

    @property
    def overhead_pct(self) -> float:
        """What balance costs."""
        return 100 * (self.on_seconds / self.off_seconds - 1)


def evaluate_busy(
    system: str,
    batches: Sequence[Mapping[str, Any]],
    first_batches: Sequence[int],
    answer: AnswerCheck,
    settling_batches: int = SETTLING_BATCHES,
) -> BusyRun:
    """Return how fast a system was in settled batches; ``batches`` have rows and the time of their commit."""
    with_rows = [batch for batch in batches if batch["rows"]]
    ends = [*first_batches[1:], len(with_rows)]
    settled = [
        (with_rows[index - 1], with_rows[index])
        for first, end in zip(first_batches, ends, strict=True)
        for index in range(first + settling_batches, end)
    ]
    seconds = [after["committed_at"] - before["committed_at"] for before, after in settled]
    loads = [batch["slot_rows"] for _, batch in settled if batch.get("slot_rows")]
    return BusyRun(
        system=system,
        rows_per_second=sum(batch["rows"] for _, batch in settled) / sum(seconds),
        batch_seconds=median(seconds),
        max_over_mean=max((max(rows) * len(rows) / sum(rows) for rows in loads), default=None),
        answer=answer,
    )


def compute_figures(
    loads: Sequence[LoadRun],
    busy: Sequence[BusyRun],
    pairs: Sequence[OverheadPair],
    rows: int,
    more_answers: Sequence[AnswerCheck] = (),
) -> dict[str, float]:
    """Return the figures by name; those of parts that did not run are absent.

    Unequal answers leave no claim: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    checks = [*(run.answer for run in loads), *(run.answer for run in busy), *more_answers]
    answers = [check.equal for check in checks]
    figures: dict[str, float] = {
        "answers_equal": int(bool(answers) and all(answers)),
        "rows": rows,
    }
    for busy_run in busy:
        if busy_run.system == "auto":
            figures["batch_seconds"] = busy_run.batch_seconds
    if not figures["answers_equal"]:
        return figures
    for run in loads:
        if run.system == "auto" and is_zipf(run):
            figures[f"max_over_mean_{name_exponent(run.stream)}"] = run.settled_max_over_mean
    moving = [run.settled_max_over_mean for run in loads if run.system == "auto" and run.stream in MOVING_NORMAL]
    if moving:
        figures["max_over_mean_moving_normal"] = max(moving)
    weibo = [run.settled_max_over_mean for run in loads if run.system == "auto" and run.stream.startswith("Weibo")]
    if weibo:
        figures["max_over_mean_weibo"] = max(weibo)
    waits = [run.batches_until_even for run in loads if run.system == "auto"]
    if waits and None not in waits:
        figures["batches_until_even"] = max(wait for wait in waits if wait is not None)
    counted = [run.balance for run in loads if run.system == HISTORY and is_four_cases(run)]
    if counted:
        figures["balance_least_count"] = min(counted)
    rates = {run.system: run.rows_per_second for run in busy}
    for system, rate in rates.items():
        if system != "auto" and "auto" in rates:
            figures[f"x_{system.replace('-', '_')}_z1_5"] = rates["auto"] / rate
    if pairs:
        figures["overhead_no_skew_pct"] = median(pair.overhead_pct for pair in pairs)
    return figures


def name_exponent(stream: str) -> str:
    """Return the part of a figure's name that says how skewed the keys were: z1_5 for zipf 1.5."""
    return "z" + stream.removeprefix("zipf ").replace(".", "_")
