"""Pictures of the energy bench: a day under each policy, and how full hosts are before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from anabranch.model.energy import Energy
from anabranch.model.power import DEFAULT_POWER
from anabranch.sim.energy_day import SimulatedDay
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from benchmarks.energy.runs import HostShares

_INK = "#22303a"
_WINDOWS_A_POINT = 10
_COLOURS = {
    "round-robin": "#b8c4cc",
    "after TMSH-Storm": "#8a6fae",
    "after LEEDSP": "#5b8c5a",
    "after WNDVR-Storm, DVRNP": "#d4b483",
    "after WNDVR-Storm, DVRCP": "#c9a227",
    "consolidation": "#c06c2b",
    "ERDM": "#0b6e99",
}


def draw_day(days: Sequence[SimulatedDay], settings: Energy, folder: Path, name: str = "energy-day") -> list[Path]:
    """Draw rows, hosts awake, latency and watts over the day."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 8.0), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True)
    seconds = days[0].window_seconds
    hours = _thin([window.now_seconds / 3_600 for window in days[0].windows], max)
    rows = _thin([window.rows / seconds / 1_000 for window in days[0].windows], mean)
    panels[0].plot(hours, rows, color=_INK, linewidth=0.8)
    panels[0].set_ylabel("thousand rows/s")
    for day in days:
        colour = _COLOURS.get(day.policy)
        watts = [
            sum(host.watts(DEFAULT_POWER.expected) for host in window.hosts)
            + DEFAULT_POWER.standby_watts * window.asleep
            for window in day.windows
        ]
        awake = _thin([float(len(window.hosts)) for window in day.windows], max)
        panels[1].step(hours, awake, color=colour, linewidth=1.0)
        late = _thin([window.latency_seconds for window in day.windows], max)
        panels[2].plot(hours, late, color=colour, linewidth=0.7)
        kilowatts = _thin([watt / 1_000 for watt in watts], mean)
        panels[3].plot(hours, kilowatts, color=colour, linewidth=0.8, label=day.policy)
    panels[2].axhline(settings.latency_seconds, color="#a03030", linewidth=0.8, linestyle="--")
    panels[2].set_ylim(bottom=0)
    for panel, label in zip(panels[1:], ("hosts awake", "latency, s", "kW, modelled"), strict=True):
        panel.set_ylabel(label)
    panels[3].set_xlabel("hour of the day")
    panels[3].set_xlim(0, 24)
    figure.suptitle("A simulated day of WordCount on 16 hosts, 25 % busy in the mean", fontsize=10.5, color=_INK)
    handles, labels = panels[3].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return save_figure(figure, folder, name)


def _thin(values: Sequence[float], gather: Callable[[Sequence[float]], float]) -> list[float]:
    """Return a value for every few windows, so that pictures stay small: their mean, or the largest."""
    return [gather(values[place : place + _WINDOWS_A_POINT]) for place in range(0, len(values), _WINDOWS_A_POINT)]


def draw_hosts(shares: Sequence[HostShares], folder: Path, name: str = "energy-hosts") -> list[Path]:
    """Draw how full each host is under the paper's load, before and after the reallocation (figures 7 to 9 there)."""
    from matplotlib.figure import Figure

    topologies = list(dict.fromkeys(share.topology for share in shares))
    figure = Figure(figsize=(10.0, 2.1 * len(topologies)), layout="constrained")
    panels = figure.subplots(len(topologies), 3, sharey=True, sharex=True, squeeze=False)
    for row, topology in enumerate(topologies):
        mine = [share for share in shares if share.topology == topology]
        columns = (
            ("processors", [one.cpu_before for one in mine], [one.cpu_after for one in mine]),
            ("network", [one.network_before for one in mine], [one.network_after for one in mine]),
            ("memory", [one.memory_before for one in mine], [one.memory_after for one in mine]),
        )
        for panel, (title, before, after) in zip(panels[row], columns, strict=True):
            places = range(1, len(mine) + 1)
            panel.bar([place - 0.2 for place in places], [100 * one for one in before], 0.38, color="#b8c4cc")
            panel.bar([place + 0.2 for place in places], [100 * (one or 0.0) for one in after], 0.38, color="#0b6e99")
            panel.set_ylim(0, 100)
            panel.set_title(f"{topology}: {title}, %", fontsize=8, color=_INK)
            panel.tick_params(labelsize=7)
    figure.suptitle("Hosts before (grey) and after (blue) as many were released as in the paper", fontsize=10)
    return save_figure(figure, folder, name)
