"""The disorder bench's Flink job."""

from __future__ import annotations

from pathlib import Path

from benchmarks.shared.peers.flink_java import SETTINGS, prepare_job

__all__ = ["MAIN_CLASS", "SETTINGS", "SOURCES", "prepare_command"]

MAIN_CLASS = "benchmarks.DisorderJob"
SOURCES = sorted(Path(__file__).parent.glob("*.java"))


def prepare_command(cache_dir: Path, memory: str) -> list[str]:
    """Return the command that runs the job, compiling it first when that was not done yet."""
    return prepare_job("disorder", SOURCES, MAIN_CLASS, cache_dir, memory)
