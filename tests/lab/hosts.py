"""Hosts of its own on this machine for a test: whether there can be any, a lab of them, and a driver on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.lab.errors import LabError
from anabranch.lab.lab import Lab
from anabranch.lab.namespaces import find_hindrance, host_network
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile
from lab.drivers import DriverProcess, driver
from quick_jvm import QUICK_JVM, SPARK_ENVIRONMENT

SOME_MBIT = 100.0
MEMORY_MB = 600


def find_what_is_missing() -> str | None:
    """Say why there can be no hosts here, also where that shows only when one is made."""
    hindrance = find_hindrance()
    if hindrance is not None:
        return hindrance
    try:
        with host_network(1) as network:
            network.limit(SOME_MBIT)
    except LabError as error:
        return str(error)
    return None


@contextmanager
def lab_of(hosts: int, record: Path) -> Iterator[Lab]:
    """A lab of so many hosts, whose record is this file; where there can be none, the test is skipped."""
    missing = find_what_is_missing()
    if missing:
        pytest.skip(missing)
    lab = Lab(RecordFile(record))
    # One whose tests were killed may still be there.
    lab.down()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("SPARK_DAEMON_JAVA_OPTS", QUICK_JVM)
            lab.up(LabPlan(hosts=hosts, memory_mb=MEMORY_MB))
        yield lab
    finally:
        lab.down()


@contextmanager
def driver_on(lab: Lab, folder: Path, script: Path, log: str = "driver") -> Iterator[DriverProcess]:
    """Start a script on the driver's host of a lab, and end it and all its processes with the block."""
    prefix, variables = lab.place("driver", [])
    environment = {**variables, **SPARK_ENVIRONMENT}
    with driver(folder, log=log, script=script, prefix=prefix, environment=environment) as process:
        yield process
