"""What the hosts of a flow draw, batch by batch: by the hardware's counters where there are any, else by a curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add

from anabranch.metrics.rapl import tell_measured
from anabranch.model.cluster import Executor
from anabranch.model.energy import EVERY_HOST, Energy
from anabranch.model.measures import BatchMeasures, HostLoad
from anabranch.model.power import EnergyFigure, integrate_power

_WORTH_TELLING_SECONDS = 1.0
"""Stretches between samples and batches never match to the moment."""


class EnergyBook:
    """Makes the energy of a batch of what its hosts did, waiting for it included.

    A host is busy with what the flow's own processes take of its executors' cores: what else runs there is not in it.
    Hosts that the flow has let go count with what a host draws asleep. Where there are counters, what they rose by
    counts in the batch that has the second sample.
    """

    def __init__(self, settings: Energy) -> None:
        self._settings = settings
        self._until: float | None = None
        self._most = 0
        self._uncounted: dict[str, list[tuple[float, float]]] = {}
        """By host that has counters, the (seconds, share of its processors) since its last sample."""

    def add(
        self, measures: BatchMeasures | None, executors: Sequence[Executor], *, now_seconds: float, batch_seconds: float
    ) -> EnergyFigure | None:
        """Return what was drawn since the batch before, or, of the first, while it ran; None if nobody was there."""
        seconds = batch_seconds if self._until is None else max(0.0, now_seconds - self._until)
        self._until = now_seconds
        cores: dict[str, int] = {}
        for executor in executors:
            cores[executor.host] = cores.get(executor.host, 0) + executor.cores
        self._most = max(self._most, len(cores))
        loads = {load.host: load for load in (measures.hosts if measures is not None else ())}
        figures: list[EnergyFigure] = []
        for host in sorted(cores):
            load = loads.get(host, HostLoad(host, 0, cores[host]))
            utilisation = load.busy_seconds / (cores[host] * seconds) if seconds > 0 else 0.0
            figures += self._tell_host(load, (seconds, utilisation))
        asleep = integrate_power(self._settings.power_of(EVERY_HOST), [(seconds, None)])
        figures += [asleep] * (self._most - len(cores))
        return reduce(add, figures) if figures else None

    def _tell_host(self, load: HostLoad, stretch: tuple[float, float]) -> Iterator[EnergyFigure]:
        power = self._settings.power_of(load.host)
        if not load.rapl_seconds:
            if load.host in self._uncounted:
                self._uncounted[load.host].append(stretch)
            else:
                yield integrate_power(power, [stretch])
            return
        yield tell_measured(load.rapl_joules, load.rapl_seconds, "RAPL")
        # Counters that had begun anew too often meanwhile tell nothing of what was before the sample before.
        passed = [*self._uncounted.get(load.host, ()), stretch]
        missing = sum(seconds for seconds, _ in passed) - load.rapl_seconds
        if load.host in self._uncounted and missing > _WORTH_TELLING_SECONDS:
            share = sum(seconds * busy for seconds, busy in passed) / sum(seconds for seconds, _ in passed)
            yield integrate_power(power, [(missing, share)])
        self._uncounted[load.host] = []
