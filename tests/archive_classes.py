"""Write the classes that a flow on Spark loads into an archive: a JVM that maps it starts with a third less work.

Run as a script, with the path of the archive. It is a matter of speed alone: where it fails, tests run without.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.drivers import DRIVER_ENVIRONMENT, SCRIPT, write_input
from quick_jvm import writes_archive

PATIENCE_SECONDS = 120.0


def main() -> None:
    """Run a short flow, wait until its JVM wrote what it loaded, and put that in place."""
    archive = Path(sys.argv[1])
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        write_input(Path(folder), files=2, rows=20, seed=1)
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **DRIVER_ENVIRONMENT, "UNDER_TEST_JVM": writes_archive(unfinished)},
        )
        # The JVM ends, and writes, after the driver's Python.
        ended = wait_for_group(process)
    if ended and unfinished.is_file():
        unfinished.replace(archive)
    else:
        unfinished.unlink(missing_ok=True)
        print("There is no archive of Spark's classes: JVMs of tests start without, and slower.", file=sys.stderr)


def wait_for_group(leader: subprocess.Popen[bytes]) -> bool:
    """Wait until no process of the group is left; end those that do not end by themselves, and say that there were."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            leader.poll()
            os.killpg(leader.pid, 0)
            time.sleep(0.1)
        os.killpg(leader.pid, signal.SIGKILL)
        return False
    return True


if __name__ == "__main__":
    main()
