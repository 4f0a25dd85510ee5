"""What the kernel counts of processes and of the host's network; nothing of it raises, what is not there is 0."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import sys
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from anabranch.metrics.rapl import PowerError, read_rapl
from anabranch.model.measures import ExecutorSample
from anabranch.model.power import RaplReading

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BYTES_A_MEGABIT = 125_000
_MOST_BYTES = 1 << 16
"""Of a file in /proc; these are a few hundred."""


def peak_memory_bytes() -> int:
    """Return the most that this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_memory_since_bytes() -> int:
    """Return the most that this process held since ``count_peak_anew``, or, where the kernel knows no such, ever."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) * 1024
    return peak_memory_bytes()


def count_peak_anew() -> None:
    """Let ``peak_memory_since_bytes`` of this process count from what it holds now."""
    with contextlib.suppress(OSError):
        number = os.open("/proc/self/clear_refs", os.O_WRONLY)
        try:
            os.write(number, b"5")
        finally:
            os.close(number)


def sample_executor(process: int) -> ExecutorSample:
    """Return the counters of a process and of the network that this one sees."""
    # The name, in brackets, may have spaces in it; utime and stime are the 14th and 15th field.
    fields = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()
    pages = _read(f"/proc/{process}/statm").split()
    sent_bytes, received_bytes = read_network()
    return ExecutorSample(
        process_cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0,
        process_memory_bytes=int(pages[1]) * _PAGE_BYTES if len(pages) > 1 else 0,
        network_sent_bytes=sent_bytes,
        network_received_bytes=received_bytes,
        rapl=_read_energy(),
    )


def _read_energy() -> RaplReading | None:
    try:
        return read_rapl(time.monotonic())
    except PowerError:
        # Counters for root alone: then a power curve tells what the host draws.
        return None


def read_network() -> tuple[int, int]:
    """Return the bytes that went out and came in through the host's interfaces since it started."""
    counted: dict[str, tuple[int, int]] = {}
    for line in _read("/proc/self/net/dev").decode().splitlines()[2:]:
        name, _, figures = line.partition(":")
        columns = figures.split()
        counted[name.strip()] = int(columns[8]), int(columns[0])
    chosen = choose_interfaces(frozenset(counted))
    return sum(counted[name][0] for name in chosen), sum(counted[name][1] for name in chosen)


@lru_cache(maxsize=4)
def choose_interfaces(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of a host's interfaces that others are reached through.

    Bytes of containers go through a bridge and then through the host's card: where there are cards, they count alone.
    In a container or a network namespace there is none.
    """
    others = sorted(name for name in names if name != "lo")
    cards = tuple(name for name in others if os.path.exists(f"/sys/class/net/{name}/device"))
    return cards or tuple(others)


def _read(path: str) -> bytes:
    try:
        number = os.open(path, os.O_RDONLY)
        try:
            return os.read(number, _MOST_BYTES)
        finally:
            os.close(number)
    except OSError:
        return b""


def read_link_bytes_per_second(folder: Path = Path("/sys/class/net")) -> float:
    """Return what the host's network interfaces say that they carry, both ways together; infinity if none says it."""
    carried = 0.0
    with contextlib.suppress(OSError):
        for name in choose_interfaces(frozenset(os.listdir(folder))):
            # Virtual interfaces say -1 or nothing, and one that is down refuses to say.
            with contextlib.suppress(OSError, ValueError):
                carried += max(0, int((folder / name / "speed").read_text())) * 2 * _BYTES_A_MEGABIT
    return carried or math.inf
