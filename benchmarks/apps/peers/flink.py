"""The applications' Flink job; it reads files and adds up as the disorder bench's does."""

from __future__ import annotations

from pathlib import Path

from benchmarks.disorder.peers import flink as disorder
from benchmarks.shared.peers.flink_java import SETTINGS, prepare_job

__all__ = ["MAIN_CLASS", "SETTINGS", "prepare_command"]

MAIN_CLASS = "benchmarks.AppsJob"
_SOURCES = [*sorted(Path(__file__).parent.glob("*.java")), *disorder.SOURCES]


def prepare_command(cache_dir: Path, memory: str) -> list[str]:
    """Return the command that runs the job, compiling it first when that was not done yet."""
    return prepare_job("apps", _SOURCES, MAIN_CLASS, cache_dir, memory)
