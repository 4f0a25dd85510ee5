"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.connectors.filesystem.staged_frames import read_staged
from anabranch.connectors.formats.encodings import encode_arrow
from anabranch.model import StagedFile

_WIDEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class ConsoleSink:
    """Prints each batch's first rows; made by ``console``."""

    rows: int
    suffix: str = ".arrow"

    @property
    def label(self) -> str:
        """Say that results are printed."""
        return f"console ({self.rows} rows a batch)"

    def check(self, schema: Mapping[str, pl.DataType]) -> None:
        """Raise nothing: every type can be shown."""

    def encode(self, frame: pl.DataFrame) -> bytes:
        """Return an Arrow file."""
        return encode_arrow(frame)

    def publish(self, batch: int, staged: Sequence[tuple[StagedFile, str]], context: Mapping[str, Any]) -> None:
        """Print the batch; one that is published again after a crash is printed again."""
        frame = read_staged(staged)
        if frame is None:
            return
        from rich.console import Console
        from rich.table import Table

        shown = frame.head(self.rows)
        more = f", first {shown.height}" if shown.height < frame.height else ""
        table = Table(box=None, header_style="bold")
        for column, kind in frame.schema.items():
            # Texts may be long; numbers and times are hard to read in two lines.
            whole = kind.is_numeric() or kind.is_temporal()
            table.add_column(column, justify="right" if kind.is_numeric() else "left", overflow="fold", no_wrap=whole)
        for row in shown.rows():
            table.add_row(*(_show(value) for value in row))
        terminal = Console()
        terminal.print(f"batch {batch}: {frame.height} rows{more}", style="italic", highlight=False)
        terminal.print(table)

    def retract(self, after_batch: int) -> None:
        """Do nothing: what was printed stays printed."""


def console(rows: int = 20) -> ConsoleSink:
    """Print the first rows of every batch that has results, as a table.

    Examples:
        >>> _ = readings.key_by("sensor").agg(lowest=ab.min("volts")).write(ab.console(rows=5))
        >>> flow.sinks[0].label
        'console (5 rows a batch)'
    """
    return ConsoleSink(rows)


def _show(value: Any) -> str:
    if value is None:
        return "–"
    text = f"{value:,.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _WIDEST_VALUE else text[: _WIDEST_VALUE - 1] + "…"
