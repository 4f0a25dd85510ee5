"""``anabranch run``: a flow in the foreground, with its progress."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.choices import PARALLELISM_HELP, Parallelism, take_parallelism
from anabranch.cli.loading import FLOW_HELP, load, name_checkpoint
from anabranch.cli.reporting import INTERRUPTED, DebugOption, explained_errors, open_console, print_note
from anabranch.cli.sessions import SessionOptions, open_session, read_config
from anabranch.engine.interrupts import Interrupts
from anabranch.errors import FlowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from anabranch.cli.run.display import Display
    from anabranch.spark.flow import Flow
    from anabranch.spark.handles import Handle

POLL_SECONDS = 0.2
_SETTINGS = "Settings of the run"
_SPARK = "Spark"
_OUTPUT = "Output"


def run(  # noqa: PLR0913 - a command line option each, as many as RunSettings has
    flow: Annotated[str, typer.Argument(metavar="FLOW", help=FLOW_HELP, show_default=False)],
    *,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            "-c",
            help="Where state, offsets and commits lie; by default state/ and the flow's name.",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(help="continuous, an interval such as 5s, available-now, or once.", rich_help_panel=_SETTINGS),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Publish batches within this, such as 2s, by their size.", rich_help_panel=_SETTINGS
        ),
    ] = None,
    drain: Annotated[
        bool | None,
        typer.Option("--drain/--no-drain", help="Fire open windows at the end.", rich_help_panel=_SETTINGS),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Slots of a stateful subquery.", rich_help_panel=_SETTINGS)
    ] = None,
    parallelism: Annotated[
        Parallelism | None,
        typer.Option(metavar="NAME", help=PARALLELISM_HELP, rich_help_panel=_SETTINGS),
    ] = None,
    strategy: Annotated[Parallelism | None, typer.Option(hidden=True)] = None,
    local_merge: Annotated[
        bool | None,
        typer.Option("--local-merge/--no-local-merge", help="Merge before the exchange.", rich_help_panel=_SETTINGS),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Buckets of keys, for the checkpoint's life.", rich_help_panel=_SETTINGS),
    ] = None,
    read_tasks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tasks that read a batch.", rich_help_panel=_SETTINGS)
    ] = None,
    job_attempts: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Tries of a Spark job within its batch.", rich_help_panel=_SETTINGS),
    ] = None,
    kept_batches: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="Batches that can be gone back to.", rich_help_panel=_SETTINGS),
    ] = None,
    kept_records: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Events that the history keeps as they are.", rich_help_panel=_SETTINGS),
    ] = None,
    kept_summary_bytes: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Bytes of older events, summed up.", rich_help_panel=_SETTINGS),
    ] = None,
    takeover: Annotated[
        bool | None,
        typer.Option("--takeover", help="Fence off a driver that seems to run.", rich_help_panel=_SETTINGS),
    ] = None,
    drop_source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Let go of a source that the flow does not read any more.",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    executors: Annotated[
        str | None,
        typer.Option(
            metavar="MIN:MAX",
            help="Let the number of executors follow the load, between these two.",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Keep so many copies of state in the memory of hosts, a slot's own included.",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    energy: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Let hosts sleep that are not needed to keep results within this latency.",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    hot_copies: Annotated[
        bool | None,
        typer.Option(
            "--hot-copies/--no-hot-copies", help="Keep copies of state in hosts' memory.", rich_help_panel=_SETTINGS
        ),
    ] = None,
    anchors: Annotated[
        bool | None,
        typer.Option("--anchors/--no-anchors", help="Pin slots to executors.", rich_help_panel=_SETTINGS),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Hear commands through this Redis server, too.", rich_help_panel=_SETTINGS),
    ] = None,
    history_to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Copy the history to this PostgreSQL database.", rich_help_panel=_SETTINGS),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master; local[*] by default.", rich_help_panel=_SPARK)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory of the Spark driver, such as 4g.", rich_help_panel=_SPARK)
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A Spark setting.", rich_help_panel=_SPARK)
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="A line a batch, also in a terminal.", rich_help_panel=_OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Let Spark's own output through.", rich_help_panel=_OUTPUT)
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Run a flow until its input ends, or until Ctrl-C, which lets the running batch finish (twice: at once).

    Settings come from the flow file's [bold]run[/bold] section, or RUN in a Python file; options win over them.

    [dim]Examples:[/dim]

      anabranch run flow.yaml --checkpoint state/

      anabranch run jobs.py:alerts -c state/ --trigger available-now --drain

      anabranch run flow.xml -c state/ --slots 8 --master 'local[4]' --plain
    """
    given = {
        "checkpoint": checkpoint,
        "trigger": trigger,
        "latency": latency,
        "drain": drain,
        "slots": slots,
        "parallelism": take_parallelism(parallelism, strategy),
        "local_merge": local_merge,
        "buckets": buckets,
        "read_tasks": read_tasks,
        "job_attempts": job_attempts,
        "kept_batches": kept_batches,
        "kept_records": kept_records,
        "kept_summary_bytes": kept_summary_bytes,
        "takeover": takeover,
        "drop_sources": drop_source or None,
        "hot_copies": hot_copies,
        "anchors": anchors,
        "control": control,
        "history_to": history_to,
        "debug": debug or None,
    }
    try:
        session = SessionOptions(master, memory, read_config(conf or []), verbose, debug)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--conf") from error
    with explained_errors(debug):
        loaded = load(flow)
        settings = {**loaded.run, **{name: value for name, value in given.items() if value is not None}}
        if executors is not None:
            settings["elasticity"] = {**settings.get("elasticity", {}), **read_executors(executors)}
        if replicas is not None:
            settings["replicas"] = {**settings.get("replicas", {}), "degree": replicas}
        if energy is not None:
            settings["energy"] = {**settings.get("energy", {}), "latency_seconds": energy}
        if "checkpoint" not in settings:
            settings["checkpoint"] = name_checkpoint(loaded.graph.name)
            print_note(f"checkpoint: {settings['checkpoint']}, as nobody named one; --checkpoint names another")
        check_settings(settings)
        loaded.graph.check(**settings)
        console = open_console()
        follow_flow(loaded.graph, settings, session, console, live=console.is_terminal and not plain and not verbose)


