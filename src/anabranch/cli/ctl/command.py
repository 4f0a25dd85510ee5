"""``anabranch ctl``: look at the balance of a running flow, and change it, without a stop."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.choices import Action
from anabranch.cli.loading import load, name_checkpoint
from anabranch.cli.reporting import BAD_USAGE, DebugOption, explained_errors, open_console, print_error, say
from anabranch.errors import ControlError

if TYPE_CHECKING:
    from anabranch.control.commands import Command, Reply

ANSWER_SECONDS = 10.0
_FLOW_SUFFIXES = (".yaml", ".yml", ".xml", ".py")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a flow can be reached: by its checkpoint, or by its name on a Redis server."""

    checkpoint: str | None = None
    redis_url: str = ""
    flow_name: str = ""


def ctl(  # noqa: PLR0913 - a command line option each
    flow: Annotated[
        str,
        typer.Argument(
            metavar="FLOW",
            help="A running flow's checkpoint (folder or URL), or its flow file; with --redis, its name.",
            show_default=False,
        ),
    ],
    action: Annotated[
        Action, typer.Argument(metavar="ACTION", help="What to do, as above.", show_default=False, show_choices=False)
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="What the action is given, as above.", show_default=False),
    ] = None,
    *,
    operator: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this stateful operator; by default, all of them.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="With home: the slot's home is the flow's to choose again.")
    ] = False,
    redis: Annotated[
        str | None, typer.Option(metavar="URL", help="Reach the flow through this Redis server, by its name.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long to wait for the flow's answer.")
    ] = ANSWER_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="With show: as JSON, for programs.")] = False,
    debug: DebugOption = False,
) -> None:
    """Look at a running flow's slots and keys, and change where keys go, between two batches.

    Ends with 2 if the flow refuses, and says why; the flow goes on as before.

    [dim]Actions:[/dim]

      show                    loads and homes of slots, hot keys, scores of strategies

      set NAME=VALUE ...      change settings of the balance, from now on

      move KEY SLOT           send a key to one slot

      split KEY SLOT,SLOT...  share a key's rows out among slots

      merge KEY               bring a key back to where its bucket is

      slots N                 use this many slots

      strategy NAME           spread keys by another strategy, or by auto;
                              with OPTION=VALUE ..., such as sticky=true

      home SLOT EXECUTOR      run a slot on this executor, or on a host's;
                              with --clear, wherever the flow puts it

    [dim]Examples:[/dim]

      anabranch ctl state/low-voltage show

      anabranch ctl state/low-voltage move sensor-17 3

      anabranch ctl state/low-voltage split sensor-17 0,3,5 --operator per-sensor

      anabranch ctl flow.yaml slots 12

      anabranch ctl state/low-voltage home 3 host-2

      anabranch ctl flow.yaml strategy weight-hash weights=50,30,20

      anabranch ctl low-voltage set tolerance=0.1 --redis redis://localhost
    """
    from anabranch.cli.ctl.words import BadWords, read_words

    try:
        arguments = read_words(action, words or [], clear)
    except BadWords as error:
        raise typer.BadParameter(str(error), param_hint=f"'{action}'") from error
    if as_json and action != "show":
        raise typer.BadParameter("only what show prints can be had as JSON", param_hint="--json")
    with explained_errors(debug):
        from anabranch.control.commands import Command

        address = find_address(flow, redis)
        reply = send(address, Command(secrets.token_hex(8), action, operator, arguments), timeout)
        if not reply.ok:
            print_error(f"refused: {reply.text}")
            raise typer.Exit(BAD_USAGE)
        print_reply(action, reply, operator, as_json=as_json)


def find_address(flow: str, redis_url: str | None) -> Address:
    """Return how to reach the flow that the command line names."""
    is_flow_file = Path(flow.partition(":")[0]).suffix.lower() in _FLOW_SUFFIXES and not Path(flow).is_dir()
    if redis_url is not None:
        name = load(flow).graph.name if is_flow_file else flow
        return Address(redis_url=redis_url, flow_name=name)
    if is_flow_file and "://" not in flow:
        loaded = load(flow)
        if "checkpoint" in loaded.run:
            return Address(checkpoint=loaded.run["checkpoint"])
        if "control" in loaded.run:
            return Address(redis_url=loaded.run["control"], flow_name=loaded.graph.name)
        by_default = name_checkpoint(loaded.graph.name)
        if Path(by_default).is_dir():
            return Address(checkpoint=by_default)
        msg = (
            f"{flow} does not say where its checkpoint is, and there is no {by_default} here; "
            "give the folder or URL that the flow was started with"
        )
        raise ControlError(msg)
    # Opening would create a local folder: a typing error must not leave one behind.
    if "://" not in flow and not Path(flow).is_dir():
        msg = (
            f"there is no checkpoint {flow}; give the folder that the flow was started with, "
            "or the flow's name with --redis URL"
        )
        raise ControlError(msg)
    return Address(checkpoint=flow)


def send(address: Address, command: Command, timeout_seconds: float) -> Reply:
    """Send a command, and return the flow's answer; raise ``ControlError`` if there is none."""
    if address.checkpoint is not None:
        from anabranch.connectors.control_channels import checkpoint_files
        from anabranch.state.store import open_store

        return checkpoint_files.send(open_store(address.checkpoint), command, timeout_seconds)
    try:
        from anabranch.connectors.control_channels import redis_messages
    except ModuleNotFoundError as error:
        msg = "commands through Redis need the package redis; install it: pip install 'anabranch[redis]'"
        raise ControlError(msg) from error
    return redis_messages.send(address.redis_url, address.flow_name, command, timeout_seconds)


def print_reply(action: Action, reply: Reply, operator: str | None, *, as_json: bool) -> None:
    """Print what a flow answered to a command that it accepted."""
    import json

    from rich.text import Text

    from anabranch.cli.ctl.tables import draw_balance

    console = open_console()
    if action != "show":
        say(console, Text.assemble(("✓ ", "green"), reply.text))
        return
    shown = dict(reply.data)
    if operator is not None:
        known = [described["operator"] for described in shown["operators"]]
        if operator not in known:
            print_error(f"refused: no operator {operator!r}; the flow has {', '.join(known) or 'none'}")
            raise typer.Exit(BAD_USAGE)
        shown["operators"] = [described for described in shown["operators"] if described["operator"] == operator]
    if as_json:
        console.file.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
        return
    for part in draw_balance(shown):
        console.print(part)
