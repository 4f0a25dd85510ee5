"""Pictures of the skew bench: load over time, strategies by skew, and the papers' four cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.shared.picture import save_figure
from benchmarks.skew.figures import BusyRun
from benchmarks.skew.loads import EVEN, LoadRun, is_four_cases, is_zipf

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OUR_COLOUR = "#0b6e99"
_PEER_COLOUR = "#b8c4cc"
_INK = "#22303a"
_WIDE = 4.0
"""Loads that are further apart than this are drawn by their logarithm."""
_LINES = tuple(
    (colour, style)
    for style in ("-", "--")
    for colour in ("#c06c2b", "#5b8c5a", "#8a6fa8", "#4f7f8f", "#9c8b3b", "#7a7a7a")
)


def draw_moving(
    loads: Sequence[LoadRun], phases: Mapping[str, Sequence[tuple[int, str]]], folder: Path, name: str = "skew-moving"
) -> list[Path]:
    """Draw max/mean by batch with the moments of change, hash beside balance; ``phases`` has their first batches."""
    from matplotlib.figure import Figure

    streams = [stream for stream in phases if any(run.stream == stream for run in loads)]
    if not streams:
        return []
    figure = Figure(figsize=(8.5, 2.3 * len(streams) + 0.4), layout="constrained")
    panels = figure.subplots(len(streams), 1, squeeze=False)
    for panel, stream in zip(panels[:, 0], streams, strict=True):
        by_system = {run.system: run.max_over_mean for run in loads if run.stream == stream}
        for system, colour in (("hash", _PEER_COLOUR), ("auto", _OUR_COLOUR)):
            if system in by_system:
                panel.plot(range(len(by_system[system])), by_system[system], "o-", ms=3, color=colour, label=system)
        for first, label in phases[stream]:
            panel.axvline(first - 0.5, color="#d5dbdf", linewidth=1, zorder=0)
            panel.annotate(label, (first - 0.4, 0.93), xycoords=("data", "axes fraction"), fontsize=8, color=_INK)
        panel.axhline(EVEN, color="#c06c2b", linewidth=0.8, linestyle="--")
        worst = max(worst for by_batch in by_system.values() for worst in by_batch)
        panel.set_ylim(0.95, 1.12 * worst)
        if worst > _WIDE:
            panel.set_yscale("log")
            panel.set_ylim(0.85, 1.6 * worst)
            panel.set_yticks([1, 2, 5, 10], labels=["1", "2", "5", "10"])
            panel.minorticks_off()
        panel.set_ylabel("busiest slot / mean", fontsize=8, color=_INK)
        _dress(panel, stream)
    panels[-1, 0].set_xlabel("batch", fontsize=8, color=_INK)
    panels[0, 0].legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2)
    return save_figure(figure, folder, name)


def draw_strategies(loads: Sequence[LoadRun], busy: Sequence[BusyRun], folder: Path, name: str = "skew") -> list[Path]:
    """Draw max/mean by skew and for every strategy, the balance of the papers' four cases, and rows a second."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 6.8), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1), width_ratios=(1.5, 1))
    zipf = [run for run in loads if is_zipf(run)]
    _draw_exponents(figure.add_subplot(grid[0, 0]), zipf)
    _draw_everyone(figure.add_subplot(grid[0, 1]), zipf)
    _draw_cases(figure.add_subplot(grid[1, 0]), [run for run in loads if is_four_cases(run)])
    _draw_rates(figure.add_subplot(grid[1, 1]), busy)
    return save_figure(figure, folder, name)


