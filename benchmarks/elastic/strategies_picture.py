"""Pictures of the strategies part, after figures 6, 7 and 8 of the elastic paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.elastic.spread_figures import MERGED, STRATEGIES, CpuSpread, SpreadRun
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#22303a"
_PARTS = {"processing": "#0b6e99", "communication": "#c06c2b", "idle": "#e5e9ec"}
_LINES = {"hash": "#c06c2b", "auto": "#0b6e99"}
_NAMES = {"hash": "keys stay", "auto": "keys are balanced"}

DrawnStream = tuple[str, str, Sequence[tuple[int, str]], Sequence[CpuSpread]]
"""Stream, how keys are spread, phases by their first batch, and what executors used."""


def draw_strategies(runs: Sequence[SpreadRun], instances: int, folder: Path) -> list[Path]:
    """Draw what became of processor time, speed and bytes on wires under each strategy, on as many instances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 2.6), layout="constrained")
    shares, speed, wires = figure.subplots(1, 3)
    names = [name for name in (*STRATEGIES, MERGED) if any(run.strategy == name for run in runs)][::-1]
    of_name = {name: [run for run in runs if (run.strategy, run.instances) == (name, instances)] for name in names}
    left = [0.0] * len(names)
    for part, colour in _PARTS.items():
        widths = [_mean([100 * getattr(run.shares, part) for run in of_name[name]]) for name in names]
        bars = shares.barh(names, widths, left=left, color=colour, label=part, height=0.72)
        ink = _INK if part == "idle" else "white"
        labels = [f"{width:.0f}" if width >= 8 else "" for width in widths]
        shares.bar_label(bars, labels=labels, label_type="center", fontsize=8, color=ink)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    _style(shares, "processor time of executors, %")
    shares.legend(fontsize=6.5, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 0.0))
    rates = [_mean([run.rows_per_second / 1e3 for run in of_name[name]]) for name in names]
    _draw_bars(speed, names, rates, "thousand rows a second")
    crossed = [
        _mean([run.wire_bytes_per_row or run.exchanged_bytes_per_row for run in of_name[name]]) for name in names
    ]
    on_wires = any(run.wire_bytes_per_row is not None for run in runs)
    _draw_bars(wires, names, crossed, "bytes on wires, a row" if on_wires else "bytes in blocks, a row")
    for panel in (speed, wires):
        panel.set_yticklabels([])
    return save_figure(figure, folder, "strategies")


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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _draw_bars(panel: Axes, names: Sequence[str], values: Sequence[float], title: str) -> None:
    bars = panel.barh(list(names), list(values), color="#7fb2c9", height=0.72)
    panel.bar_label(bars, labels=[f"{value:,.1f}" for value in values], padding=3, fontsize=8, color=_INK)
    panel.set_xlim(0, max([*values, 1e-9]) * 1.35)
    _style(panel, title)


def _style(panel: Axes, title: str) -> None:
    panel.set_title(title, loc="left", fontsize=9, color=_INK)
    panel.tick_params(axis="y", length=0, labelsize=8, labelcolor=_INK)
    panel.xaxis.set_visible(False)
    panel.spines[["top", "right", "bottom"]].set_visible(False)
