"""``anabranch explain``: how a flow would run."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Literal

import typer

from anabranch.cli.choices import PARALLELISM_HELP, Parallelism, take_parallelism
from anabranch.cli.loading import FLOW_HELP, load
from anabranch.cli.reporting import DebugOption, explained_errors, print_note

Format = Literal["text", "mermaid", "svg"]
_ENDINGS: dict[str, Format] = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".txt": "text"}
_RAIL = re.compile(r"([│├└─ ]*)((?:[◆○●■⇒↪▸] )?)")
_RAIL_BELOW = str.maketrans({"├": "│", "└": " ", "─": " "})
_OTHER_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps")
"""Whatever --format says, such a file would not be what its ending promises."""


def explain(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help=FLOW_HELP, show_default=False)],
    format: Annotated[
        Format | None,
        typer.Option(help="How to draw it; by the ending of --out, else text.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write into this file: .svg, .mmd or .txt.", show_default=False)
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Slots of each subquery.", show_default=False)] = None,
    parallelism: Annotated[
        Parallelism | None, typer.Option(metavar="NAME", help=PARALLELISM_HELP, show_default=False)
    ] = None,
    strategy: Annotated[Parallelism | None, typer.Option(hidden=True)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Look at its sources, sinks and tables, too; fail if it could not run.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Draw a flow: sources, steps, sinks, subqueries, exchanges, hops and fan-out. Starts no Spark.

    [dim]Examples:[/dim]

      anabranch explain flow.yaml

      anabranch explain flow.yaml --slots 30 --parallelism operator

      anabranch explain jobs.py:alerts --out alerts.svg
    """
    from anabranch.query.plan import DEFAULT_SLOTS

    chosen = _choose_format(format, out)
    with explained_errors(debug):
        loaded = load(flow)
        drawing = loaded.graph.explain(
            chosen,
            slots=slots or loaded.run.get("slots", DEFAULT_SLOTS),
            parallelism=take_parallelism(parallelism, strategy) or loaded.run.get("parallelism", "operator-set"),
        )
        if check:
            loaded.graph.check()
        text = drawing if drawing.endswith("\n") else f"{drawing}\n"
        if out is None:
            is_read_here = chosen == "text" and sys.stdout.isatty()
            typer.echo(wrap_drawing(text, shutil.get_terminal_size().columns) if is_read_here else text, nl=False)
            return
        try:
            out.write_text(text, encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(f"cannot write {out}: {error.strerror}", param_hint="--out") from error
        print_note(f"wrote {out}")


def wrap_drawing(text: str, width: int) -> str:
    """Return the drawing with lines no wider than a terminal: broken between words, and the rails at the left go on."""
    lines = []
    for line in text.splitlines():
        rail, mark = _RAIL.match(line).groups()  # type: ignore[union-attr]
        hang = rail.translate(_RAIL_BELOW) + " " * (len(mark) + 2)
        wrapped = wrap(line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
        lines += wrapped if len(line) > width else [line]
    return "\n".join(lines) + "\n"


def _choose_format(asked: Format | None, out: Path | None) -> Format:
    """Return what was asked for, else what the file's ending says; refuse an ending that would not be true."""
    ending = out.suffix.lower() if out is not None else ""
    if out is None or not ending:
        return asked or "text"
    by_ending = _ENDINGS.get(ending)
    if ending in _OTHER_PICTURES or (asked is None and by_ending is None):
        words = ", ".join(known for known in _ENDINGS if known != ".svg")
        msg = (
            f"{out}: flows are not drawn as {ending}; write {out.with_suffix('.svg')} instead, "
            f"a picture that browsers show, or a file that ends in {words}"
        )
        raise typer.BadParameter(msg, param_hint="--out")
    if asked is not None and by_ending not in (None, asked):
        fitting = next(known for known, format in _ENDINGS.items() if format == asked)
        msg = f"{out} would hold {asked}; write {out.with_suffix(fitting)} instead, or leave --format out"
        raise typer.BadParameter(msg, param_hint="--out")
    return asked or by_ending or "text"
