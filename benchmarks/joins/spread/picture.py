"""The first paper's figures 4 to 6 by our own measures: slots needed, the time to add them, rows received a slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.joins.spread.growth import GrowthRun
from benchmarks.joins.spread.received import ReceivedRun
from benchmarks.joins.spread.strategies import MNRT, SPREADINGS
from benchmarks.shared.picture import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK = "#22303a"
_LINES = {
    "mnrt": ("#0b6e99", "-"),
    "qmmp": ("#5b8c5a", "-"),
    "readj": ("#3f7f8c", "-."),
    "pkg": ("#b04a5a", "-."),
    "hash": ("#55626b", ":"),
    "matrix": ("#c06c2b", "--"),
    "bi": ("#8a6fa8", "--"),
    "bi6": ("#9c8b3b", "--"),
}


def draw_spread(
    received: Sequence[ReceivedRun], growth: Sequence[GrowthRun], folder: Path, name: str = "joins-slots"
) -> list[Path]:
    """Draw every measure by skew, a panel a join, a line a strategy."""
    from matplotlib.figure import Figure

    panels: list[tuple[str, Sequence[Any], Callable[[Any], float]]] = [
        *((f"{query}: rows received a slot", runs, _received_mean) for query, runs in _by_query(received)),
        *((f"{query}: rows of the most loaded slot", runs, _received_most) for query, runs in _by_query(received)),
        *((f"{query}: slots needed", runs, _slots) for query, runs in _by_query(growth)),
        *((f"{query}: seconds to add slots", runs, _seconds) for query, runs in _by_query(growth)),
    ]
    if not panels:
        return []
    columns = max(len(_by_query(received)), len(_by_query(growth)))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.4 * columns + 0.6, 2.5 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, (title, runs, measure) in zip(axes, panels, strict=False):
        _draw(panel, title, runs, measure)
    for panel in axes[len(panels) :]:
        panel.set_axis_off()
    axes[0].legend(frameon=False, fontsize=7, ncols=2)
    return save_figure(figure, folder, name)


def _by_query(runs: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    queries = dict.fromkeys(run.point.query for run in runs)
    return [(query, [run for run in runs if run.point.query == query]) for query in queries]


def _received_mean(run: ReceivedRun) -> float:
    return run.settled.mean


def _received_most(run: ReceivedRun) -> float:
    return run.settled.most


def _slots(run: GrowthRun) -> float:
    return run.slots


def _seconds(run: GrowthRun) -> float:
    return run.adjustment_seconds


def _draw(panel: Axes, title: str, runs: Sequence[Any], measure: Callable[[Any], float]) -> None:
    for strategy in dict.fromkeys(run.strategy for run in runs):
        shown = sorted((run.point.exponent, measure(run)) for run in runs if run.strategy == strategy)
        colour, style = _LINES[strategy]
        panel.plot(
            [exponent for exponent, _ in shown],
            [value for _, value in shown],
            style,
            marker="o",
            ms=3,
            color=colour,
            label=SPREADINGS[strategy].label,
            linewidth=2.2 if strategy == MNRT else 1.2,
        )
    panel.set_yscale("log")
    panel.set_title(title, loc="left", fontsize=9, color=_INK, fontweight="bold")
    panel.set_xlabel("zipf exponent", fontsize=8, color=_INK)
    panel.tick_params(which="both", labelsize=7, labelcolor=_INK)
    panel.grid(axis="y", color="#e5e9ec")
    panel.spines[["top", "right"]].set_visible(False)
