"""Ctrl-C, once and twice."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While entered, the first SIGINT or SIGTERM is only noted; the second one raises ``KeyboardInterrupt``.

    Enter it after Spark has started: Spark's own handler cancels the jobs of the running batch. With ``only_sparks``,
    it is that one and Python's default that are replaced: a handler that the user put there is left to do its work.
    Outside the main thread, which alone hears signals, nothing is changed.
    """

    def __init__(self, *, only_sparks: bool = False) -> None:
        self.requested = False
        self._only_sparks = only_sparks
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT,) if self._only_sparks else (signal.SIGINT, signal.SIGTERM):
                if not self._only_sparks or _is_sparks(signal.getsignal(number)):
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _is_sparks(handler: Any) -> bool:
    return handler is signal.default_int_handler or str(getattr(handler, "__module__", "")).startswith("pyspark.")
