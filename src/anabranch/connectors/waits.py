"""Waits for servers: noted where they happen, for whoever looks on."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from anabranch.model.waits import PastWait, Wait

LOGGER = "anabranch.waits"
"""The logger that is told of every wait, when it begins and when it is over."""
_MOST_PAST_WAITS = 100


class WaitBoard:
    """The waits of one process. ``show`` is called with those that are under way, whenever they change."""

    def __init__(
        self,
        show: Callable[[tuple[Wait, ...]], None] = lambda waits: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._show = show
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._waits: dict[str, Wait] = {}
        self._past: deque[PastWait] = deque(maxlen=_MOST_PAST_WAITS)

    @property
    def current(self) -> tuple[Wait, ...]:
        """The waits that are under way, oldest first."""
        with self._lock:
            return tuple(self._waits.values())

    def begin(self, place: str, reason: str, seconds_ago: float = 0.0) -> None:
        """Note that a place is waited for; one that is waited for already stays as it is."""
        with self._lock:
            if place not in self._waits:
                self._waits[place] = Wait(place, reason, self._wall_clock() - seconds_ago)
                self._show(tuple(self._waits.values()))

    def end(self, place: str) -> None:
        """Note that a place is waited for no longer; nothing, if it was not."""
        with self._lock:
            wait = self._waits.pop(place, None)
            if wait is not None:
                seconds = max(0.0, self._wall_clock() - wait.since_seconds)
                self._past.append(PastWait(place, wait.reason, seconds))
                self._show(tuple(self._waits.values()))

    def take_past(self) -> tuple[PastWait, ...]:
        """Return the waits that are over, each once; only the last hundred are kept."""
        with self._lock:
            past = tuple(self._past)
            self._past.clear()
            return past


_board: ContextVar[WaitBoard | None] = ContextVar("board", default=None)


@contextmanager
def noted_on(board: WaitBoard) -> Iterator[None]:
    """Let the waits of this thread be noted on a board while the block runs."""
    before = _board.get()
    _board.set(board)
    try:
        yield
    finally:
        # Not by token: a generator may be closed in another context than it was started in.
        _board.set(before)


def begin_wait(place: str, reason: str, seconds_ago: float = 0.0) -> None:
    """Note a wait of this thread, if anybody looks on."""
    board = _board.get()
    if board is not None:
        board.begin(place, reason, seconds_ago)


def end_wait(place: str) -> None:
    """Note that a wait of this thread is over."""
    board = _board.get()
    if board is not None:
        board.end(place)
