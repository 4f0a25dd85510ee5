"""A picture of the parts of the skew bench that follow tables and figures of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.shared.picture import save_figure
from benchmarks.skew.paper.figures import CASES, TOPICS, SpreadRun, StreamRate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#22303a"
_COLOURS = {
    "flink": "#c06c2b",
    "hash": "#55626b",
    "modulo": "#b8c4cc",
    "consistent-hash": "#9c8b3b",
    "least-key": "#5b8c5a",
    "least-count": "#8a6fa8",
    "least-count-history": "#0b6e99",
    "readj": "#b8c4cc",
    "pkg": "#5b8c5a",
    "qmmp": "#8a6fa8",
    "mnrt": "#0b6e99",
    "auto": "#0b6e99",
}


def draw_paper_parts(spreads: Sequence[SpreadRun], rates: Sequence[StreamRate], folder: Path) -> list[Path]:
    """Draw the loads of slots from the fullest to the idlest, and rows a second by strategy and stream."""
    from matplotlib.figure import Figure

    if not spreads and not rates:
        return []
    figure = Figure(figsize=(9.5, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.2, 1))
    _draw_loads(figure.add_subplot(grid[0, 0]), spreads)
    topics = [rate for rate in rates if rate.part == TOPICS]
    _draw_rates(figure.add_subplot(grid[0, 1]), topics, "top 10 of topics, thousand rows/s (lab)")
    cases = [rate for rate in rates if rate.part == CASES]
    _draw_rates(figure.add_subplot(grid[1, :]), cases, "keys × data, a costly operator, thousand rows/s (lab)")
    return save_figure(figure, folder, "skew-papers")


def _draw_loads(panel: Axes, spreads: Sequence[SpreadRun]) -> None:
    for spread in spreads:
        shares = sorted(spread.shares_pct, reverse=True)
        panel.plot(shares, color=_COLOURS.get(spread.system, _INK), label=f"{spread.system}: {spread.balance:.2f}")
    panel.set_ylim(bottom=0)
    panel.set_xlabel("slots, the fullest first", fontsize=8, color=_INK)
    if spreads:
        panel.legend(frameon=False, fontsize=7, title="balance", title_fontsize=7)
    _dress(panel, "rising ids: share of all rows, % (live)")


def _draw_rates(panel: Axes, rates: Sequence[StreamRate], title: str) -> None:
    streams = list(dict.fromkeys(rate.stream for rate in rates))
    systems = list(dict.fromkeys(rate.run.system for rate in rates))
    wide = 0.8 / max(1, len(systems))
    for place, system in enumerate(systems):
        by_stream = {rate.stream: rate.run.rows_per_second / 1e3 for rate in rates if rate.run.system == system}
        across = [number + (place - (len(systems) - 1) / 2) * wide for number in range(len(streams))]
        heights = [by_stream.get(stream, 0.0) for stream in streams]
        bars = panel.bar(across, heights, 0.92 * wide, color=_COLOURS.get(system, _INK), label=system)
        panel.bar_label(bars, labels=[f"{height:.0f}" for height in heights], fontsize=6.5, padding=1, color=_INK)
    panel.set_xticks(range(len(streams)), [stream.replace(", ", ",\n") for stream in streams])
    panel.margins(y=0.25)
    if systems:
        panel.legend(frameon=False, fontsize=7, ncols=3, loc="upper left")
    _dress(panel, title)


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, loc="left", fontsize=9.5, color=_INK, fontweight="bold")
    panel.tick_params(labelsize=8, labelcolor=_INK)
    panel.grid(axis="y", color="#e5e9ec")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
