"""The picture of the strategies part, after figures 6 and 7 of the elastic paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.elastic.spread_figures import MERGED, STRATEGIES, SpreadRun
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#22303a"
_PARTS = {"processing": "#0b6e99", "communication": "#c06c2b", "idle": "#e5e9ec"}


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
