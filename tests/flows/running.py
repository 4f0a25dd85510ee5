"""Run small flows to their end and look at what they wrote."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.control.steering import Steering
from anabranch.engine.faults import Killed, killed_at
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import RunSettings, make_settings
from anabranch.engine.tasks.spec import FlowProgram
from anabranch.model import BatchProgress
from anabranch.query.streams import Stream

START = datetime(2026, 1, 1)

SCHEMA: dict[str, pl.DataType] = {
    "key": pl.Int64(),
    "ts": pl.Datetime("us"),
    "whole": pl.Int64(),
    "real": pl.Float64(),
}

WAIT_SECONDS = 200.0

Batches = Sequence[Sequence[Mapping[str, Any]]]
Steer = Callable[[FlowProgram], Steering]


def reading(key: Any, seconds: float, whole: int | None = 1, real: float | None = 0.5) -> dict[str, Any]:
    """Return a row of the usual schema, so many seconds after the start of the stream."""
    return {"key": key, "ts": START + timedelta(seconds=seconds), "whole": whole, "real": real}


def make_batches(count: int, seed: int = 3) -> list[list[dict[str, Any]]]:
    """Return batches of readings of 40 keys, out of order; their values are eighths, so that sums are exact."""
    chance = random.Random(seed)
    return [
        [
            reading(
                chance.randrange(40),
                number * 12 + chance.randrange(-80, 160) / 8,
                chance.randrange(-50, 50),
                chance.randrange(-64, 64) / 8,
            )
            for _ in range(120)
        ]
        for number in range(count)
    ]


def frames_of(batches: Batches, schema: Mapping[str, pl.DataType] | None = None) -> list[pl.DataFrame]:
    """Return each batch as a frame."""
    return [pl.DataFrame(list(rows), schema=dict(schema or SCHEMA), orient="row") for rows in batches]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"
        time.sleep(0.05)


@dataclass
class Outcome:
    """What a flow wrote and said."""

    sinks: list[Any]
    progress: list[BatchProgress] = field(default_factory=list)

    @property
    def batches(self) -> list[tuple[int, pl.DataFrame]]:
        """(batch, rows) of the first sink."""
        found: list[tuple[int, pl.DataFrame]] = self.sinks[0].batches()
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows of the first sink."""
        return [row for _, frame in self.batches for row in frame.to_dicts()]

    @property
    def late_rows(self) -> int:
        return sum(entry.late_rows for entry in self.progress)

    @property
    def dead_rows(self) -> int:
        return sum(entry.dead_rows for entry in self.progress)


@dataclass
class FlowBench(ABC):
    """A folder to run flows in; each run has a checkpoint of its own unless it is named."""

    folder: Path
    runs: int = 0
    kills: int = 0
    clock: Callable[[], float] = time.time

    def new_checkpoint(self) -> str:
        """Return a checkpoint folder that no run has used."""
        self.runs += 1
        return str(self.folder / f"checkpoint-{self.runs}")

    def run(
        self,
        batches: Batches,
        build: Callable[[Stream], Stream],
        *,
        schema: Mapping[str, pl.DataType] | None = None,
        **settings: Any,
    ) -> Outcome:
        """Run one stream over batches, available now, drained unless told not to, into one sink."""
        flow = ab.Flow("test")
        sink = ab.to_memory(self.folder / f"results-{self.runs + 1}")
        build(flow.read(ab.memory(*frames_of(batches, schema)))).write(sink)
        return self.run_flow(flow, [sink], **settings)

    def run_flow(self, flow: ab.Flow, sinks: Sequence[Any], **settings: Any) -> Outcome:
        """Run a flow to its end."""
        return self.run_steered(flow, sinks, None, **settings)

    def run_steered(self, flow: ab.Flow, sinks: Sequence[Any], steer: Steer | None, **settings: Any) -> Outcome:
        """Run a flow to its end, with a steering of the test's own."""
        given = {"checkpoint": None, "trigger": "available-now", "drain": True, "slots": 2, **settings}
        given["checkpoint"] = str(given["checkpoint"] or self.new_checkpoint())
        flow.check(**given)
        return Outcome(list(sinks), self._run(flow, make_settings(**given), steer))

    def run_until_killed(
        self, moment: str, batch: int | None, flow: ab.Flow, sinks: Sequence[Any], steer: Steer | None, **settings: Any
    ) -> bool:
        """Run a flow until it is killed at a moment of a batch, or of any; say whether it got there and was."""
        try:
            with killed_at(moment, batch):
                self.run_steered(flow, sinks, steer, **settings)
        except Killed:
            self.kills += 1
            return True
        return False

    @abstractmethod
    def _run(self, flow: ab.Flow, settings: RunSettings, steer: Steer | None) -> list[BatchProgress]: ...


class LocalBench(FlowBench):
    """Runs flows in this process."""

    def _run(self, flow: ab.Flow, settings: RunSettings, steer: Steer | None) -> list[BatchProgress]:
        run = LocalRun(flow, settings, cores=2, make_steering=steer, clock=self.clock)
        leave = run.close
        try:
            return run.run_to_end()
        except Killed:
            # What a killed process leaves: nobody gives the checkpoint back.
            leave = run.abandon
            raise
        finally:
            leave()
