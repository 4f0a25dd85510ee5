"""From what the systems did with each operator to the figures that are claimed; pure, so that each can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.operators.plan import OPERATORS
from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import Rate, summarise_rates

OURS = "anabranch"


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """One system with one operator, once."""

    operator: str
    system: str
    """Ours, or native Spark by its state store: ``spark-memory``, ``spark-rocksdb``."""
    rows: int
    rows_per_second: float | None
    """In the steady state; none when the run was too short to have one."""
    batch_seconds: float | None
    """The longest batch after the warm-up."""
    run_seconds: float
    answer: AnswerCheck
    state_bytes: int | None = None
    peak_memory_bytes: int = 0
    peak_memory_bytes_by_role: Mapping[str, int] = field(default_factory=dict)
    other_cpu_share: float = 0.0
    """What other programs took of the machine's cores meanwhile; a rate beside a busy neighbour says little."""
    details: Mapping[str, Any] = field(default_factory=dict)


def find_rates(runs: Sequence[OperatorRun]) -> dict[tuple[str, str], Rate]:
    """Return rates by operator and system; a system one of whose runs was too short has none."""
    return summarise_rates(((run.operator, run.system), run.rows_per_second) for run in runs)


def find_fastest_native(rates: Mapping[tuple[str, str], Rate], operator: str) -> str | None:
    """Return the state store with which native Spark was fastest, as a system."""
    stores = {system: rate for (name, system), rate in rates.items() if name == operator and system != OURS}
    return max(stores, key=lambda system: stores[system].median, default=None)


def compute_figures(runs: Sequence[OperatorRun], rows: int) -> dict[str, float]:
    """Return the figures by name; those of absent peers are absent.

    Unequal answers leave no claim about speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    figures: dict[str, float] = {
        "answers_equal": int(bool(runs) and all(run.answer.equal for run in runs)),
        "rows": rows,
    }
    batches = [run.batch_seconds for run in runs if run.system == OURS and run.batch_seconds is not None]
    if batches:
        figures["batch_seconds"] = max(batches)
    if not figures["answers_equal"]:
        return figures
    rates = find_rates(runs)
    for case in OPERATORS.values():
        ours, store = rates.get((case.name, OURS)), find_fastest_native(rates, case.name)
        if ours is None:
            continue
        if store is not None:
            figures[case.figure] = ours.median / rates[case.name, store].median
        figures[f"{case.name.replace('-', '_')}_rows_per_second"] = ours.median
    return figures
