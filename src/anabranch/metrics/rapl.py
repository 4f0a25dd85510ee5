"""What processors and memory of this machine drew, by the counters that the kernel shows (RAPL), where it does.

Counters rise, in microjoules, and begin again at 0 beyond a range of their own. They know packages and memory, not
disks, fans or power supplies. Virtual machines rarely show them: there a power curve must do (``model/power.py``).
"""

from __future__ import annotations

from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.model.power import EnergyCounter, EnergyFigure, RaplReading

POWERCAP = Path("/sys/class/powercap")
_MICRO = 1e-6
_UPDATE_SECONDS = 0.001
"""Counters are brought up to date about every millisecond."""
MOST_WATTS = 2_000.0
"""No counter of one package rises faster than this."""


class PowerError(AnabranchError):
    """Energy cannot be measured here: no counters, none that may be read, or two readings too far apart."""


def read_rapl(at_seconds: float, folder: Path = POWERCAP) -> RaplReading | None:
    """Return the counters of packages and of memory; None where the kernel shows none.

    What is part of a package (its cores, its graphics) is left out, and so is the platform, of which packages are a
    part, and every second way to the same package. ``at_seconds`` is the moment, by any clock that only rises. Raises
    ``PowerError`` if there are counters that this process may not read.
    """
    if not folder.is_dir():
        return None
    counters: dict[str, EnergyCounter] = {}
    names: set[tuple[str, str]] = set()
    for zone in sorted(folder.iterdir(), key=lambda path: path.name):
        label = zone / "name"
        if ":" not in zone.name or not label.is_file() or not (zone / "energy_uj").exists():
            continue
        name = label.read_text(encoding="ascii").strip()
        # Memory has the same name in every package.
        package = zone.name.rpartition(":")[0] if name == "dram" else ""
        if not (name.startswith("package") or name == "dram") or (package, name) in names:
            continue
        names.add((package, name))
        counters[f"{zone.name} {name}"] = _read_counter(zone)
    return RaplReading(at_seconds, counters) if counters else None


def _read_counter(zone: Path) -> EnergyCounter:
    try:
        value = int((zone / "energy_uj").read_text(encoding="ascii"))
        largest = int((zone / "max_energy_range_uj").read_text(encoding="ascii"))
    except PermissionError as error:
        msg = f"{zone / 'energy_uj'} may be read by root only; let this user read it, or give hosts a power curve"
        raise PowerError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"{zone} shows no energy counter that can be read: {error}; give hosts a power curve"
        raise PowerError(msg) from error
    return EnergyCounter(value, largest)


def measure_between(before: RaplReading, after: RaplReading) -> EnergyFigure:
    """Return the joules between two readings, with the bounds that the age of both allows.

    A counter that is lower than it was has begun again, once. Raises ``PowerError`` if it may have done so more often,
    or if the readings are not of the same counters.
    """
    seconds = after.at_seconds - before.at_seconds
    if not seconds > 0:
        msg = f"the second reading is {seconds:g} s after the first; give them in the order in which they were taken"
        raise PowerError(msg)
    if before.counters.keys() != after.counters.keys():
        msg = f"counters were {sorted(before.counters)} and are {sorted(after.counters)}; read again, twice"
        raise PowerError(msg)
    joules = 0.0
    for zone, counter in sorted(after.counters.items()):
        if seconds * MOST_WATTS > counter.range_microjoules * _MICRO:
            longest = counter.range_microjoules * _MICRO / MOST_WATTS
            msg = f"{seconds:g} s are between two readings, in which the counter of {zone} may have begun again more "
            msg += f"than once; read at least every {longest:.0f} s"
            raise PowerError(msg)
        risen = counter.microjoules - before.counters[zone].microjoules
        # From the largest value to 0 is a step, too.
        joules += _MICRO * (risen if risen >= 0 else risen + counter.range_microjoules + 1)
    return tell_measured(joules, seconds, f"RAPL, {len(after.counters)} counters of packages and memory")


def tell_measured(joules: float, seconds: float, source: str) -> EnergyFigure:
    """Return what counters rose by in so many seconds, with the bounds that their age allows."""
    late = joules / seconds * _UPDATE_SECONDS
    return EnergyFigure(joules, max(0.0, joules - late), joules + late, "measured", source)
