"""Named moments between two writes, where a test may end the process.

``ANABRANCH_FAULT=after-manifest:3`` ends the process with SIGKILL when it reaches that moment in batch 3.
"""

from __future__ import annotations

import os
import signal

MOMENTS = (
    "before-job",
    "in-slot-after-state",
    "after-job",
    "before-manifest",
    "after-manifest",
    "between-sinks",
    "after-publish",
)


def reach(moment: str, batch: int) -> None:
    """End this process if it was told to end here."""
    wanted = os.environ.get("ANABRANCH_FAULT")
    if wanted and wanted in (moment, f"{moment}:{batch}"):
        os.kill(os.getpid(), signal.SIGKILL)
