"""The applications' Flink job; it reads files and adds up as the disorder bench's does."""

from __future__ import annotations

from pathlib import Path

from anabranch.bench.peers.flink_java import SETTINGS, prepare_job

__all__ = ["MAIN_CLASS", "SETTINGS", "prepare_command"]

MAIN_CLASS = "anabranch.bench.AppsJob"
_FOLDER = Path(__file__).parent
_SOURCES = [*sorted(_FOLDER.glob("Apps*.java")), *sorted(_FOLDER.glob("Disorder*.java"))]


def prepare_command(cache_dir: Path, memory: str) -> list[str]:
    """Return the command that runs the job, compiling it first when that was not done yet."""
    return prepare_job("apps", _SOURCES, MAIN_CLASS, cache_dir, memory)
