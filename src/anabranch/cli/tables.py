"""Tables that do not break words: where a terminal is too narrow for one, its rows are shown in another way."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table

_ENDLESS = 10_000


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Say whether a table has room enough without breaking anything in it."""
    return Measurement.get(console, options.update(max_width=_ENDLESS), table).maximum <= options.max_width
