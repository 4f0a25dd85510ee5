"""Ways to disturb a driver."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from lab.drivers import DriverProcess, driver


def moving(seed: int) -> dict[str, str]:
    """Return the environment of a driver whose keys move at every boundary."""
    return {"UNDER_TEST_MOVES": str(seed)}


def kill_at(
    folder: Path,
    moment: str,
    batch: int,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> None:
    """Run until the fault point ends the driver (or, in a slot, ends so many tasks that the flow fails)."""
    fault = {"ANABRANCH_FAULT": f"{moment}:{batch}"}
    in_tasks = ("--conf", f"spark.executorEnv.ANABRANCH_FAULT={moment}:{batch}")
    with driver(folder, *arguments, *in_tasks, environment=fault | dict(environment or {})) as process:
        code = process.wait()
        assert code != 0, f"the driver did not reach {moment} in batch {batch}: {process.lines[-3:]}"


def kill_at_random(folder: Path, chance: random.Random, environment: Mapping[str, str] | None = None) -> bool:
    """Kill the driver, its JVM or both at a random moment; say whether it was still at work then."""
    victim = chance.choice(["driver", "driver", "jvm", "everything"])
    with driver(folder, environment=environment) as process:
        began = process.wait_for("ready") and process.wait_for("batch ")
        time.sleep(chance.random())
        process.kill(victim)
        return process.wait() != 0 and began


def put_to_sleep(process: DriverProcess) -> list[psutil.Process]:
    """Stop the other processes of a driver that stopped itself, as a paused machine would; return them all."""
    family = process.family()
    for member in reversed(family[1:]):
        member.suspend()
    return family


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file that readers and later drivers look at, with its bytes."""
    places = [folder / "out", *(folder / "checkpoint" / name for name in ("commits", "sources", "spark", "state"))]
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    # A file is named so until it is complete: nobody looks at it, and its writer takes it away when it wakes up.
    return {str(path): path.read_bytes() for path in files if not path.name.startswith(".tmp-")}
