"""``anabranch lab``: a cluster of small hosts on this machine, to try out what happens to flows on clusters."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.groups import QuickGroup, add_command
from anabranch.cli.reporting import DebugOption, explained_errors, open_console, print_note

if TYPE_CHECKING:
    from anabranch.lab.status import LabStatus

app = typer.Typer(
    cls=QuickGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="A cluster of small hosts on this machine: make it, limit it, break it. Needs root and iproute2.",
)

HostArgument = Annotated[
    str, typer.Argument(metavar="HOST", help="h1, h2 …, or driver; addresses will do.", show_default=False)
]


@add_command(app, "up")
def make_lab(
    hosts: Annotated[int, typer.Option(metavar="N", min=1, help="Hosts with a worker.")] = 2,
    cpu: Annotated[
        float | None,
        typer.Option(metavar="CORES", help="How much of the cores each host may use.", show_default="no quota"),
    ] = None,
    driver_cpu: Annotated[
        float | None,
        typer.Option(metavar="CORES", help="The same for the driver's host.", show_default="as --cpu"),
    ] = None,
    mbit: Annotated[
        float | None,
        typer.Option(metavar="MBIT", help="What each wire lets through, each way.", show_default="no limit"),
    ] = None,
    memory_mb: Annotated[
        int, typer.Option("--memory", metavar="MB", min=512, help="What each worker has for executors.")
    ] = 1024,
    debug: DebugOption = False,
) -> None:
    """Make a lab: a Spark standalone cluster with every worker on a host of its own. It stays until it is taken down.

    A host is a network namespace with an address, a wire and, with [bold]--cpu[/bold], a part of the cores.
    One more host, [bold]driver[/bold], has no worker. All quotas together are no more than the machine's cores.

    [dim]Examples:[/dim]

      anabranch lab up

      anabranch lab up --hosts 4 --cpu 0.4 --mbit 1000
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab
        from anabranch.lab.plan import LabPlan

        plan = LabPlan(hosts=hosts, cpu=cpu, driver_cpu=driver_cpu, mbit=mbit, memory_mb=memory_mb)
        print_note(f"starting a master and {hosts} workers …")
        _print_status(Lab().up(plan))


@add_command(app, "status")
def show_status(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False, debug: DebugOption = False
) -> None:
    """Show hosts, workers, wires with what crossed them, and what an application must say to run there.

    [dim]Examples:[/dim]

      anabranch lab status

      anabranch lab status --json
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        status = Lab().status()
        if as_json:
            import json
            from dataclasses import asdict

            typer.echo(json.dumps(asdict(status), indent=2))
        else:
            _print_status(status)


@add_command(app, "cut")
def cut_host(host: HostArgument, debug: DebugOption = False) -> None:
    """Take a host's wire out: nothing arrives there or from there, and nobody is told.

    [dim]Example:[/dim]

      anabranch lab cut h2
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        Lab().cut(host)
        print_note(f"{host} is cut off; to put its wire back in: anabranch lab heal {host}")


@add_command(app, "heal")
def heal_host(host: HostArgument, debug: DebugOption = False) -> None:
    """Put a host's wire back in.

    [dim]Example:[/dim]

      anabranch lab heal h2
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        Lab().heal(host)
        print_note(f"the wire of {host} is in")


@add_command(app, "limit")
def limit_host(
    host: HostArgument,
    mbit: Annotated[float | None, typer.Option(metavar="MBIT", help="What its wire lets through, each way.")] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="MS", help="How long a packet takes, each way; needs netem in the kernel.")
    ] = None,
    lift: Annotated[bool, typer.Option("--lift", help="No limit any more.")] = False,
    debug: DebugOption = False,
) -> None:
    """Limit a host's wire while it is in use; what was said before no longer holds.

    [dim]Examples:[/dim]

      anabranch lab limit h2 --mbit 50

      anabranch lab limit h2 --mbit 100 --delay 20

      anabranch lab limit h2 --lift
    """
    if lift == (mbit is not None or delay is not None):
        raise typer.BadParameter("say --mbit, --delay or both; or --lift alone")
    with explained_errors(debug):
        from anabranch.lab.lab import Lab
        from anabranch.lab.wires import WireLimit

        limit = None if lift else WireLimit(mbit, delay)
        Lab().limit(host, limit)
        print_note(f"the wire of {host}: {limit.describe() if limit else 'no limit'}")


@add_command(app, "kill")
def kill_host(host: HostArgument, debug: DebugOption = False) -> None:
    """End all that runs on a host, at once: worker, executors, Python workers. Its wire stays in, so others are told.

    For a power cut, [bold]cut[/bold] the host first. [bold]add[/bold] starts its worker again.

    [dim]Example:[/dim]

      anabranch lab kill h2
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        Lab().kill(host)
        print_note(f"nothing runs on {host} any more")


@add_command(app, "add")
def add_host(
    host: Annotated[
        str | None,
        typer.Argument(metavar="[HOST]", help="h5, say; the next number if none is said.", show_default=False),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Add a host like the others, or start the worker of one on which everything has ended.

    [dim]Examples:[/dim]

      anabranch lab add

      anabranch lab add h2
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        print_note(f"{Lab().add(host)} has come to the master")


@add_command(app, "down")
def take_lab_away(debug: DebugOption = False) -> None:
    """End what runs in the lab and take all of it away, also what a killed command left. Does no harm if there is none.

    [dim]Example:[/dim]

      anabranch lab down
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        print_note("the lab is gone" if Lab().down() else "there is no lab")


@app.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_on_host(
    host: HostArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND …", help="A program with its arguments.")],
    debug: DebugOption = False,
) -> None:
    """Run a program on a host, under its quota, where Spark finds the lab by itself.

    [dim]Examples:[/dim]

      anabranch lab exec driver anabranch run flow.yaml

      anabranch lab exec h1 ip addr
    """
    with explained_errors(debug):
        from anabranch.lab.lab import Lab

        words, variables = Lab().place(host, command)
    os.execvpe(words[0], words, {**os.environ, **variables})


def _print_status(status: LabStatus) -> None:
    from anabranch.cli.lab.tables import draw_status

    console = open_console()
    for part in draw_status(status):
        console.print(part)
