"""Committed state and resident memory over the length of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.joins.memory.figures import ALIGNED, FREE, LIVE, MemoryRun
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#22303a"
_COLOURS = {
    "committed state": "#0b6e99",
    "jvm": "#c06c2b",
    "workers": "#5b8c5a",
    "driver": "#8a6fa8",
    ALIGNED: "#0b6e99",
    FREE: "#c06c2b",
}
_LABELS = {ALIGNED: "with align", FREE: "without"}

Line = Sequence[tuple[float, float]]


def draw_memory(runs: Sequence[MemoryRun], folder: Path, name: str = "joins-memory") -> list[Path]:
    """Draw state and memory on Spark by the window lengths that have gone by, and state of two speeds."""
    from matplotlib.figure import Figure

    by_way = {run.way: run for run in runs}
    if not by_way:
        return []
    figure = Figure(figsize=(9.6, 3.0), layout="constrained")
    state, memory, speeds = figure.subplots(1, 3)
    live = by_way[LIVE]
    _draw(state, "state on Spark, MB", {"committed state": _list_state(live)})
    roles = list(dict.fromkeys(role for sample in live.samples for role in sample.memory_bytes))
    resident = {
        role: [(sample.lengths, sample.memory_bytes.get(role, 0) / 1e6) for sample in live.samples] for role in roles
    }
    _draw(memory, "memory on Spark, MB", resident)
    _draw(
        speeds,
        "state at two speeds, in process, MB",
        {way: _list_state(by_way[way]) for way in (FREE, ALIGNED) if way in by_way},
    )
    return save_figure(figure, folder, name)


def _list_state(run: MemoryRun) -> Line:
    return [(sample.lengths, sample.state_bytes / 1e6) for sample in run.samples]


def _draw(panel: Axes, title: str, lines: Mapping[str, Line]) -> None:
    for name, line in lines.items():
        panel.plot(
            [at for at, _ in line], [value for _, value in line], color=_COLOURS[name], label=_LABELS.get(name, name)
        )
    panel.set_ylim(bottom=0)
    panel.set_title(title, loc="left", fontsize=9, color=_INK, fontweight="bold")
    panel.set_xlabel("window lengths of event time", fontsize=8, color=_INK)
    panel.tick_params(labelsize=7, labelcolor=_INK)
    panel.grid(axis="y", color="#e5e9ec")
    panel.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        panel.legend(frameon=False, fontsize=7)
