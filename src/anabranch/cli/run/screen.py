"""Progress as a panel that moves: rates, batches, watermark, slots as bars, problems."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.cli.formats import (
    draw_bar,
    draw_spark,
    format_bytes,
    format_count,
    format_elapsed,
    format_moment,
    format_seconds,
)
from anabranch.cli.run.lines import describe_exchange, describe_late
from anabranch.metrics.history import RunHistory, skew
from anabranch.model import BatchProgress
from anabranch.model.progress import Admitted
from anabranch.model.waits import Wait

MOST_BARS = 8
"""In a column of bars."""
FEWEST_BAR_CELLS = 10
SLOT_WORDS = 30
"""Cells beside a bar: the slot's number, its rows and its time."""
MOST_PROBLEMS = 3
LONGEST_SPARK = 300
"""Seconds of throughput that a terminal wide enough shows, a cell each."""
RATE_WORDS = 40
"""Cells beside the throughput of the last seconds."""
UNEVEN = 1.5
"""From this ratio of the fullest slot to the mean on, the panel shows skew in yellow."""


class ProgressPanel:
    """Draws the history of a run whenever it is rendered; both clocks are passed in."""

    def __init__(
        self, title: str, history: RunHistory, monotonic: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.title = title
        self.status = "starting"
        self.hint = "Ctrl-C ends after the running batch"
        self.waits: tuple[Wait, ...] = ()
        """The servers that the flow waits for now."""
        self._history = history
        self._monotonic = monotonic
        self._wall_clock = wall_clock

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        now = self._monotonic()
        elapsed = format_elapsed(now - self._history.started_seconds)
        yield Panel(
            self._body(width - 4, now),
            title=Text.assemble((self.title, "bold"), f" · {self.status} · {elapsed}"),
            title_align="left",
            subtitle=Text(self.hint, style="dim") if self.hint else None,
            subtitle_align="right",
            border_style="cyan",
            width=width,
        )

    def _body(self, width: int, now: float) -> RenderableType:
        history, latest = self._history, self._history.latest
        waits = [self._waiting(wait) for wait in self.waits]
        if latest is None:
            begin = Text("waiting for the first batch; Spark takes some seconds to warm up …", style="dim")
            return Group(begin, *waits)
        grid = Table.grid(padding=(0, 2), expand=False)
        grid.add_column(style="cyan", no_wrap=True, min_width=len("watermark"))
        # Cut, not wrapped: a panel that changes its height flickers.
        grid.add_column(no_wrap=True, overflow="ellipsis")
        room = width - len("watermark") - 2
        grid.add_row("rows/s", self._rates(now, room))
        grid.add_row("batch", self._batch(latest, room))
        if latest.admitted is not None:
            grid.add_row("latency", _draw_latency(latest, latest.admitted))
        grid.add_row("watermark", self._watermark(latest))
        if latest.held_back:
            grid.add_row("held back", self._held_back(latest))
        grid.add_row("rows", self._rows())
        grid.add_row("state", self._state(latest))
        shown = history.latest_with_rows or latest
        if shown.slot_rows:
            grid.add_row("slots", draw_slots(shown, room))
        if shown.exchanges:
            grid.add_row("exchange", _draw_exchanges(shown))
        if history.changes:
            batch, change = history.changes[-1]
            grid.add_row("routes", Text.assemble((f"batch {batch}: ", "bold"), change))
        problems = [Text(f"! {problem}", style="yellow") for problem in history.problems[-MOST_PROBLEMS:]]
        return Group(grid, *waits, *problems)

    def _waiting(self, wait: Wait) -> Text:
        since = format_elapsed(max(0.0, self._wall_clock() - wait.since_seconds))
        return Text(f"… waiting for {wait.place}, {since}: {wait.reason}", style="bold yellow")

    def _rates(self, now: float, room: int) -> Text:
        history = self._history
        seconds = max(0, min(LONGEST_SPARK, room - RATE_WORDS))
        rates = history.throughput(now, 1.0, seconds)
        text = Text.assemble((f"{format_count(history.rows_per_second(now)):<9}", "bold"), "  ")
        text.append(draw_spark(rates, seconds), style="green")
        text.append(f"  {format_count(history.totals.rows_in)} since the start", style="dim")
        return text

    def _batch(self, latest: BatchProgress, room: int) -> Text:
        median = self._history.median_batch_seconds() or 0.0
        text = Text.assemble(
            (f"{latest.batch:<9,}", "bold"),
            f"  {format_seconds(latest.batch_seconds)}, median {format_seconds(median)}",
        )
        phases = [f"{name} {format_seconds(seconds)}" for name, seconds in latest.phase_seconds.items()]
        detail = f"  ({', '.join(phases)})"
        if phases and len(text) + len(detail) <= room:
            text.append(detail, style="dim")
        if latest.replayed:
            text.append("  replayed", style="yellow")
        return text

    def _watermark(self, latest: BatchProgress) -> Text:
        if latest.watermark_us is None:
            return Text("none", style="dim")
        behind = self._wall_clock() - latest.watermark_us / 1e6
        lag = f"{format_seconds(behind)} behind the clock" if behind >= 0 else f"{format_seconds(-behind)} ahead"
        return Text.assemble(format_moment(latest.watermark_us), (f"  {lag}", "dim"))

    def _held_back(self, latest: BatchProgress) -> Text:
        ahead = [f"{source}, {format_seconds(seconds)} ahead" for source, seconds in latest.held_back.items()]
        return Text("; ".join(ahead), style="yellow")

    def _rows(self) -> Text:
        history = self._history
        text = Text.assemble((format_count(history.totals.rows_out), "bold"), " results")
        text.append(f"   {describe_late(history)}", style="yellow" if history.totals.late_rows else "dim")
        text.append(
            f"   {format_count(history.totals.dead_rows)} dead", style="yellow" if history.totals.dead_rows else "dim"
        )
        return text

    def _state(self, latest: BatchProgress) -> Text:
        return Text.assemble(
            f"{format_count(latest.state_rows)} rows, {format_bytes(latest.state_bytes)}",
            (f"   exchanged {format_bytes(latest.exchanged_bytes)} in the last batch", "dim"),
        )


def _draw_latency(progress: BatchProgress, admitted: Admitted) -> Text:
    is_held = progress.batch_seconds <= admitted.target_seconds
    text = Text(f"target {format_seconds(admitted.target_seconds)}", style="" if is_held else "yellow")
    expected = admitted.expected_seconds
    text.append(f"   up to {format_count(admitted.rows)} rows admitted")
    text.append(f", {format_seconds(expected)} expected" if expected is not None else "")
    waiting = progress.waiting_rows
    text.append(f"   {format_count(waiting)} rows wait" if waiting else "", style="dim")
    return text


def _draw_exchanges(progress: BatchProgress) -> Text:
    named = len(progress.exchanges) > 1
    words = [
        (f"{shown.operator}: " if named else "")
        + describe_exchange(shown.way, shown.rows, shown.sent_rows, shown.sent_bytes)
        for shown in progress.exchanges
    ]
    return Text("\n".join(words))


def draw_slots(progress: BatchProgress, width: int) -> RenderableType:
    """Return the rows of each slot as bars, side by side if they have to; too many become one small column each."""
    rows = progress.slot_rows
    unevenness = skew(rows)
    style = "yellow" if unevenness is not None and unevenness >= UNEVEN else "blue"
    ratio = f"max/mean {unevenness:.2f}" if unevenness is not None else "no rows"
    beside = -(-len(rows) // MOST_BARS)
    cells = (width - 2 * (beside - 1)) // beside
    if beside > 1 and cells < SLOT_WORDS + FEWEST_BAR_CELLS:
        columns = draw_spark(rows, len(rows))
        lines = [Text(columns[at : at + width], style=style) for at in range(0, len(columns), width)]
        fullest = max(range(len(rows)), key=rows.__getitem__)
        words = f"{len(rows)} slots, {ratio}, the fullest is {fullest} with {format_count(rows[fullest])} rows"
        return Group(*lines, Text(words, style="dim"))
    bar_cells = max(FEWEST_BAR_CELLS, cells - SLOT_WORDS)
    high = -(-len(rows) // beside)
    bars = [
        _draw_bars(progress, range(at, min(at + high, len(rows))), bar_cells, style) for at in range(0, len(rows), high)
    ]
    grid = Table.grid(padding=(0, 2))
    grid.add_row(*bars)
    return Group(grid, Text(f"rows after local merge, {ratio}", style="dim"))


def _draw_bars(progress: BatchProgress, slots: range, cells: int, style: str) -> Table:
    rows = progress.slot_rows
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", style="dim")
    grid.add_column(style=style, no_wrap=True)
    grid.add_column(justify="right")
    grid.add_column(justify="right", style="dim")
    times = progress.slot_seconds if len(progress.slot_seconds) == len(rows) else ()
    for slot in slots:
        bar = draw_bar(rows[slot], max(rows), cells).ljust(cells)
        grid.add_row(str(slot), bar, format_count(rows[slot]), format_seconds(times[slot]) if times else "")
    return grid
