"""The demo's flow while it runs."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from anabranch.cli.demo.flow import make_flow, make_source
from anabranch.cli.demo.scale import DemoScale
from anabranch.cli.demo.sensors import WorstSensors
from anabranch.cli.formats import format_count
from anabranch.cli.run.command import POLL_SECONDS
from anabranch.cli.run.display import Display
from anabranch.cli.sessions import SessionOptions, open_session
from anabranch.engine.interrupts import Interrupts
from anabranch.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.connectors.generator.streams import GeneratorSource
    from anabranch.spark.handles import Handle

GRACE_SECONDS = 40
"""How much longer than the stream a slow machine may take before the demo gives up."""
TRIGGER = "1s"


class DemoStream:
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
        while history.totals.rows_in < self.scale.rows:
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
                rate = int(history.totals.rows_in / (self.scale.seconds + GRACE_SECONDS))
                msg = f"only {format_count(history.totals.rows_in)} readings were done in time; try --rate {rate}"
                raise EngineError(msg)
        self.display.say("closing the last windows")
        handle.stop(drain=True)


def warm_up(spark: SparkSession, scale: DemoScale) -> None:
    """Run the flow over a second of readings: the first job of a Spark takes some seconds, whatever it does."""
    with tempfile.TemporaryDirectory(prefix="anabranch-demo-") as folder:
        source = make_source(replace(scale, seconds=1), datetime.now(UTC))
        flow = make_flow(source, Path(folder, "alerts"))
        flow.run(str(Path(folder, "state")), spark=spark, trigger="available-now", drain=True, slots=scale.slots)