def read_executors(given: str) -> dict[str, int]:
    """Return the settings of elasticity that ``--executors`` stands for."""
    least, colon, most = given.partition(":")
    if not (colon and least.isdecimal() and most.isdecimal()):
        msg = f"{given!r} does not say between how many executors; give the fewest and the most, such as 1:4"
        raise typer.BadParameter(msg, param_hint="--executors")
    return {"min_executors": int(least), "max_executors": int(most)}


def check_settings(given: dict[str, Any]) -> None:
    """Refuse settings that cannot be used: then the command was used wrongly."""
    from anabranch.engine.settings import make_settings

    try:
        make_settings(**given)
    except FlowError as error:
        raise typer.BadParameter(str(error)) from error


def follow_flow(flow: Flow, settings: dict[str, Any], session: SessionOptions, console: Console, *, live: bool) -> None:
    """Run a flow to its end and show how it goes; raise what made it fail."""
    from anabranch.cli.run.display import Display

    display, interrupts = Display(flow.name, console, live=live), Interrupts()
    try:
        with ExitStack() as opened:

            def open_spark() -> SparkSession:
                # Not before nothing speaks against running the flow: Spark takes some seconds to start.
                opened.enter_context(display)
                spark = opened.enter_context(open_session(session))
                display.begin()
                # Spark's own handler of Ctrl-C, which cancels jobs, is in place by now and is replaced.
                opened.enter_context(interrupts)
                return spark

            handle = flow.start_on(open_spark, on_progress=display.take, **settings)
            watch(handle, interrupts, settings, display)
    except KeyboardInterrupt:
        print_note("ended at once: the running batch was not committed; the next run does it again")
        sys.stdout.flush()
        # A clean exit would wait for the batch; the JVM and its workers end when this process does.
        os._exit(INTERRUPTED)
    display.print_summary()


def watch(handle: Handle, interrupts: Interrupts, settings: dict[str, Any], display: Display) -> None:
    """Wait until the flow ends, or end it after the running batch on Ctrl-C; raise what made it fail."""
    while not handle.wait(POLL_SECONDS):
        display.show_waits(handle.waits)
        if interrupts.requested:
            display.announce_end()
            # Bounded input goes on later from here, so its open windows must stay open.
            bounded = settings.get("trigger") in ("available-now", "once")
            handle.stop(drain=bool(settings.get("drain")) and not bounded)
            break
    error = handle.exception()
    if error is not None:
        raise error
