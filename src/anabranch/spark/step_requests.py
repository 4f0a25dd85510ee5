"""Asking the source for batches that no data calls for."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from anabranch.engine.batches.split_steps import StepRequest
from anabranch.model import Hold
from anabranch.spark.split_source import ControlFolder


class StepRequests:
    """What the driver wants of the source: ticks, now or at a time, and drains; asked from any thread."""

    def __init__(self, control: ControlFolder) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._request = StepRequest()
        self._wanted_boundaries = 0
        self._alarm: threading.Timer | None = None

    def ask(self, *, tick_after: int | None = None, drain: bool = False) -> None:
        """Ask for a step; a drain that was asked for stays asked for, whatever else is."""
        with self._lock:
            # Entries only rise: a request that was overtaken must not undo a later one.
            asked = [entry for entry in (self._request.tick_after, tick_after) if entry is not None]
            self._request = replace(
                self._request, tick_after=max(asked, default=None), drain=drain or self._request.drain
            )
            self._control.ask(self._request)

    def limit(self, holds: tuple[Hold, ...], max_rows: int | None) -> None:
        """Name the sources that are to bring nothing more for now, and what all may bring, in place of those before."""
        with self._lock:
            if (holds, max_rows) != (self._request.holds, self._request.max_rows):
                self._request = replace(self._request, holds=holds, max_rows=max_rows)
                self._control.ask(self._request)

    def want_boundary(self, last_entry: int) -> None:
        """See to it that a batch comes, also if no data does: what was accepted takes effect between batches."""
        with self._lock:
            self._wanted_boundaries += 1
        self.ask(tick_after=last_entry)

    def begin_batch(self) -> None:
        """Note that a batch begins: what was accepted until now is carried out in it, one command at each boundary."""
        with self._lock:
            self._wanted_boundaries = max(0, self._wanted_boundaries - 1)

    def end_batch(self, entry: int, *, due: bool, wake_us: int | None) -> None:
        """Ask for the next batch if windows are due or commands wait, and for one at a time if one is given."""
        if due or self._wanted_boundaries:
            self.ask(tick_after=entry)
        self.set_alarm(wake_us, entry)

    def set_alarm(self, wake_us: int | None, entry: int) -> None:
        """Ask for a batch at this time, in place of any time before: silence closes windows, too."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if wake_us is None:
            return
        self._alarm = threading.Timer(max(0.0, wake_us / 1e6 - time.time()), self.ask, kwargs={"tick_after": entry})
        self._alarm.daemon = True
        self._alarm.start()

    def close(self) -> None:
        """Ask for nothing any more."""
        self.set_alarm(None, 0)
