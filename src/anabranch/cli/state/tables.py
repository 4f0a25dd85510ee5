"""Keys and rows of state as text: read from the command line, shown in the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import polars as pl
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from anabranch.cli.formats import format_bytes, format_count, format_moment
from anabranch.cli.tables import fits
from anabranch.engine.tasks.spec import DEAD_LETTER
from anabranch.errors import CheckpointError
from anabranch.model.columns import HASH, SEEN, WINDOW
from anabranch.model.splits import StagedFile
from anabranch.state.inspect import RUN, SLOT
from anabranch.state.rollback import Rollback

MOST_ROWS_SHOWN = 200
_MOMENTS = {WINDOW: "window", SEEN: "seen"}
_PLACES = {SLOT: "slot", RUN: "run"}


def read_key(text: str, columns: Collection[str], operator: str) -> dict[str, str]:
    """Return the text of each key column: ``4711`` for a single one, ``a=1,b=x`` for several.

    A value of the last form cannot hold a comma; one for a single column may hold anything.
    """
    names = list(columns)
    if len(names) == 1:
        return {names[0]: text.removeprefix(f"{names[0]}=")}
    pairs = [pair.partition("=") for pair in text.split(",")]
    given = {name.strip(): value for name, sign, value in pairs if sign}
    if set(given) != set(names) or len(pairs) != len(names):
        example = ",".join(f"{name}=…" for name in names)
        msg = f"{operator} has the key columns {', '.join(names)}, got {text!r}; write the key as {example}"
        raise CheckpointError(msg)
    return given


class SlotTable:
    """What every slot of every operator holds; where that is too wide, operators stand above their slots."""

    _FIGURES = ("slot", "buckets", "runs", "rows", "bytes", "batches")

    def __init__(self, slots: pl.DataFrame) -> None:
        self._slots = slots
        self._runs, self._rows, self._bytes = (int(slots[name].sum()) for name in ("runs", "rows", "bytes"))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table("operator")
        for row in self._slots.iter_rows(named=True):
            table.add_row(Text(row["operator"]), *self._cells(row))
        table.add_section()
        runs, rows, size = format_count(self._runs), format_count(self._rows), format_bytes(self._bytes)
        table.add_row("all", "", "", runs, rows, size, "")
        if fits(table, console, options):
            yield table
            return
        for (operator,), slots in self._slots.group_by("operator", maintain_order=True):
            below = self._table()
            for row in slots.iter_rows(named=True):
                below.add_row(*self._cells(row))
            yield Text(str(operator), style="bold", overflow="ignore")
            yield below
        yield Text(f"all: {runs} runs, {rows} rows, {size}")

    def _table(self, *names: str) -> Table:
        table = Table(*names, box=None, header_style="cyan")
        for name in self._FIGURES:
            table.add_column(name, justify="right", no_wrap=True)
        return table

    def _cells(self, row: dict[str, Any]) -> Iterator[str]:
        yield from (format_count(row[name]) for name in ("slot", "buckets", "runs", "rows"))
        yield format_bytes(row["bytes"])
        yield f"{row['oldest_batch']}–{row['newest_batch']}" if row["runs"] else ""


class StoredRows:
    """Rows of state as a table, or one below the other where a table would be too wide.

    Times can be read; sketches are only named by their size.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        order = [name for name in (*_PLACES, WINDOW, *rows.columns) if name in rows.columns and name != HASH]
        self._columns = list(dict.fromkeys(order))
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        if fits(table, console, options):
            yield table
        else:
            yield from self._blocks()
        hidden = len(self._rows) - MOST_ROWS_SHOWN
        if hidden > 0:
            yield Text(f"and {format_count(hidden)} more rows", style="dim")

    def _table(self) -> Table:
        table = Table(box=None, header_style="cyan")
        for name in self._columns:
            numeric = self._rows.schema[name].is_numeric() and name not in _MOMENTS
            table.add_column(_show_name(name), justify="right" if numeric else "left", no_wrap=True)
        for row in self._shown():
            table.add_row(*(_show_value(name, row[name]) for name in self._columns))
        return table

    def _blocks(self) -> Iterator[RenderableType]:
        for row in self._shown():
            block = Table.grid(padding=(0, 2))
            block.add_column(style="cyan", no_wrap=True)
            for name in self._columns:
                block.add_row(_show_name(name), _show_value(name, row[name]))
            yield block
            yield Text()

    def _shown(self) -> Iterator[dict[str, Any]]:
        return self._rows.head(MOST_ROWS_SHOWN).iter_rows(named=True)


def describe_undone(done: Rollback) -> Iterator[str]:
    """Yield, a line a sink, what a rollback took back from the state and the sink still holds."""
    by_sink: dict[int, dict[int, Sequence[StagedFile]]] = {}
    for batch, sinks in done.undone_results.items():
        for sink, files in sinks.items():
            if any(file.rows for file in files):
                by_sink.setdefault(sink, {})[batch] = files
    for sink, batches in sorted(by_sink.items()):
        name = "the dead-letter sink" if sink == DEAD_LETTER else f"sink {sink}"
        rows = sum(file.rows for files in batches.values() for file in files)
        span = f"batch {min(batches)}" if len(batches) == 1 else f"batches {min(batches)} to {max(batches)}"
        yield f"{name} holds {format_count(rows)} rows of {span}: they must leave it before the flow runs again"
    unknown = [batch for batch in done.undone_batches if batch not in done.undone_results]
    if unknown:
        yield f"the manifests of batches {unknown} are broken: what they published is not known"


def _show_name(name: str) -> str:
    # The engine marks its own columns by two underscores, partial results of an aggregate among them.
    return _MOMENTS.get(name) or _PLACES.get(name) or name.removeprefix("__")


def _show_value(name: str, value: object) -> str:
    if value is None:
        return ""
    if name in _MOMENTS and isinstance(value, int):
        return format_moment(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if len(value) > 32 else repr(value)
    return str(value)
