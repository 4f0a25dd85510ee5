"""``anabranch demo``: a skewed stream of voltage readings, its low windows, and proof that they are right."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from anabranch.cli.demo_flow import DELAY_SECONDS, LOW_VOLTS, WINDOW_SECONDS, DemoScale, make_flow, make_source
from anabranch.cli.demo_sensors import WorstSensors
from anabranch.cli.display import Display
from anabranch.cli.formats import format_count, format_seconds
from anabranch.cli.interrupts import Interrupts
from anabranch.cli.reporting import (
    FAILED,
    INTERRUPTED,
    DebugOption,
    explained_errors,
    open_console,
    print_error,
    print_note,
)
from anabranch.cli.run import POLL_SECONDS
from anabranch.cli.sessions import SessionOptions, open_session
from anabranch.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.connectors.generator import GeneratorSource
    from anabranch.spark.flow import Handle

GRACE_SECONDS = 40
"""How much longer than the stream a slow machine may take before the demo gives up."""
TRIGGER = "1s"
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
    scale = DemoScale(sensors=sensors, rows_per_second=rate, seconds=seconds)
    console = open_console()
    with explained_errors(debug):
        _clear(out)
        _introduce(scale, console)
        live = console.is_terminal and not plain and not verbose
        stream = _Stream(scale, out, console, live=live)
        stream.run(SessionOptions(verbose=verbose))
        stream.display.print_summary()
        if stream.interrupted:
            print_note("interrupted: answers are checked, and the picture drawn, only after a whole stream")
            raise typer.Exit(INTERRUPTED)
        _conclude(stream, console)


class _Stream:
    """One run of the demo's flow, shown while it lasts."""

    def __init__(self, scale: DemoScale, out: Path, console: Console, *, live: bool) -> None:
        self.scale = scale
        self.out = out
        self.worst = WorstSensors(out / "alerts")
        self.display = Display("low-voltage", console, live=live, below=self.worst)
        self.interrupted = False
        self._source: GeneratorSource | None = None

    @property
    def source(self) -> GeneratorSource:
        assert self._source is not None, "the stream has run"
        return self._source

    def run(self, session: SessionOptions) -> None:
        """Run the flow until every reading is in and every window has fired."""
        with self.display, open_session(session) as spark, Interrupts() as interrupts:
            self.display.say("warming Spark up")
            warm_up(spark, self.scale)
            # Event time starts with the stream, so that the watermark's lag means something.
            self._source = make_source(self.scale, datetime.now(UTC).replace(microsecond=0))
            flow = make_flow(self._source, self.out / "alerts")
            self.display.begin()
            state = str(self.out / "state")
            handle = flow.start(
                state, spark=spark, on_progress=self.display.take, trigger=TRIGGER, slots=self.scale.slots
            )
            self._follow(handle, interrupts)
            self.worst.refresh()

    def _follow(self, handle: Handle, interrupts: Interrupts) -> None:
        history = self.display.history
        deadline = time.monotonic() + self.scale.seconds + GRACE_SECONDS
        while history.rows_in < self.scale.rows:
            if handle.wait(POLL_SECONDS):
                msg = "the flow ended before all readings were in"
                raise EngineError(msg)
            self.worst.refresh()
            if interrupts.requested:
                self.interrupted = True
                self.display.announce_end()
                handle.stop()
                return
            if time.monotonic() > deadline:
                handle.stop()
                rate = int(history.rows_in / (self.scale.seconds + GRACE_SECONDS))
                msg = f"only {format_count(history.rows_in)} readings were done in time; try --rate {rate}"
                raise EngineError(msg)
        self.display.say("closing the last windows")
        handle.stop(drain=True)


def warm_up(spark: SparkSession, scale: DemoScale) -> None:
    """Run the flow over a second of readings: the first job of a Spark takes some seconds, whatever it does."""
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder:
        source = make_source(replace(scale, seconds=1), datetime.now(UTC))
        flow = make_flow(source, Path(folder, "alerts"))
        flow.run(str(Path(folder, "state")), spark=spark, trigger="available-now", drain=True, slots=scale.slots)


def _introduce(scale: DemoScale, console: Console) -> None:
    console.print(
        f"{format_count(scale.rows_per_second)} voltage readings a second from {format_count(scale.sensors)} sensors, "
        f"up to {DELAY_SECONDS} s out of order, for {scale.seconds} s.\n"
        f"The flow finds the sensors that went below {LOW_VOLTS:.0f} V, in windows of {WINDOW_SECONDS} s.",
        soft_wrap=True,
    )


def _conclude(stream: _Stream, console: Console) -> None:
    """Show the worst sensors, check the answers, draw the picture and say where everything lies."""
    from anabranch.cli.demo_answers import compare_answers, compute_answers, read_alerts, rows_by_home_slot
    from anabranch.cli.demo_picture import draw_picture
    from anabranch.model.routes import DEFAULT_BUCKETS

    history, scale, out = stream.display.history, stream.scale, stream.out
    if not stream.display.live:
        console.print(stream.worst)
    began = time.monotonic()
    expected = compute_answers(stream.source, history.rows_in)
    check = compare_answers(read_alerts(out / "alerts"), expected.alerts)
    took = format_seconds(time.monotonic() - began)
    hottest = expected.readings.sort("readings", descending=True).row(0)
    console.print(f"skew: sensor {hottest[0]} alone sent {100 * hottest[1] / history.rows_in:.0f} % of the readings")
    if check.equal and not history.late_rows and not history.dead_rows:
        console.print(
            f"answers equal: [bold green]yes[/bold green] ({format_count(check.rows)} low windows, against one Polars "
            f"process over the same {format_count(history.rows_in)} readings, {took})"
        )
    else:
        console.print("answers equal: [bold red]no[/bold red]")
    picture = out / "throughput.png"
    home_rows = rows_by_home_slot(expected.readings, scale.slots, DEFAULT_BUCKETS)
    draw_picture(history, home_rows, scale.rows_per_second, picture)
    console.print(f"results  {out / 'alerts'}/part-*.parquet", soft_wrap=True)
    console.print(f"picture  {picture}", soft_wrap=True)
    console.print(f"state    {out / 'state'}  (look into it: anabranch state ls {out / 'state'})", soft_wrap=True)
    if not check.equal:
        print_error(str(check.difference))
        raise typer.Exit(FAILED)
    if history.late_rows or history.dead_rows:
        print_error(f"{history.late_rows} readings were late and {history.dead_rows} dead, but none should be")
        raise typer.Exit(FAILED)


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
