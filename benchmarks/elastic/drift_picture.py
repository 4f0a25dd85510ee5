"""The picture of the drift part, after figure 8 of the elastic paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.elastic.spread_figures import CpuSpread
from benchmarks.shared.picture import save_figure

_INK = "#22303a"
_LINES = {"hash": "#c06c2b", "auto": "#0b6e99"}
_NAMES = {"hash": "keys stay", "auto": "keys are balanced"}

DrawnStream = tuple[str, str, Sequence[tuple[int, str]], Sequence[CpuSpread]]
"""Stream, how keys are spread, phases by their first batch, and what executors used."""


def draw_spreads(drawn: Sequence[DrawnStream], folder: Path) -> list[Path]:
    """Draw mean and standard deviation of executors' processor time as keys move and narrow."""
    from matplotlib.figure import Figure

    streams = list(dict.fromkeys(stream for stream, *_ in drawn))
    if not streams:
        return []
    figure = Figure(figsize=(8.5, 3.4), layout="constrained")
    panels = figure.subplots(2, len(streams), squeeze=False, sharex="col")
    for column, stream in enumerate(streams):
        mean, deviation = panels[0][column], panels[1][column]
        for name, spread_by, phases, spreads in drawn:
            if name != stream:
                continue
            across = [spread.batch for spread in spreads]
            style = {"color": _LINES[spread_by], "label": _NAMES[spread_by], "linewidth": 1.4}
            mean.plot(across, [100 * spread.mean for spread in spreads], **style)
            deviation.plot(across, [100 * spread.deviation for spread in spreads], **style)
            for first, phase in phases:
                mean.axvline(first, color="#b8c4cc", linewidth=0.6)
                deviation.axvline(first, color="#b8c4cc", linewidth=0.6)
                if spread_by == "hash":
                    mean.text(first + 0.2, 104, phase, fontsize=6.5, color=_INK)
        mean.set_ylim(0, 115)
        deviation.set_ylim(bottom=0)
        mean.set_title(f"{stream}: mean of executors, %", loc="left", fontsize=9, color=_INK)
        deviation.set_title("standard deviation, points", loc="left", fontsize=9, color=_INK)
        deviation.set_xlabel("batch", fontsize=8, color=_INK)
        for panel in (mean, deviation):
            panel.tick_params(labelsize=8, labelcolor=_INK)
            panel.spines[["top", "right"]].set_visible(False)
    panels[1][0].legend(fontsize=7, frameon=False)
    return save_figure(figure, folder, "executor-spread")
