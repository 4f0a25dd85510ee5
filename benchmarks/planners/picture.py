"""The picture of the planners bench: what a plan costs before, while and after it is carried out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from benchmarks.planners.bench import PlannerRun

_COLOURS = {"mnrt": "#0b6e99", "qmmp": "#c06c2b", "readj": "#5b8c5a", "balance-load": "#b8c4cc"}
_INK = "#22303a"
# Nothing has no place on a logarithmic axis.
_LEAST = 1e-4


def draw_planners(
    runs: Sequence[PlannerRun], curves: Sequence[PlannerRun], folder: Path, name: str = "planners"
) -> list[Path]:
    """Draw planning time, routing table, split load and evenness by input, and planning time by tolerance."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 6.4), layout="constrained")
    panels = figure.subplots(2, 3)
    _draw_bars(panels[0][0], runs, [run.planning_seconds * 1000 for run in runs], "planning, ms", log=True)
    _draw_bars(panels[0][1], runs, [run.table_rows for run in runs], "routing table, rows", log=True)
    _draw_bars(panels[0][2], runs, [run.moved_bytes_pct for run in runs], "state moved, %", log=True)
    _draw_bars(panels[1][0], runs, [run.split_load_pct for run in runs], "load of split keys, %", log=False)
    _draw_bars(panels[1][1], runs, [run.max_over_mean_after for run in runs], "busiest slot / mean", log=True)
    _draw_tolerances(panels[1][2], [run for run in curves if run.slots_after == run.slots])
    shown = runs[0]
    figure.suptitle(
        f"Planners: {shown.keys:,} keys, {shown.slots} slots, tolerance {shown.tolerance:g}",
        fontsize=10.5,
        color=_INK,
    )
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    return save_figure(figure, folder, name)


def _draw_bars(panel: Axes, runs: Sequence[PlannerRun], values: Sequence[float], title: str, *, log: bool) -> None:
    inputs = list(dict.fromkeys(run.input for run in runs))
    systems = list(dict.fromkeys(run.system for run in runs))
    width = 0.8 / len(systems)
    by_pair = {(run.system, run.input): value for run, value in zip(runs, values, strict=True)}
    for position, system in enumerate(systems):
        across = [place + (position - (len(systems) - 1) / 2) * width for place in range(len(inputs))]
        heights = [max(by_pair.get((system, given), 0.0), _LEAST if log else 0.0) for given in inputs]
        panel.bar(across, heights, width * 0.92, label=system, color=_COLOURS.get(system))
    panel.set_xticks(range(len(inputs)), inputs, fontsize=8)
    if log:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_ylim(bottom=min(value for value in values if value > 0) / 2 if any(values) else None)
    _dress(panel, title)


def _draw_tolerances(panel: Axes, runs: Sequence[PlannerRun]) -> None:
    for system in dict.fromkeys(run.system for run in runs):
        shown = [run for run in runs if run.system == system]
        panel.plot(
            [run.tolerance for run in shown],
            [run.planning_seconds * 1000 for run in shown],
            "o-",
            color=_COLOURS.get(system),
        )
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    tolerances = sorted({run.tolerance for run in runs})
    panel.set_xticks(tolerances, [f"{tolerance:g}" for tolerance in tolerances])
    panel.minorticks_off()
    panel.set_xlabel(f"tolerance ({runs[0].input})", fontsize=8)
    _dress(panel, "planning, ms")


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, loc="left", fontsize=9.5, color=_INK, fontweight="bold")
    panel.tick_params(labelsize=8, labelcolor=_INK)
    panel.grid(axis="y", color="#e5e9ec")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
