"""Where tests put their files."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_SHARED_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 2 << 30
_ROOT = "TMPDIR"


def keep_in_memory() -> None:
    """Let temporary files, pytest's folders among them, lie in memory where there is room, unless somebody says where.

    Thousands of small checkpoints are written by tests, each with an fsync a file: on a disk, tests wait for these.
    """
    if _ROOT in os.environ or not os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        return
    if shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_BYTES:
        os.environ[_ROOT] = str(_SHARED_MEMORY)
        # It may have been asked for before, and is remembered.
        tempfile.tempdir = None


def short_folder() -> str:
    """Return where servers may have folders with Unix sockets: their paths have no more than about 100 letters."""
    return str(_SHARED_MEMORY) if os.environ.get(_ROOT) == str(_SHARED_MEMORY) else "/tmp"
