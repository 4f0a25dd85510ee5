"""Pictures of the keyed-window bench: who is how fast, and how the curves run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.keyed_window.report import NAMES
from benchmarks.shared.figures import OURS, SystemRun
from benchmarks.shared.mixed_json import MIXED_JSON
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OUR_COLOUR = "#0b6e99"
_PEER_COLOUR = "#b8c4cc"
_BOUND_COLOUR = "#e3dcc8"
_INK = "#22303a"
_FORMAT_TITLES = {"json": "JSON lines", "csv": "CSV", "parquet": "Parquet", MIXED_JSON: "JSON as it comes"}
_BOUNDS = {"two-polars": "no exchange, no state", "two-duckdb": "reads, and nothing else"}


def draw_comparison(runs: Sequence[SystemRun], rows: int, folder: Path, name: str = "keyed-window") -> list[Path]:
    """Draw rows a second as bars, one panel a file format, and return the PNG and the SVG."""
    from matplotlib.figure import Figure

    formats = [fmt for fmt in _FORMAT_TITLES if any(run.file_format == fmt and run.rows_per_second for run in runs)]
    if not formats:
        return []
    shown = {
        fmt: sorted(
            (run for run in runs if run.file_format == fmt and run.rows_per_second),
            key=lambda run: run.rows_per_second or 0.0,
        )
        for fmt in formats
    }
    figure = Figure(figsize=(8.5, 0.5 + sum(0.3 * len(shown[fmt]) + 0.45 for fmt in formats)), layout="constrained")
    panels = figure.subplots(len(formats), 1, squeeze=False, height_ratios=[len(shown[fmt]) for fmt in formats])
    for panel, fmt in zip(panels[:, 0], formats, strict=True):
        _draw_panel(panel, shown[fmt], _FORMAT_TITLES[fmt])
    figure.suptitle(
        f"10 s windows, count and sum, 100,000 zipf keys, {rows / 1e6:g} M rows, 2 cores: million rows a second",
        fontsize=10.5,
        color=_INK,
    )
    return save_figure(figure, folder, name)


def _draw_panel(panel: Axes, runs: Sequence[SystemRun], title: str) -> None:
    own_rate = next((run.rows_per_second / 1e6 for run in runs if run.system == OURS and run.rows_per_second), None)
    rates = [(run.rows_per_second or 0.0) / 1e6 for run in runs]
    colours = [_colour(run.system) for run in runs]
    bars = panel.barh([NAMES[run.system] for run in runs], rates, color=colours, height=0.72)
    labels = []
    for run, rate in zip(runs, rates, strict=True):
        labels.append(f"{rate:.2f}{_describe_ratio(run.system, rate, own_rate)}")
    panel.bar_label(bars, labels=labels, padding=4, fontsize=9, color=_INK)
    panel.set_xlim(0, max(rates) * 1.5)
    panel.set_title(title, loc="left", fontsize=10, color=_INK, fontweight="bold")
    panel.tick_params(axis="y", length=0, labelsize=9, labelcolor=_INK)
    panel.xaxis.set_visible(False)
    for side in ("top", "right", "bottom"):
        panel.spines[side].set_visible(False)
    panel.spines["left"].set_color("#8a979f")


def _describe_ratio(system: str, rate: float, own_rate: float | None) -> str:
    if own_rate is None or system == OURS:
        return ""
    if system in _BOUNDS:
        return f"   ({_BOUNDS[system]}: Anabranch at {own_rate / rate:.0%})"
    return f"   (Anabranch × {own_rate / rate:.1f})"


def _colour(system: str) -> str:
    if system == OURS:
        return _OUR_COLOUR
    return _BOUND_COLOUR if system in _BOUNDS else _PEER_COLOUR


def draw_curves(points: Sequence[Mapping[str, Any]], folder: Path, name: str = "keyed-window-curves") -> list[Path]:
    """Draw speed and memory over the number of rows and the number of keys."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, (curve, axis_label) in enumerate((("rows", "rows in all"), ("keys", "keys"))):
        shown = sorted((point for point in points if point["curve"] == curve), key=lambda point: point[curve])
        across = [point[curve] for point in shown]
        speed, memory = panels[0][column], panels[1][column]
        speed.plot(across, [(point["rows_per_second"] or 0.0) / 1e6 for point in shown], "o-", color=_OUR_COLOUR)
        for key, label, colour in (
            ("driver_bytes", "driver", "#0b6e99"),
            ("jvm_bytes", "JVM", "#c06c2b"),
            ("workers_bytes", "Python workers", "#5b8c5a"),
        ):
            memory.plot(across, [point[key] / 2**30 for point in shown], "o-", color=colour, label=label)
        for panel in (speed, memory):
            panel.set_xscale("log")
            panel.set_ylim(bottom=0)
            panel.grid(axis="y", color="#e5e9ec")
            panel.spines[["top", "right"]].set_visible(False)
        memory.set_xlabel(axis_label)
    panels[0][0].set_ylabel("million rows a second")
    panels[1][0].set_ylabel("peak memory, GiB")
    panels[1][0].legend(frameon=False, fontsize=8)
    return save_figure(figure, folder, name)
