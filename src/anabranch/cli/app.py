"""The command's commands."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.bench import bench
from anabranch.cli.ctl.command import ctl
from anabranch.cli.demo.command import demo
from anabranch.cli.doctor.command import doctor
from anabranch.cli.explain import explain
from anabranch.cli.groups import QuickGroup, add_command
from anabranch.cli.history import history
from anabranch.cli.lab import command as lab
from anabranch.cli.run.command import run
from anabranch.cli.state import command as state

app = typer.Typer(
    name="anabranch",
    cls=QuickGroup,
    help="Keyed, stateful streaming on Apache Spark: run flows, look at them, look into their state.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_command(app)(run)
add_command(app)(explain)
app.add_typer(state.app, name="state")
add_command(app)(history)
add_command(app)(ctl)
add_command(app)(demo)
add_command(app)(bench)
app.add_typer(lab.app, name="lab")
add_command(app)(doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"anabranch {version('anabranch')}")
        raise typer.Exit


@app.callback()
def choose(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Keyed, stateful streaming on Apache Spark: run flows, look at them, look into their state."""


def main() -> None:
    """Run the command line; the process ends with 0, with 1 if something failed, with 2 if it was used wrongly."""
    app()