def _draw_exponents(panel: Axes, runs: Sequence[LoadRun]) -> None:
    """Draw a line for each strategy that ran under every skew."""
    exponents = {_exponent(run) for run in runs}
    lines = iter(_LINES)
    for system in dict.fromkeys(run.system for run in runs):
        shown = sorted((_exponent(run), run.settled_max_over_mean) for run in runs if run.system == system)
        if len(shown) < len(exponents):
            continue
        colour, style = {"auto": (_OUR_COLOUR, "-"), "hash": (_INK, "-")}.get(system) or next(lines)
        panel.plot(
            [exponent for exponent, _ in shown],
            [worst for _, worst in shown],
            style,
            marker="o",
            color=colour,
            label=system,
            linewidth=2.4 if system == "auto" else 1.0,
            ms=5 if system == "auto" else 3,
            zorder=3 if system == "auto" else 2,
        )
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("{x:g}")
    panel.set_xlabel("zipf exponent", fontsize=8, color=_INK)
    panel.axhline(EVEN, color="#c06c2b", linewidth=0.8, linestyle="--")
    panel.legend(frameon=False, fontsize=7, loc="upper left")
    _dress(panel, "busiest slot / mean, three batches after a change")


def _draw_everyone(panel: Axes, runs: Sequence[LoadRun]) -> None:
    """Draw all strategies under the skew that all of them ran under."""
    streams = list(dict.fromkeys(run.stream for run in runs))
    if not streams:
        return
    stream = max(streams, key=lambda name: len({run.system for run in runs if run.stream == name}))
    shown = sorted((run for run in runs if run.stream == stream), key=lambda run: -run.settled_max_over_mean)
    worst = [run.settled_max_over_mean for run in shown]
    colours = [_OUR_COLOUR if run.system == "auto" else _PEER_COLOUR for run in shown]
    bars = panel.barh([run.system for run in shown], worst, color=colours, height=0.7)
    panel.bar_label(bars, labels=[f"{value:.2f}" for value in worst], padding=3, fontsize=7)
    panel.invert_yaxis()
    panel.set_xlim(0, max(worst) * 1.15)
    panel.axvline(EVEN, color="#c06c2b", linewidth=0.8, linestyle="--")
    _dress(panel, f"{stream}, every strategy")
    panel.tick_params(axis="y", labelsize=7)
    panel.grid(visible=False)


def _exponent(run: LoadRun) -> float:
    return float(run.stream.split()[1])


def _draw_cases(panel: Axes, runs: Sequence[LoadRun]) -> None:
    streams = list(dict.fromkeys(run.stream for run in runs))
    systems = list(dict.fromkeys(run.system for run in runs))
    width = 0.8 / max(1, len(systems))
    colours = ("#55626b", "#b8c4cc", "#5b8c5a", "#c06c2b", _OUR_COLOUR)
    for position, system in enumerate(systems):
        across = [place + (position - (len(systems) - 1) / 2) * width for place in range(len(streams))]
        by_stream = {run.stream: run.balance for run in runs if run.system == system}
        heights = [by_stream.get(stream, 0.0) for stream in streams]
        panel.bar(across, heights, width * 0.92, label=system, color=colours[position % len(colours)])
    panel.set_xticks(range(len(streams)), [stream.replace(", ", ",\n") for stream in streams], fontsize=8)
    panel.set_ylim(0, 1.28)
    panel.set_yticks([0, 0.25, 0.5, 0.75, 1])
    panel.legend(frameon=False, fontsize=7, ncols=3, loc="upper center")
    _dress(panel, "balance: idlest slot / busiest")


def _draw_rates(panel: Axes, busy: Sequence[BusyRun]) -> None:
    shown = sorted(busy, key=lambda run: run.rows_per_second)
    bars = panel.barh(
        [run.system for run in shown],
        [run.rows_per_second / 1e3 for run in shown],
        color=[_OUR_COLOUR if run.system == "auto" else _PEER_COLOUR for run in shown],
        height=0.4,
    )
    panel.bar_label(bars, labels=[f"{run.rows_per_second / 1e3:.0f}" for run in shown], padding=3, fontsize=8)
    panel.set_xlim(0, max((run.rows_per_second / 1e3 for run in shown), default=1.0) * 1.2)
    _dress(panel, "thousand rows/s, zipf 1.5, costly operator")
    panel.grid(visible=False)


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, loc="left", fontsize=9.5, color=_INK, fontweight="bold")
    panel.tick_params(which="both", labelsize=8, labelcolor=_INK)
    panel.grid(axis="y", color="#e5e9ec")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
