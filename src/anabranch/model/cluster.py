"""Where a flow can run and where its slots are at home, as data that policies read and manifests keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SlotId = tuple[int, int]
"""(level, slot): an instance of all stateful operators of a level, one task a batch."""

Homes = Mapping[SlotId, str]
"""Slot → the id of the executor that it is asked to run on. A slot without a home runs wherever Spark puts it."""


@dataclass(frozen=True, slots=True)
class Executor:
    """A process that runs tasks."""

    id: str
    """Spark's own; the ids of two applications may be the same."""
    host: str
    cores: int
    memory_bytes: int = 0
    """What Spark gave it for its tasks; 0 if unknown."""
    is_leaving: bool = False
    """It is being decommissioned: it still answers, and must get no slots."""
    is_warm: bool = True
    """A job has run there: its Python workers have started, and what they import is loaded."""
