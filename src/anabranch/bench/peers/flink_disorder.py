"""The disorder bench's Flink job."""

from __future__ import annotations

from pathlib import Path

from anabranch.bench.peers.flink_java import SETTINGS, find_jdk, prepare_job

__all__ = ["MAIN_CLASS", "SETTINGS", "find_jdk", "prepare_command"]

MAIN_CLASS = "anabranch.bench.DisorderJob"
_SOURCES = sorted(Path(__file__).parent.glob("Disorder*.java"))


def prepare_command(cache_dir: Path, memory: str) -> list[str]:
    """Return the command that runs the job, compiling it first when that was not done yet."""
    return prepare_job("disorder", _SOURCES, MAIN_CLASS, cache_dir, memory)
