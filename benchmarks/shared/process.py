"""Run one system in a process of its own, and watch the memory of all its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.shared.registry import BenchError

_SAMPLE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How long a process tree ran, and the most memory it held.

    Resident bytes are summed over processes, so pages shared by forked workers count more than once.
    """

    run_seconds: float
    peak_bytes: int
    peak_bytes_by_role: dict[str, int]
    other_cpu_share: float
    """Busy time of all cores that these processes did not use, as a share of all cores' time."""


def run_measured(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    log_path: Path,
    timeout_seconds: float,
) -> ProcessOutcome:
    """Run a command to its end and return its peak memory by role: driver, jvm and workers."""
    peak_bytes = 0
    peak_by_role: dict[str, int] = {}
    cpu_seconds_by_pid: dict[int, float] = {}
    started = time.monotonic()
    busy_before = _read_busy_seconds()
    with log_path.open("wb") as log:
        # A session of its own: its whole tree can be ended when this one is.
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while process.poll() is None:
                by_role = _measure_tree(process.pid, cpu_seconds_by_pid)
                peak_bytes = max(peak_bytes, sum(by_role.values()))
                for role, role_bytes in by_role.items():
                    peak_by_role[role] = max(peak_by_role.get(role, 0), role_bytes)
                if time.monotonic() - started > timeout_seconds:
                    msg = f"{name} ran longer than {timeout_seconds:.0f} s and was ended; its log: {log_path}"
                    raise BenchError(msg)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_SAMPLE_SECONDS)
        finally:
            _end_session(process)
    if process.returncode != 0:
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-15:])
        msg = f"{name} ended with status {process.returncode}; the end of its log {log_path}:\n{tail}"
        raise BenchError(msg)
    run_seconds = time.monotonic() - started
    other_seconds = _read_busy_seconds() - busy_before - sum(cpu_seconds_by_pid.values())
    other_cpu_share = max(0.0, other_seconds / (run_seconds * (psutil.cpu_count() or 1)))
    return ProcessOutcome(run_seconds, peak_bytes, peak_by_role, other_cpu_share)


def _read_busy_seconds() -> float:
    times = psutil.cpu_times()
    # Where sessions are scheduled as groups, programs with a low priority take as much as others.
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def measure_memory(root_pid: int) -> dict[str, int]:
    """Return the resident bytes of a process and of those that it started, by role: driver, jvm and workers."""
    return _measure_tree(root_pid, {})


def _measure_tree(root_pid: int, cpu_seconds_by_pid: dict[int, float]) -> dict[str, int]:
    """Return resident bytes by role, and note each process's processor time so far: it is gone with the process."""
    by_role: dict[str, int] = {}
    try:
        root = psutil.Process(root_pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return by_role
    for process in tree:
        try:
            times = process.cpu_times()
            cpu_seconds_by_pid[process.pid] = times.user + times.system
            role = _find_role(process, root_pid)
            if role is not None:
                by_role[role] = by_role.get(role, 0) + process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return by_role


def _find_role(process: psutil.Process, root_pid: int) -> str | None:
    """Return driver, jvm or workers.

    None for a JVM's child on its way to a shell command: its pages are still the JVM's.
    """
    if process.pid == root_pid:
        return "driver"
    name = process.name()
    if name == "java":
        parent = process.parent()
        return None if parent is not None and parent.name() == "java" else "jvm"
    return "workers" if name.startswith(("python", "pypy")) else None


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the process's session, also after a normal end: a JVM may outlive its driver."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
