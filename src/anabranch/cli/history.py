"""``anabranch history``: what happened to a flow, whether it runs or not."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.formats import format_moment
from anabranch.cli.reporting import FAILED, DebugOption, explained_errors, open_console, print_note, say
from anabranch.cli.state.command import CheckpointArgument

if TYPE_CHECKING:
    from rich.console import Console

    from anabranch.model.events import HistoryRecord

LOOK_SECONDS = 0.5
"""How often a history is looked at that is followed."""


def history(
    checkpoint: CheckpointArgument,
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="So many events, the newest, unless --since is said.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="A moment, a time before now such as 10m, or a batch.", show_default=False),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Only events of this kind, as above; several times for several."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with all that is known.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events come, until Ctrl-C.")] = False,
    debug: DebugOption = False,
) -> None:
    """Print what happened to a flow, of all its runs, oldest first: batches, decisions and their effects, failures.

    The flow may run or not. Kinds are [bold]start[/bold], [bold]stop[/bold], [bold]batch[/bold],
    [bold]decision[/bold], [bold]effect[/bold], [bold]failure[/bold], [bold]recovery[/bold] and, for batches that are
    long over and summed up, [bold]span[/bold].

    [dim]Examples:[/dim]

      anabranch history state/low-voltage --since 1h --kind decision --kind effect

      anabranch history state/low-voltage --last 1000 --json

      anabranch history state/low-voltage --follow
    """
    from anabranch.engine.history import check_kind, find_events, open_checkpoint

    with explained_errors(debug):
        for one in kind or ():
            check_kind(one)
        store, console, position = open_checkpoint(checkpoint), open_console(), -1
        found: deque[HistoryRecord] = deque(maxlen=last if since is None else None)
        for record in find_events(store, since):
            position = max(position, record.number)
            if kind is None or record.event.kind in kind:
                found.append(record)
        if not found and not follow:
            print_note(f"{checkpoint} has no such events in its history")
            raise typer.Exit(FAILED)
        _print(console, found, as_json=as_json, header=True)
        while follow:
            time.sleep(LOOK_SECONDS)
            news = list(find_events(store, since, after=position))
            position = max([position, *(record.number for record in news)])
            _print(console, (one for one in news if kind is None or one.event.kind in kind), as_json=as_json)


def _print(console: Console, records: Iterable[HistoryRecord], *, as_json: bool, header: bool = False) -> None:
    from rich.text import Text

    from anabranch.metrics.event_lines import describe_event

    if header and not as_json:
        say(console, Text(f"{'when':<24}  {'batch':>7}  {'kind':<8}  what", style="cyan"))
    for record in records:
        if as_json:
            console.file.write(json.dumps(record.to_json(), ensure_ascii=False) + "\n")
            continue
        when = format_moment(round(record.at * 1e3) * 1_000)
        batch = "" if record.event.batch is None else str(record.event.batch)
        style = {"failure": "red", "recovery": "yellow", "decision": "bold"}.get(record.event.kind, "")
        kind = Text(f"{record.event.kind:<8}", style=style)
        say(console, Text.assemble(f"{when:<24}  {batch:>7}  ", kind, f"  {describe_event(record.event)}"))
    console.file.flush()
