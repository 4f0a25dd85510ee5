"""What a run's setting ``energy`` means for its homes, for its control, and for what people are shown."""

from __future__ import annotations

import math
from dataclasses import replace

from anabranch.control.energy_use import EnergyUse
from anabranch.engine.settings import RunSettings
from anabranch.model import BatchProgress, RunTotals
from anabranch.model.elasticity import Elasticity


def open_energy(settings: RunSettings) -> EnergyUse | None:
    """Return what decides which hosts a run keeps awake; None if none is to sleep.

    Hosts are not filled further than elasticity would bear: it would bring them back at once.
    """
    energy, elasticity = settings.energy, settings.elasticity
    if energy is None or not energy.releases_hosts:
        return None
    if elasticity is None:
        return EnergyUse(energy, settings.interval_seconds)
    bounded = replace(energy, cpu_limit=min(energy.cpu_limit, elasticity.upper))
    return EnergyUse(bounded, settings.interval_seconds, elasticity.min_executors)


def find_limits(settings: RunSettings) -> Elasticity | None:
    """Return when slots move for the sake of balance: not at all where they go together so that hosts may sleep."""
    if settings.energy is None or not settings.energy.releases_hosts:
        return settings.elasticity
    return replace(settings.elasticity or Elasticity(), imbalance=math.inf)


def tell_drawn(totals: RunTotals, latest: BatchProgress | None) -> dict[str, str]:
    """Return the energy of a run and of its last batch in words, each with its interval, measured or modelled."""
    figures = {
        "run": totals.energy,
        "run per million rows": totals.energy_per_million_rows,
        "last batch": None if latest is None else latest.energy,
        "last batch per million rows": None if latest is None else latest.energy_per_million_rows,
    }
    told = {name: figure.describe() for name, figure in figures.items() if figure is not None}
    return told if totals.energy is None else {**told, "source": totals.energy.source}
