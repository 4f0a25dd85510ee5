"""``anabranch demo``: a skewed stream of voltage readings, its low windows, and proof that they are right."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.demo.scale import DELAY_SECONDS, LOW_VOLTS, WINDOW_SECONDS, DemoScale
from anabranch.cli.formats import format_count, format_seconds
from anabranch.cli.reporting import (
    FAILED,
    INTERRUPTED,
    DebugOption,
    explained_errors,
    open_console,
    print_error,
    print_note,
    say,
)
from anabranch.cli.sessions import SessionOptions

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from anabranch.cli.demo.stream import DemoStream

DEFAULT_SCALE = DemoScale()


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results and the picture go.")] = Path(
        "demo-output"
    ),
    seconds: Annotated[int, typer.Option(metavar="N", min=5, help="How long the stream is.")] = DEFAULT_SCALE.seconds,
    rate: Annotated[
        int, typer.Option(metavar="N", min=1000, help="Readings a second.")
    ] = DEFAULT_SCALE.rows_per_second,
    sensors: Annotated[
        int, typer.Option(metavar="N", min=1, help="Sensors, few of them much busier.")
    ] = DEFAULT_SCALE.sensors,
    plain: Annotated[bool, typer.Option("--plain", help="A line a batch, also in a terminal.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Let Spark's own output through.")] = False,
    debug: DebugOption = False,
) -> None:
    """Find low voltage in a skewed stream of readings, live, and check the answers against plain Polars.

    Takes about a minute and needs no network. Nothing but the output folder is written to.
    """
    from anabranch.cli.demo.stream import DemoStream

    scale = DemoScale(sensors=sensors, rows_per_second=rate, seconds=seconds)
    console = open_console()
    with explained_errors(debug):
        _clear(out)
        _introduce(scale, console)
        live = console.is_terminal and not plain and not verbose
        stream = DemoStream(scale, out, console, live=live)
        stream.run(SessionOptions(verbose=verbose))
        stream.display.print_summary()
        if stream.interrupted:
            print_note("interrupted: answers are checked, and the picture drawn, only after a whole stream")
            raise typer.Exit(INTERRUPTED)
        _conclude(stream, console)


def _introduce(scale: DemoScale, console: Console) -> None:
    say(
        console,
        f"{format_count(scale.rows_per_second)} voltage readings a second from {format_count(scale.sensors)} sensors, "
        f"up to {DELAY_SECONDS} s out of order, for {scale.seconds} s.\n"
        f"The flow finds the sensors that went below {LOW_VOLTS:.0f} V, in windows of {WINDOW_SECONDS} s.",
    )


def _conclude(stream: DemoStream, console: Console) -> None:
    """Show the worst sensors, check the answers, draw the picture and say where everything lies."""
    from anabranch.cli.demo.answers import compare_answers, compute_answers, read_alerts

    history, out = stream.display.history, stream.out
    if not stream.display.live:
        console.print(stream.worst)
    began = time.monotonic()
    expected = compute_answers(stream.source, history.totals.rows_in)
    check = compare_answers(read_alerts(out / "alerts"), expected.alerts)
    took = format_seconds(time.monotonic() - began)
    hottest = expected.readings.sort("readings", descending=True).row(0)
    console.print(
        f"skew: sensor {hottest[0]} alone sent {100 * hottest[1] / history.totals.rows_in:.0f} % of the readings"
    )
    if check.equal and not history.totals.late_rows and not history.totals.dead_rows:
        console.print(
            f"answers equal: [bold green]yes[/bold green] ({format_count(check.rows)} low windows, against one Polars "
            f"process over the same {format_count(history.totals.rows_in)} readings, {took})"
        )
    else:
        console.print("answers equal: [bold red]no[/bold red]")
    say(console, f"results  {out / 'alerts'}/part-*.parquet")
    show_picture(stream, expected.readings, console)
    say(console, f"state    {out / 'state'}  (look into it: anabranch state ls {out / 'state'})")
    if not check.equal:
        print_error(str(check.difference))
        raise typer.Exit(FAILED)
    if history.totals.late_rows or history.totals.dead_rows:
        print_error(
            f"{history.totals.late_rows} readings were late and {history.totals.dead_rows} dead, but none should be"
        )
        raise typer.Exit(FAILED)


def show_picture(stream: DemoStream, readings: pl.DataFrame, console: Console) -> None:
    """Draw the run and say where the picture lies, or what is missing for it; ``readings`` are those of each sensor."""
    from anabranch.cli.demo.answers import rows_by_home_slot
    from anabranch.cli.demo.picture import can_draw, draw_picture
    from anabranch.model.routes import DEFAULT_BUCKETS

    if not can_draw():
        print_note("there is no picture: matplotlib draws it, which comes by pip install 'anabranch[pictures]'")
        return
    picture = stream.out / "throughput.png"
    home_rows = rows_by_home_slot(readings, stream.scale.slots, DEFAULT_BUCKETS)
    draw_picture(stream.display.history, home_rows, stream.scale.rows_per_second, picture)
    say(console, f"picture  {picture}")


def _clear(out: Path) -> None:
    """Remove what an earlier demo wrote, and nothing else."""
    try:
        for name in ("alerts", "state"):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / "throughput.png").unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print_note(f"cannot write into {out}")
        raise typer.BadParameter(f"cannot write into {out}: {error.strerror}", param_hint="--out") from error
