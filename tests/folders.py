"""Where tests put their files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30
_ROOT = "PYTEST_DEBUG_TEMPROOT"


def keep_in_memory() -> None:
    """Let pytest make its folders in memory where there is room, unless somebody says where.

    Thousands of small checkpoints are written by tests, each with an fsync a file: on a disk, tests wait for these.
    """
    if _ROOT in os.environ or not os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        return
    if shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_BYTES:
        os.environ[_ROOT] = str(_SHARED_MEMORY)
