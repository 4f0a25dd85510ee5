"""What tests ask of servers beside what benches do: skipped where there are none, run as another user."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.jars import ServerMissing
from benchmarks.servers.processes import ServerProcess
from folders import short_folder

UNPRIVILEGED_USER, UNPRIVILEGED_GROUP = "nobody", "nogroup"


def skip_or_fail(missing: Exception) -> None:
    """Skip the test for want of a server; fail it where all servers must be there."""
    if os.environ.get("ANABRANCH_REQUIRE_SERVERS"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))


class SkippedWhereMissing(ServerProcess):
    """A server whose tests are skipped, or fail, if there is no such program here."""

    def start(self) -> None:
        """Start it and wait until it answers."""
        try:
            super().start()
        except ServerMissing as missing:
            self.close()
            skip_or_fail(missing)

    def make_folder(self) -> Path:
        """Make a folder where those of tests are."""
        return Path(tempfile.mkdtemp(prefix="anabranch-", dir=short_folder()))


class UnprivilegedServer(SkippedWhereMissing):
    """A server that refuses to run as root: it is run as another user then."""

    def child_options(self) -> dict[str, Any]:
        """Return what makes a child process run as another user."""
        if os.geteuid() != 0:
            return {}
        return {"user": UNPRIVILEGED_USER, "group": UNPRIVILEGED_GROUP, "extra_groups": []}

    def make_folder(self) -> Path:
        """Make a folder that is the other user's."""
        folder = super().make_folder()
        if os.geteuid() == 0:
            shutil.chown(folder, UNPRIVILEGED_USER, UNPRIVILEGED_GROUP)
        return folder
