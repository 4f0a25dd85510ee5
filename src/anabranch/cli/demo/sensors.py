"""The sensors with the lowest voltage, as the flow finds them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from anabranch.cli.demo.scale import LOW_VOLTS
from anabranch.cli.formats import draw_bar, format_count

LINES_BESIDE_THE_TABLE = 18
"""The progress panel, the table's own head and a line below it."""
BAR_WIDTH = 16


class WorstSensors:
    """Follows a folder of results; ``refresh`` takes in the part files that appeared since."""

    def __init__(self, folder: Path, most_shown: int = 10) -> None:
        self._folder = folder
        self._most_shown = most_shown
        self._seen: set[str] = set()
        self.windows = 0
        self.ranking = pl.DataFrame(
            schema={
                "sensor": pl.Int64,
                "windows": pl.Int64,
                "low_readings": pl.Int64,
                "lowest": pl.Float64,
                "last": pl.Datetime("us"),
            }
        )

    def refresh(self) -> None:
        """Read new part files and rank the sensors again, the lowest voltage first."""
        new = sorted(path for path in self._folder.glob("part-*.parquet") if path.name not in self._seen)
        if not new:
            return
        self._seen.update(path.name for path in new)
        alerts = pl.concat(map(pl.read_parquet, new))
        self.windows += alerts.height
        added = alerts.select(
            "sensor",
            pl.lit(1, dtype=pl.Int64).alias("windows"),
            "low_readings",
            "lowest",
            pl.col("window_end").alias("last"),
        )
        self.ranking = (
            pl.concat([self.ranking, added])
            .group_by("sensor")
            .agg(pl.col("windows", "low_readings").sum(), pl.col("lowest").min(), pl.col("last").max())
            .sort("lowest", "sensor")
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = console.height - LINES_BESIDE_THE_TABLE if console.is_terminal else self._most_shown
        yield self.table(max(3, min(self._most_shown, room)))

    def table(self, rows: int) -> Table:
        """Return the worst sensors with what is known of them."""
        title = (
            f"lowest voltage: {format_count(self.windows)} low windows of {format_count(self.ranking.height)} sensors"
        )
        table = Table(box=None, title=title, title_justify="left", title_style="bold", header_style="cyan")
        table.add_column("sensor", justify="right")
        table.add_column("lowest", justify="right")
        table.add_column(f"below {LOW_VOLTS:.0f} V", width=BAR_WIDTH, no_wrap=True)
        table.add_column("low readings", justify="right")
        table.add_column("low windows", justify="right")
        table.add_column("last")
        worst = self.ranking.head(rows)
        deepest = LOW_VOLTS - worst["lowest"][0] if worst.height else 0.0
        for sensor, windows, readings, lowest, last in worst.iter_rows():
            table.add_row(
                str(sensor),
                f"{lowest:.1f} V",
                Text(draw_bar(LOW_VOLTS - lowest, deepest, BAR_WIDTH), style="red"),
                format_count(readings),
                format_count(windows),
                f"{last:%H:%M:%S}",
            )
        return table
