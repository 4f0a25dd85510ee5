"""From what the systems did under disorder to the figures that are claimed; pure, so that each can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from benchmarks.shared.answers import AnswerCheck

PER_KEY, PER_SLOT, FLINK, SPARK = "anabranch-key", "anabranch-slot", "flink", "spark"
OUR_SYSTEMS = (PER_KEY, PER_SLOT)
LATE_PCTS = (25, 50, 75)
MIDDLE_PCT = 50


@dataclass(frozen=True, slots=True)
class DisorderRun:
    """One system on one input."""

    system: str
    late_pct: int
    """Rows out of order between sources, in percent."""
    rows: int
    rows_per_second: float | None
    """In the steady state; none when the run was too short to have one."""
    batch_seconds: float | None
    """The longest batch after the warm-up; Flink's checkpoint interval."""
    run_seconds: float
    answer: AnswerCheck
    emissions: int
    """Results that were written; each of a window's, where it has several."""
    updates: int
    late_rows: int | None = None
    """Under the system's own watermarks; none where the system does not say."""
    slot_late_rows: int | None = None
    """Had there been one watermark a slot, whatever there was."""
    dropped_rows: int = 0
    state_bytes: int | None = None
    peak_memory_bytes: int = 0
    peak_memory_bytes_by_role: Mapping[str, int] = field(default_factory=dict)
    other_cpu_share: float = 0.0
    """What other programs took of the machine's cores meanwhile; a rate beside a busy neighbour says little."""
    details: Mapping[str, Any] = field(default_factory=dict)


def unite_rounds(first: Sequence[DisorderRun], second: Sequence[DisorderRun]) -> list[DisorderRun]:
    """Return the runs of the first round, each with its twin of the second, if it has one: rates are their mean."""
    twins = {(run.system, run.late_pct): run for run in second}
    return [_unite(run, twin) if (twin := twins.get((run.system, run.late_pct))) else run for run in first]


def _unite(run: DisorderRun, twin: DisorderRun) -> DisorderRun:
    rates = [each.rows_per_second for each in (run, twin) if each.rows_per_second is not None]
    batches = [each.batch_seconds for each in (run, twin) if each.batch_seconds is not None]
    return replace(
        run,
        rows_per_second=fmean(rates) if len(rates) == 2 else None,
        batch_seconds=max(batches, default=None),
        run_seconds=run.run_seconds + twin.run_seconds,
        answer=run.answer if not run.answer.equal else twin.answer,
        peak_memory_bytes=max(run.peak_memory_bytes, twin.peak_memory_bytes),
        other_cpu_share=max(run.other_cpu_share, twin.other_cpu_share),
        details={**run.details, "rounds_rows_per_second": rates, "second_round": dict(twin.details)},
    )


def compute_figures(
    runs: Sequence[DisorderRun], rows: int, curves: Sequence[Mapping[str, Any]] = ()
) -> dict[str, float]:
    """Return the figures by name; those of absent peers are absent.

    Unequal answers leave no claim about speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    answers = [run.answer.equal for run in runs] + [bool(point["answers_equal"]) for point in curves]
    figures: dict[str, float] = {"answers_equal": int(bool(answers) and all(answers)), "rows": rows}
    batches = [run.batch_seconds for run in runs if run.system == PER_KEY and run.batch_seconds is not None]
    if batches:
        figures["batch_seconds"] = max(batches)
    if not figures["answers_equal"]:
        return figures
    rates = {(run.system, run.late_pct): run.rows_per_second for run in runs}
    candidates: dict[str, float | None] = {}
    for late_pct in LATE_PCTS:
        own_rate = rates.get((PER_KEY, late_pct))
        for peer in (FLINK, PER_SLOT, SPARK):
            name = f"per_key_x_{peer.removeprefix('anabranch-')}_{late_pct}"
            candidates[name] = _divide(own_rate, rates.get((peer, late_pct)))
        candidates[f"per_key_rows_per_second_{late_pct}"] = own_rate
    candidates["drop_25_to_75_pct"] = _compute_drop_pct(rates, PER_KEY)
    candidates["flink_drop_25_to_75_pct"] = _compute_drop_pct(rates, FLINK)
    for run in runs:
        if run.late_pct == MIDDLE_PCT and run.system == SPARK:
            candidates["spark_dropped_pct_50"] = 100 * run.dropped_rows / run.rows
        if run.late_pct == MIDDLE_PCT and run.system == PER_KEY and run.late_rows is not None:
            candidates["late_pct_per_key_50"] = 100 * run.late_rows / run.rows
        if run.late_pct == MIDDLE_PCT and run.system == PER_SLOT and run.late_rows is not None:
            candidates["late_pct_per_slot_50"] = 100 * run.late_rows / run.rows
    figures |= {name: value for name, value in candidates.items() if value is not None}
    return figures | _compute_curve_figures(curves)


def _compute_drop_pct(rates: Mapping[tuple[str, int], float | None], system: str) -> float | None:
    """Return by how many percent a system slows down as disorder grows; below 0, it is faster."""
    remaining = _divide(rates.get((system, LATE_PCTS[-1])), rates.get((system, LATE_PCTS[0])))
    return None if remaining is None else 100 * (1 - remaining)


def _compute_curve_figures(curves: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the slowest rate over the fastest as keys grow (1 is flat), and the state of the most keys.

    Once as flows run, once without the merge before the exchange, where every row is a row of some slot.
    """
    figures: dict[str, float] = {}
    for name, local_merge in (("keys_flatness", True), ("keys_flatness_no_merge", False)):
        points = [point for point in curves if point["local_merge"] is local_merge]
        rates = [point["rows_per_second"] for point in points if point["rows_per_second"]]
        if len(rates) >= 2:
            figures[name] = min(rates) / max(rates)
    if figures:
        most = max(point["keys"] for point in curves)
        state_bytes = max(point["state_bytes"] for point in curves if point["keys"] == most)
        figures[f"keys_{most // 1_000_000}m_state_gb"] = state_bytes / 1e9
    return figures


def _divide(ours: float | None, peer: float | None) -> float | None:
    return ours / peer if ours is not None and peer else None
