"""What Spark hands to a Python task, without the wait that TCP puts before its second piece."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_OPEN_FILES = Path("/proc/self/fd")


def promptly(pieces: Iterator[T]) -> Iterator[T]:
    """Yield what comes from Spark, telling it before each piece that the last one has arrived.

    The JVM sends a task's command and its rows one after the other, each less than a packet. Its kernel holds the
    second back until the first is acknowledged, and ours, which has nothing to send along, would take 40 ms for that.
    """
    while True:
        acknowledge_arrivals()
        piece = next(pieces, None)
        if piece is None:
            return
        yield piece


def acknowledge_arrivals() -> None:
    """Send at once the acknowledgements that wait, on the connections that this process had when it last looked."""
    for number in _find_connections():
        try:
            _acknowledge(number)
        except OSError:
            # Closed since, its number perhaps given to a file: the next piece looks again.
            _find_connections.cache_clear()


def _acknowledge(number: int) -> None:
    connection = socket.socket(fileno=number)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    finally:
        # It stays with whoever opened it.
        connection.detach()


@cache
def _find_connections() -> tuple[int, ...]:
    """Return the descriptors of this process's TCP connections: a worker's first one is that to the JVM."""
    if not hasattr(socket, "TCP_QUICKACK") or not _OPEN_FILES.is_dir():
        return ()
    return tuple(number for number in map(int, os.listdir(_OPEN_FILES)) if _is_connection(number))


def _is_connection(number: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        found = socket.socket(fileno=number)
    except OSError:
        # The listing's own descriptor is closed by now.
        return False
    try:
        found.getpeername()
        return found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
    except OSError:
        return False
    finally:
        found.detach()
