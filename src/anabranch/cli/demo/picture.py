"""The demo's picture: throughput and slot loads over time."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.metrics.history import RunHistory, skew

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#33414e"
SLOT_COLOURS = ("#2a6f97", "#e09f3e", "#52796f", "#9e2a2b", "#6d597a", "#61a5c2", "#bc6c25", "#84a98c")


def can_draw() -> bool:
    """Say whether what draws pictures is installed: the extra ``pictures``."""
    return find_spec("matplotlib") is not None


def draw_picture(history: RunHistory, home_rows: tuple[int, ...], rows_per_second: int, path: Path) -> None:
    """Draw a finished run into a PNG or SVG file; ``home_rows`` are the rows of each slot's keys before local merge."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1), width_ratios=(3, 2))
    _draw_throughput(figure.add_subplot(grid[0, :]), history, rows_per_second)
    _draw_slot_rows(figure.add_subplot(grid[1, 0]), history)
    _draw_loads(figure.add_subplot(grid[1, 1]), home_rows, history.totals.slot_rows)
    figure.savefig(path, dpi=120)


def _draw_throughput(axes: Axes, history: RunHistory, rows_per_second: int) -> None:
    ended = history.recent[-1].ended_seconds
    seconds = int(ended - history.started_seconds) + 1
    rates = history.throughput(history.started_seconds + seconds, 1.0, seconds)
    axes.bar([second + 0.5 for second in range(seconds)], [rate / 1000 for rate in rates], width=0.92, color="#2a6f97")
    axes.axhline(rows_per_second / 1000, color="#e09f3e", linestyle="--", linewidth=1.5, label="generated")
    axes.set_xlim(0, seconds)
    axes.set_ylim(top=axes.get_ylim()[1] * 1.15)
    axes.legend(loc="upper right", frameon=False)
    _label(axes, "Throughput", "seconds", "thousand rows/s")


def _draw_slot_rows(axes: Axes, history: RunHistory) -> None:
    batches = [timed for timed in history.recent if timed.progress.rows_in]
    moments = [timed.ended_seconds - history.started_seconds for timed in batches]
    slots = range(len(history.totals.slot_rows))
    rows = [[_rows_of(timed.progress.slot_rows, slot) for timed in batches] for slot in slots]
    colours = [SLOT_COLOURS[slot % len(SLOT_COLOURS)] for slot in slots]
    axes.stackplot(moments, rows, labels=[f"slot {slot}" for slot in slots], colors=colours)
    axes.margins(y=0.3)
    axes.set_xlim(left=0)
    axes.legend(loc="upper right", frameon=False, ncols=4, fontsize="small")
    _label(axes, "Slot loads, batch by batch", "seconds", "rows after local merge")


def _draw_loads(axes: Axes, home_rows: tuple[int, ...], received: tuple[int, ...]) -> None:
    for offset, rows, colour, name in (
        (-0.2, home_rows, "#c9d3da", "its keys' rows"),
        (0.2, received, INK, "received"),
    ):
        total = sum(rows) or 1
        places = [slot + offset for slot in range(len(rows))]
        label = f"{name}: max/mean {skew(rows) or 1.0:.2f}"
        axes.bar(places, [100 * count / total for count in rows], width=0.4, color=colour, label=label)
    axes.set_xticks(range(len(received)))
    axes.set_ylim(top=axes.get_ylim()[1] * 1.35)
    axes.legend(loc="upper right", frameon=False, fontsize="small")
    _label(axes, "Local merge takes the skew away", "slot", "% of all")


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.tick_params(colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def _rows_of(rows: tuple[int, ...], slot: int) -> int:
    return rows[slot] if slot < len(rows) else 0
