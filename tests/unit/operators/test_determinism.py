"""Equal inputs give equal bytes, in every process: Spark checksums what a task that is run again writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DIGESTS = Path(__file__).with_name("print_digests.py")


def digests(hash_seed: str) -> list[str]:
    tests = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "POLARS_MAX_THREADS": "1", "PYTHONPATH": str(tests)}
    done = subprocess.run(
        [sys.executable, str(DIGESTS)], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.splitlines()


def test_every_kernel_gives_equal_bytes_in_different_processes() -> None:
    first = digests("0")
    assert len(first) == 19
    assert first == digests("4711")
