"""What a lab is to be, and whether this machine has enough for it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from anabranch.lab.errors import LabError
from anabranch.lab.standalone import WorkerSize
from anabranch.lab.wires import WireLimit

DRIVER = "driver"
_WORKER_NAME = re.compile(r"h([1-9]\d{0,2})")
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LabPlan:
    """What each host of a lab has; None: as much as the machine can give."""

    hosts: int
    """Those with workers, beside the driver's."""
    cpu: float | None = None
    driver_cpu: float | None = None
    """None: as much as the others."""
    mbit: float | None = None
    memory_mb: int = 1024

    @property
    def worker_size(self) -> WorkerSize:
        """A worker has a core for tasks for each begun core of its host."""
        return WorkerSize(cores=math.ceil(self.cpu or 1.0), memory=f"{self.memory_mb}m")

    @property
    def limit(self) -> WireLimit | None:
        """What the wire of a new host lets through."""
        return None if self.mbit is None else WireLimit(self.mbit)

    def quota_of(self, host: str) -> float | None:
        """Return how much of the cores a host may use."""
        return self.driver_cpu or self.cpu if host == DRIVER else self.cpu

    def check_cores(self, workers: int, machine_cores: int) -> None:
        """Raise if so many hosts with workers, and the driver's, would have more cores than there are.

        Each would then wait for the others, and what is measured on one would say how busy its neighbours are.
        """
        if self.cpu is None:
            if self.driver_cpu is not None:
                msg = "the driver's host has a quota and the others have none; give them one, too, with --cpu"
                raise LabError(msg)
            return
        driver_cpu = self.quota_of(DRIVER) or 0.0
        wanted = workers * self.cpu + driver_cpu
        if wanted > machine_cores + _ROUNDING:
            room = math.floor(100 * (machine_cores - (self.driver_cpu or 0.0)) / (workers + (self.driver_cpu is None)))
            msg = (
                f"{workers} hosts with {self.cpu:g} cores each and the driver's with {driver_cpu:g} are {wanted:g} "
                f"cores, and this machine has {machine_cores}; give each at most --cpu {max(room, 0) / 100:g}, "
                "or have fewer hosts"
            )
            raise LabError(msg)


def name_worker(number: int) -> str:
    """Return what a host with a worker is called, from 1 on."""
    return f"h{number}"


def number_of(name: str) -> int:
    """Return a host's number in its network: 0 is the driver's, others have that of their name."""
    found = _WORKER_NAME.fullmatch(name)
    if name != DRIVER and found is None:
        msg = f"{name!r} is no name for a host; they are called h1, h2 …, and {DRIVER}"
        raise LabError(msg)
    return int(found[1]) if found else 0
