"""``anabranch state``: look into a checkpoint, check it, go back to a batch, leave a file out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.formats import format_moment
from anabranch.cli.groups import QuickGroup, add_command
from anabranch.cli.loading import FLOW_HELP, load
from anabranch.cli.reporting import FAILED, DebugOption, confirm, explained_errors, open_console, print_note, say
from anabranch.errors import CheckpointError, SinkError

if TYPE_CHECKING:
    from rich.console import Console

    from anabranch.model import Sink
    from anabranch.state.checkpoint import Checkpoint
    from anabranch.state.manifest import Manifest

app = typer.Typer(
    cls=QuickGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Look into a checkpoint, check it, go back, leave a file out.",
)

CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="The flow's checkpoint: a folder or URL.", show_default=False)
]
BatchOption = Annotated[int | None, typer.Option("--batch", help="The state after this batch, not after the last.")]


@add_command(app, "ls")
def list_state(checkpoint: CheckpointArgument, batch: BatchOption = None, debug: DebugOption = False) -> None:
    """List operators and slots with their runs, rows and bytes, and the batches that can be gone back to.

    [dim]Example:[/dim]

      anabranch state ls state/low-voltage
    """
    from rich.text import Text

    from anabranch.cli.state.tables import SlotTable
    from anabranch.connectors.filesystem.bad_files import SetAsideFiles
    from anabranch.state.inspect import list_slots

    with explained_errors(debug):
        opened = open_checkpoint(checkpoint)
        manifest = load_batch(opened, batch)
        console = open_console()
        console.print(f"[bold]{manifest.flow}[/bold], batch {manifest.batch}, epoch {manifest.epoch}")
        if manifest.created_at:
            console.print(f"committed at {format_moment(int(manifest.created_at * 1e6))}")
        slots = list_slots(manifest)
        if slots.is_empty():
            console.print("no stateful operators")
        else:
            console.print(SlotTable(slots))
        kept = opened.batches()
        console.print(f"can go back to: batches {_name_batches(kept)}")
        for path, reason in sorted(SetAsideFiles(opened.store.url).load().items()):
            say(console, Text(f"set aside: {path} ({reason})"))


@add_command(app, "show")
def show_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key's value; several columns as a=1,b=x.")],
    checkpoint: CheckpointArgument,
    operator: Annotated[str | None, typer.Option(help="Only this operator.")] = None,
    batch: BatchOption = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="As it is stored: partial results, by slot and run, until runs are merged.")
    ] = False,
    flow: Annotated[
        str | None, typer.Option(metavar="FLOW", help=f"{FLOW_HELP} Its code finishes aggregates of your own.")
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Print the state of one key: the values so far of its open windows, or of all its rows.

    Sliding windows are shown by the panes that they are made of. Aggregates of your own are shown as they are stored
    unless [bold]--flow[/bold] says where their code is.

    [dim]Examples:[/dim]

      anabranch state show 4711 state/low-voltage

      anabranch state show country=de,device=7 state/visits --operator agg --raw
    """
    from anabranch.cli.state.tables import StoredRows, read_key
    from anabranch.cli.state.values import read_stored, read_values, read_values_by_flow
    from anabranch.state.inspect import find_level

    with explained_errors(debug):
        graph = load(flow).graph if flow is not None and not raw else None
        opened = open_checkpoint(checkpoint)
        manifest = load_batch(opened, batch)
        levels = [find_level(manifest, operator)] if operator is not None else list(manifest.levels)
        if not levels:
            msg = f"{checkpoint} keeps no state: the flow has no stateful operator"
            raise CheckpointError(msg)
        console = open_console()
        found, misfits = 0, []
        for level in levels:
            columns = manifest.flow_structure["operators"][level.operator]["keys"]
            try:
                texts = read_key(key, columns, level.operator)
                values = None
                if graph is not None:
                    values = read_values_by_flow(graph, opened.store, manifest.batch, level.operator, texts)
                elif not raw:
                    values = read_values(opened.store, manifest, level, texts)
                rows = values if values is not None else read_stored(opened.store, level, texts)
            except CheckpointError as error:
                # Operators may have other key columns: only a key that fits none of them is an error.
                misfits.append(error)
                continue
            found += len(rows)
            if not rows.is_empty():
                as_stored = "" if raw or values is not None else ", as stored: --flow FLOW would finish the values"
                console.print(f"[bold]{level.operator}[/bold] after batch {manifest.batch}{as_stored}")
                console.print(StoredRows(rows))
        if len(misfits) == len(levels):
            raise misfits[0]
        if not found:
            print_note(f"no state of key {key} after batch {manifest.batch}")
            raise typer.Exit(FAILED)


@add_command(app, "verify")
def verify_state(checkpoint: CheckpointArgument, debug: DebugOption = False) -> None:
    """Read every file of every kept batch and compare its checksum; ends with 1 if anything is wrong.

    [dim]Example:[/dim]

      anabranch state verify state/low-voltage
    """
    from rich.text import Text

    from anabranch.state.repair import newest_intact_batch, verify

    with explained_errors(debug):
        opened = open_checkpoint(checkpoint)
        console = open_console()
        problems = verify(opened)
        for problem in problems:
            if not problem.batches:
                say(console, Text.assemble(("✗", "red"), f" {problem.kind}: {problem.detail}"))
                say(console, "  needed by no batch: only what was told of some is lost")
                continue
            batches = f"batches {_name_batches(problem.batches)}" if len(problem.batches) > 1 else problem.batches[0]
            where = f", operator {problem.operator}, slot {problem.slot}" if problem.operator is not None else ""
            outlook = "; it can be rebuilt" if problem.rebuildable else ""
            say(console, Text.assemble(("✗", "red"), f" {problem.kind}: {problem.detail}"))
            say(console, f"  needed by {batches}{where}{outlook}")
        if not problems:
            console.print(
                f"[green]✓[/green] batches {_name_batches(opened.batches())}: every file is as it was written"
            )
            return
        intact = newest_intact_batch(opened)
        if intact is None:
            console.print("no kept batch is intact; restore the checkpoint from a backup, or start with a new one")
        elif intact < opened.batches()[-1]:
            command = f"anabranch state rollback --to {intact} {checkpoint}"
            say(console, Text(f"batch {intact} is intact; to return to it: {command}"))
        raise typer.Exit(FAILED)


