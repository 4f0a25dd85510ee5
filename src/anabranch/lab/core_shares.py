"""A part of a core for every worker: so many small machines on one, by the kernel's control groups."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_LONGEST_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CoreShares:
    """A control group below which every process that asks gets one of its own, with the same part of a core."""

    folder: str
    share: float

    @classmethod
    def open(cls, share: float) -> CoreShares | None:
        """Make the group; None where this user or this kernel cannot."""
        for root, has_controller in (
            (CONTROL_GROUPS / "cpu", (CONTROL_GROUPS / "cpu" / "cpu.cfs_quota_us").exists()),
            (CONTROL_GROUPS, _controls_processor(CONTROL_GROUPS)),
        ):
            if not has_controller:
                continue
            folder = root / f"anabranch-lab-{uuid.uuid4().hex[:12]}"
            with suppress(OSError):
                folder.mkdir()
                if (folder / "cgroup.subtree_control").exists():
                    (folder / "cgroup.subtree_control").write_text("+cpu")
                return cls(str(folder), share)
        return None

    def take(self) -> None:
        """Put this process into a group of its own, if it is not in one yet."""
        own = Path(self.folder) / str(os.getpid())
        if own.exists():
            return
        own.mkdir()
        quota_us = int(_PERIOD_US * self.share)
        if (own / "cpu.max").exists():
            (own / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        else:
            (own / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (own / "cpu.cfs_quota_us").write_text(str(quota_us))
        (own / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        """Remove the groups once their processes have ended; wait some seconds for these."""
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        while Path(self.folder).exists() and time.monotonic() < deadline:
            for own in (*Path(self.folder).glob("*/"), Path(self.folder)):
                with suppress(OSError):
                    own.rmdir()
            time.sleep(0.1)


def _controls_processor(root: Path) -> bool:
    enabled = root / "cgroup.subtree_control"
    return enabled.exists() and "cpu" in enabled.read_text().split()
