"""Named moments between two writes, where a test may end a run.

``ANABRANCH_FAULT=after-manifest:3`` ends the process with SIGKILL when it reaches that moment in batch 3. Of a run in
the test's own process, ``killed_at`` ends the run with ``Killed``, and the process goes on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOMENTS = (
    "before-job",
    "in-slot-after-state",
    "after-job",
    "before-manifest",
    "after-manifest",
    "between-sinks",
    "after-publish",
)


class Killed(BaseException):
    """A run was ended where it stood, as a kill ends a process; no part of the engine may take it for a failure.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.console())
        >>> with ab.testing.FlowTester(flow) as tester:
        ...     tester.kill_at("after-manifest")
        ...     try:
        ...         _ = tester.add({"sensor": 1}).run()
        ...     except ab.testing.Killed as killed:
        ...         print(killed)
        ...     _ = tester.run_all()
        ...     print(tester.results().rows())
        killed at after-manifest of batch 0
        [(1, 1)]
    """

    def __init__(self, moment: str, batch: int) -> None:
        super().__init__(f"killed at {moment} of batch {batch}")
        self.moment = moment
        self.batch = batch


_ends_here: ContextVar[str | None] = ContextVar("ends_here", default=None)


@contextmanager
def killed_at(moment: str, batch: int | None = None) -> Iterator[None]:
    """Raise ``Killed`` where the block reaches a moment: of any batch, or of this one."""
    token = _ends_here.set(moment if batch is None else f"{moment}:{batch}")
    try:
        yield
    finally:
        _ends_here.reset(token)


def reach(moment: str, batch: int) -> None:
    """End this process, or the run in it, if it was told to end here."""
    here = (moment, f"{moment}:{batch}")
    if os.environ.get("ANABRANCH_FAULT") in here:
        os.kill(os.getpid(), signal.SIGKILL)
    if _ends_here.get() in here:
        raise Killed(moment, batch)
