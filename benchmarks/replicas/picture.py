"""The picture of the replicas bench: the paper's four experiments, limits that bind, replicas placed again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.replicas.experiments import AGAIN, DEGREES, FAILURES, LIMITS, MACHINES, MRP, NODES, RANDOM, WHOLE, Point
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#22303a"
_COLOURS = {MRP: "#0b6e99", WHOLE: "#5b8c5a", RANDOM: "#c06c2b"}
_TITLES = {
    DEGREES: ("degree", "degree, 3 of 20 hosts fail"),
    NODES: ("slots", "slots, degree 2, 3 of 20 fail"),
    MACHINES: ("hosts", "hosts, degree 3, 15 % fail"),
    FAILURES: ("hosts that fail at once", "failures, degree 3, 20 hosts"),
    LIMITS: ("hosts that fail at once", "the same, four copies fit on a host"),
}


def draw_replicas(points: Sequence[Point], folder: Path) -> list[Path]:
    """Draw availability by experiment: dots are simulated runs with their error, lines all sets of failures."""
    from matplotlib.figure import Figure

    if not points:
        return []
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    panels = figure.subplots(2, 3).flat
    for panel, part in zip(panels, (*_TITLES, AGAIN), strict=True):
        shown = [point for point in points if point.part == part]
        if part == AGAIN:
            _draw_again(panel, shown)
        else:
            _draw_lines(panel, shown, *_TITLES[part])
    runs = max(point.runs for point in points)
    figure.suptitle(
        f"Availability without a store, %, simulated: dots are {runs} runs each, lines every set of failures",
        fontsize=10.5,
        color=_INK,
    )
    return save_figure(figure, folder, "replicas")


def _draw_lines(panel: Axes, points: Sequence[Point], label: str, title: str) -> None:
    for placement, colour in _COLOURS.items():
        own = [point for point in points if point.placement == placement]
        across = [point.x for point in own]
        known = [point.enumerated_pct for point in own]
        # Two of the lines lie on each other: the second one is dashed.
        style = "--" if placement == WHOLE else "-"
        panel.plot(across, [-1.0 if value is None else value for value in known], style, color=colour, lw=1.4)
        panel.errorbar(
            across,
            [point.simulated_pct for point in own],
            [point.error_pct for point in own],
            fmt="o",
            ms=3.5,
            color=colour,
            label=placement if own else None,
        )
    if points:
        panel.legend(frameon=False, fontsize=7, loc="lower right" if title.startswith("degree") else "lower left")
    panel.set_xlabel(label, fontsize=8, color=_INK)
    _dress(panel, title)


def _draw_again(panel: Axes, points: Sequence[Point]) -> None:
    names = {0: "degree 4,\nat once", 1: "at once", 2: "2 × 4", 4: "4 × 2", 8: "8 × 1"}
    panel.bar(
        range(len(points)),
        [point.simulated_pct for point in points],
        yerr=[point.error_pct for point in points],
        color=_COLOURS[MRP],
    )
    panel.set_xticks(range(len(points)), [names[int(point.x)] for point in points], fontsize=7)
    _dress(panel, "8 of 20 fail, placed again in between")


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, loc="left", fontsize=9, color=_INK, fontweight="bold")
    panel.set_ylim(0, 104)
    panel.tick_params(labelsize=8, labelcolor=_INK)
    panel.grid(axis="y", color="#e5e9ec")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