@add_command(app, "rollback")
def roll_back_state(
    checkpoint: CheckpointArgument,
    to: Annotated[int, typer.Option("--to", metavar="BATCH", help="The batch to return to.")],
    flow: Annotated[
        str | None, typer.Option(metavar="FLOW", help=f"{FLOW_HELP} Its sinks take later results back.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    takeover: Annotated[bool, typer.Option("--takeover", help="Fence off a driver that seems to run.")] = False,
    debug: DebugOption = False,
) -> None:
    """Make an earlier batch the latest one, so that the sources are read again from there.

    Results of later batches must leave the sinks, or they would be there twice. With [bold]--flow[/bold], file
    sinks remove theirs; else the command says which they are.

    [dim]Example:[/dim]

      anabranch state rollback --to 41 state/low-voltage --flow flow.yaml
    """
    from rich.text import Text

    from anabranch.cli.state.tables import describe_undone
    from anabranch.state.epochs import Owner
    from anabranch.state.rollback import roll_back

    with explained_errors(debug):
        opened = open_checkpoint(checkpoint)
        sinks = _sinks_of(flow, opened) if flow is not None else None
        stubborn = 0
        undone = [known for known in opened.batches() if known > to]
        if to in opened.batches() and not yes:
            question = f"Undo {_count_batches(undone)} of {opened.store.url} and return to batch {to}?"
            confirm(question)
        done = roll_back(opened, to, Owner.this_process(), time.time, takeover)
        console = open_console()
        console.print(f"batch {to} is the latest one now; undone: {_count_batches(done.undone_batches)}")
        if sinks is not None:
            stubborn = _retract(sinks, to, console)
        if sinks is None or stubborn:
            for line in describe_undone(done):
                say(console, Text(line))
        if sinks is None and done.undone_results:
            say(console, "with --flow FLOW, the flow's file sinks take theirs back")


@add_command(app, "skip")
def skip_one_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file, as the flow's error names it.")],
    checkpoint: CheckpointArgument,
    debug: DebugOption = False,
) -> None:
    """Leave one file out: the next start passes over it, also where it is planned already, and keeps the state.

    The flow must be down. The file is not touched; a dead letter and the batch's problems name it. Rows of it that
    are committed stay.

    [dim]Example:[/dim]

      anabranch state skip readings/odd.parquet state/low-voltage
    """
    from rich.text import Text

    from anabranch.engine.skipping import skip_file
    from anabranch.state.epochs import Owner

    with explained_errors(debug):
        skipped = skip_file(open_checkpoint(checkpoint, committed=False), file, Owner.this_process(), time.time)
        console = open_console()
        say(console, Text.assemble(("✓", "green"), f" {skipped.path} is set aside: {skipped.standing}"))
        say(console, "start the flow again: it passes over the file and goes on")


def open_checkpoint(checkpoint: str, *, committed: bool = True) -> Checkpoint:
    """Open a checkpoint that exists; raise ``CheckpointError`` if nothing was ever committed (or planned) there."""
    from anabranch.state.checkpoint import Checkpoint
    from anabranch.state.store import open_store

    # Opening would create a local folder: a typing error must not leave one behind.
    if "://" not in checkpoint and not Path(checkpoint).is_dir():
        msg = f"there is no checkpoint {checkpoint}; give the folder that the flow was run with"
        raise CheckpointError(msg)
    opened = Checkpoint(open_store(checkpoint))
    if not opened.batches() and (committed or not opened.store.list("sources")):
        msg = f"{checkpoint} holds no committed batch; give the folder that the flow was run with"
        raise CheckpointError(msg)
    return opened


def load_batch(checkpoint: Checkpoint, batch: int | None) -> Manifest:
    """Return the manifest of a batch, by default of the latest."""
    return checkpoint.load(checkpoint.batches()[-1] if batch is None else batch)


def _sinks_of(flow: str, checkpoint: Checkpoint) -> Sequence[Sink]:
    from anabranch.connectors import json_lines

    graph = load(flow).graph
    return [*graph.sinks, graph.dead_letter_sink or json_lines(f"{checkpoint.store.url}/dead-letter")]


def _retract(sinks: Sequence[Sink], to: int, console: Console) -> int:
    """Let the sinks take later results back; return how many could not."""
    from rich.text import Text

    stubborn = 0
    for sink in sinks:
        try:
            sink.retract(to)
        except SinkError as error:
            stubborn += 1
            say(console, Text.assemble(("! ", "yellow"), f"{sink.label}: {error}"))
        else:
            say(console, Text.assemble(("✓ ", "green"), f"{sink.label}: later results are gone"))
    return stubborn


def _name_batches(batches: Sequence[int]) -> str:
    """Return rising batch numbers as ``3–7, 9``."""
    spans: list[list[int]] = []
    for batch in batches:
        if spans and batch == spans[-1][1] + 1:
            spans[-1][1] = batch
        else:
            spans.append([batch, batch])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in spans) or "none"


def _count_batches(batches: Sequence[int]) -> str:
    if not batches:
        return "nothing"
    return f"batch {batches[0]}" if len(batches) == 1 else f"{len(batches)} batches ({_name_batches(batches)})"
