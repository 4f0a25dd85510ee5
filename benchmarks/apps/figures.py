"""From what the systems did with the applications to the figures that are claimed; pure, so that each can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.figures import OURS

FLINK, FLINK_WAITS, SPARK = "flink", "flink-waits", "spark"
PEERS = (FLINK, FLINK_WAITS, SPARK)
READ, EXCHANGE = "read", "exchange"


@dataclass(frozen=True, slots=True)
class AppRun:
    """One system with one application, once."""

    system: str
    input_name: str
    """The application, and whose readings they are if they are real ones."""
    round_number: int
    rows: int
    rows_per_second: float | None
    """In the steady state; none when the run was too short to have one."""
    batch_seconds: float | None
    """The longest batch after the warm-up; Flink's checkpoint interval."""
    run_seconds: float
    answer: AnswerCheck
    emissions: int
    peak_memory_bytes: int = 0
    other_cpu_share: float = 0.0
    """What other programs took of the machine's cores meanwhile; a rate beside a busy neighbour says little."""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartRun:
    """A system that did a part of the work only: it read rows, or read them and sent them to their keys."""

    system: str
    part: str
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast we were as a peer, in each round, one right after the other."""

    input_name: str
    peer: str
    by_round: tuple[float, ...]

    @property
    def middle(self) -> float:
        return median(self.by_round)

    @property
    def name(self) -> str:
        """The figure's name: low_voltage_x_flink."""
        return f"{self.input_name}_x_{self.peer}".replace("-", "_")


def compute_ratios(runs: Sequence[AppRun]) -> list[Ratio]:
    """Return our rate over each peer's by round, in the order in which they ran."""
    rates = {(run.input_name, run.system, run.round_number): run.rows_per_second for run in runs}
    rounds = sorted({run.round_number for run in runs})
    ratios = []
    for input_name in dict.fromkeys(run.input_name for run in runs):
        for peer in PEERS:
            pairs = [(rates.get((input_name, OURS, n)), rates.get((input_name, peer, n))) for n in rounds]
            found = tuple(ours / theirs for ours, theirs in pairs if ours is not None and theirs)
            if found:
                ratios.append(Ratio(input_name, peer, found))
    return ratios


def compute_figures(runs: Sequence[AppRun], parts: Sequence[PartRun] = ()) -> dict[str, float]:
    """Return the figures by name; those of absent peers are absent.

    Unequal answers leave no claim about speed: only ``answers_equal``, ``rows`` and ``batch_seconds`` remain.
    """
    answers = [run.answer.equal for run in runs]
    figures: dict[str, float] = {
        "answers_equal": int(bool(answers) and all(answers)),
        "rows": max((run.rows for run in runs), default=0),
    }
    batches = [run.batch_seconds for run in runs if run.system == OURS and run.batch_seconds is not None]
    if batches:
        figures["batch_seconds"] = max(batches)
    if not figures["answers_equal"]:
        return figures
    for input_name in dict.fromkeys(run.input_name for run in runs):
        for system in (OURS, *PEERS):
            rates = list_rates(runs, input_name, system)
            if rates:
                figures[f"{input_name}_{system}_rows_per_second".replace("-", "_")] = median(rates)
    for ratio in compute_ratios(runs):
        figures[ratio.name] = ratio.middle
    for part in parts:
        if part.rows_per_second is not None:
            figures[f"{part.part}_{part.system}_rows_per_second"] = part.rows_per_second
    return figures


def list_rates(runs: Sequence[AppRun], input_name: str, system: str) -> list[float]:
    """Return the rates of a system with an input, by round."""
    chosen = [run for run in runs if run.input_name == input_name and run.system == system]
    return [run.rows_per_second for run in chosen if run.rows_per_second is not None]


def take_apart(runs: Sequence[AppRun], parts: Sequence[PartRun], system: str, input_name: str) -> dict[str, float]:
    """Return microseconds a row by what they went for: reading, sending to the keys, and the application itself.

    Parts ran by themselves, so each is what is added to those before it; reading may hide behind the others.
    """
    whole = list_rates(runs, input_name, system)
    if not whole:
        return {}
    spent: dict[str, float] = {}
    before = 0.0
    for part in (READ, EXCHANGE):
        rate = next((each.rows_per_second for each in parts if (each.system, each.part) == (system, part)), None)
        if rate is not None:
            spent[part] = 1e6 / rate - before
            before = 1e6 / rate
    spent["state"] = 1e6 / median(whole) - before
    return spent
