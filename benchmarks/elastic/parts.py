"""What each part of the elastic bench is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.shared.answers import AnswerCheck
from benchmarks.shared.registry import BenchOptions


@dataclass(frozen=True, slots=True)
class PartOutcome:
    """What one part found."""

    answers: Mapping[str, AnswerCheck]
    """By run: without equal ones, the part's figures claim nothing."""
    figures: Mapping[str, float]
    workload: Mapping[str, Any]
    """What was run: rows a second, quotas, hosts, settings."""
    runs: Sequence[Mapping[str, Any]]
    """Plain JSON data, a run each."""
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    """What was not measured, and why; how busy the machine was with other things."""
    pictures: Sequence[Path] = field(default_factory=tuple)


class RunsPart(Protocol):
    """A part of the bench."""

    def __call__(self, options: BenchOptions, peers: Sequence[str], console: Console) -> PartOutcome:
        """Run the part and check its answers; draw pictures if the options have a folder for them."""
        ...
