"""A part of a core for every worker: so many small machines on one, by the kernel's control groups."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass

from anabranch.lab.control_groups import ControlGroup, plan_group
from anabranch.lab.errors import LabError


@dataclass(frozen=True, slots=True)
class CoreShares:
    """A control group below which every process that asks gets one of its own, with the same part of a core."""

    group: ControlGroup
    share: float

    @classmethod
    def open(cls, share: float) -> CoreShares | None:
        """Make the group; None where this user or this kernel cannot."""
        try:
            group = plan_group(f"anabranch-lab-{uuid.uuid4().hex[:12]}")
            group.make(for_groups=True)
        except LabError:
            return None
        return cls(group, share)

    def take(self) -> None:
        """Put this process into a group of its own, if it is not in one yet."""
        own = self.group.inner(str(os.getpid()))
        if own.exists:
            return
        own.make()
        own.limit(self.share)
        own.enter(os.getpid())

    def close(self) -> None:
        """Remove the groups once their processes have ended; wait some seconds for these."""
        self.group.remove()
