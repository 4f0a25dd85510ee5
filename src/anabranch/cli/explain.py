"""``anabranch explain``: how a flow would run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from anabranch.cli.choices import Strategy
from anabranch.cli.loading import FLOW_HELP, load
from anabranch.cli.reporting import DebugOption, explained_errors, print_note


def explain(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help=FLOW_HELP, show_default=False)],
    format: Annotated[
        Literal["text", "mermaid", "svg"] | None,
        typer.Option(help="How to draw it; by the ending of --out, else text.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write into this file.", show_default=False)] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Slots of each subquery.", show_default=False)] = None,
    strategy: Annotated[Strategy | None, typer.Option(help="How the flow is cut.", show_default=False)] = None,
    debug: DebugOption = False,
) -> None:
    """Draw a flow: springs, processors, subqueries, exchanges, hops and fan-out. Starts no Spark.

    [dim]Examples:[/dim]

      anabranch explain flow.yaml

      anabranch explain flow.yaml --slots 30 --strategy operator

      anabranch explain jobs.py:alerts --out alerts.svg
    """
    from anabranch.query.plan import DEFAULT_SLOTS

    with explained_errors(debug):
        loaded = load(flow)
        drawing = loaded.graph.explain(
            format or _format_of(out),
            slots=slots or loaded.run.get("slots", DEFAULT_SLOTS),
            strategy=strategy or loaded.run.get("strategy", "operator-set"),
        )
        text = drawing if drawing.endswith("\n") else f"{drawing}\n"
        if out is None:
            typer.echo(text, nl=False)
            return
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"cannot write {out}: {error.strerror}", param_hint="--out") from error
        print_note(f"wrote {out}")


def _format_of(out: Path | None) -> Literal["text", "mermaid", "svg"]:
    endings: dict[str, Literal["mermaid", "svg"]] = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}
    return endings.get(out.suffix.lower(), "text") if out is not None else "text"
