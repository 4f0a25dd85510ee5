"""A flow under test: the engine that runs on Spark, in this process, with everything around the flow given."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack, cast

import polars as pl

from anabranch.connectors.private_folders import PrivateFolder
from anabranch.control.command_texts import find_problem
from anabranch.control.commands import ACTIONS, Action, Command
from anabranch.engine.faults import MOMENTS, Killed, killed_at
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import RunKeywords, RunSettings, make_settings
from anabranch.engine.states import empty_state, read_state
from anabranch.errors import FlowError, name_alternatives
from anabranch.eventtime import parse_duration
from anabranch.eventtime.flow.flow_time import load_time
from anabranch.eventtime.timers import from_us, watermark_from_us
from anabranch.model import BatchProgress
from anabranch.query.event_times import Duration, Moment, read_moment_us
from anabranch.query.graph import FlowGraph
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.copies.hot import SHARED_MEMORY
from anabranch.state.manifest import Manifest
from anabranch.state.store import open_store
from anabranch.testing.given_rows import Rows
from anabranch.testing.operators_seen import find_late_output, find_processor, list_timers
from anabranch.testing.stand_ins import Chosen, Tables, stand_in
from anabranch.testing.surroundings import Name, Surroundings

MOST_BATCHES = 10_000
"""A flow that asks for as many batches at one moment would never be quiet."""
ROOM_BYTES = 256 << 20
"""Checkpoints lie in memory where there is as much room: then no batch waits for a disk."""

FlowLike = FlowGraph | Callable[[], FlowGraph]
"""A flow, or a function that makes one: then each driver has its own."""
_NOT_HERE = ("trigger", "drain", "takeover", "anchors", "control")
"""Settings of runs that go by themselves, on Spark."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did.

    Examples:
        >>> _ = readings.filter("volts > 230").write(ab.console())
        >>> with ab.testing.FlowTester(flow) as tester:
        ...     batch = tester.add([{"sensor": 1, "volts": 228.0}, {"sensor": 2, "volts": 231.0}]).run()
        >>> batch.number, batch.progress.rows_in, batch.results().height, batch.dead_letters().height
        (0, 2, 1, 0)
    """

    progress: BatchProgress
    _around: Surroundings

    def __repr__(self) -> str:
        done = self.progress
        late = f", {done.late_rows} late" if done.late_rows else ""
        dead = f", {done.dead_rows} set apart" if done.dead_rows else ""
        return f"<Batch {done.batch}: {done.rows_in} rows in, {done.rows_out} out{late}{dead}>"

    @property
    def number(self) -> int:
        """Which batch it was, from 0."""
        return self.progress.batch

    def results(self, sink: Name | None = None) -> pl.DataFrame:
        """Return what the batch wrote to a sink."""
        return self._around.results(sink, self.number)

    def dead_letters(self) -> pl.DataFrame:
        """Return the rows of the batch that could not be used, with the reasons."""
        return self._around.dead_letters(self.number)


class FlowTester:
    """Runs a flow without Spark, as it was written, a batch at a time.

    What ``add`` is given stands in for the flow's sources, memory for its sinks, and a clock that only the test moves
    for the wall clock. Everything else is the engine: blocks, state, manifests, commits.

    Examples:
        >>> _ = readings.key_by("sensor").agg(rows=ab.count()).write(ab.parquet("s3://results/rows"))
        >>> with ab.testing.FlowTester(flow, now="2026-01-01") as tester:
        ...     print(tester.add([{"sensor": 7}, {"sensor": 7}]).run())
        ...     tester.kill()
        ...     print(tester.add({"sensor": 7}).run().results().rows())
        <Batch 0: 2 rows in, 1 out>
        [(7, 3)]
    """

    def __init__(
        self,
        flow: FlowLike,
        *,
        now: Moment | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        real_sources: Chosen = False,
        real_sinks: Chosen = False,
        lookups: Tables | None = None,
        initial_state: Mapping[str, pl.DataFrame] | None = None,
        **settings: Unpack[RunKeywords],
    ) -> None:
        """Start the flow; ``settings`` are those of ``Flow.run``, with 2 slots unless somebody says otherwise.

        ``now`` is what the clock shows; by default, the time of this call. The checkpoint goes with the tester, unless
        it is given. ``real_sources`` and ``real_sinks``, by name or number, or True for all, are left as they are.
        ``lookups`` replaces tables by rows: by the number of the lookup, or by a part of the table's label.
        """
        self._flow = flow
        self._now_us = int(time.time() * 1e6) if now is None else read_moment_us(now, "now")
        self._folder = PrivateFolder("tester", _find_memory())
        self._real = (real_sources, real_sinks)
        self._tables: Tables = lookups or {}
        self._initial_state = initial_state
        place = os.path.join(self._folder.path, "checkpoint") if checkpoint is None else os.fspath(checkpoint)
        self._settings = _read_settings(place, settings)
        self._around = Surroundings()
        self._kill: tuple[str, int | None] | None = None
        self._batches: list[Batch] = []
        self._is_running = False
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the flow; a checkpoint that was not given goes."""
        self._stop()
        self._folder.remove()

    @property
    def checkpoint(self) -> str:
        """Where the checkpoint lies; ``anabranch state`` can look into it."""
        return self._settings.checkpoint

    # -- what goes in, and when ------------------------------------------------------------------------------------

    def add(self, rows: Rows, source: Name | None = None, partition: str = "") -> Self:
        """Give a source rows for the next batch: dicts, or a Polars frame, of the columns that it declares.

        ``partition`` names the part of the source that they are of, for watermarks that are kept per partition.
        """
        self._around.add(rows, source, partition)
        return self

    @property
    def now(self) -> datetime:
        """What the wall clock shows, in UTC."""
        return from_us(self._now_us)

    def advance(self, duration: Duration) -> list[Batch]:
        """Let time pass, as it does while a flow runs; return the batches that ran meanwhile.

        What was added runs first. Then each batch that the flow asks for, since a timer or somebody's silence is due,
        runs at its own moment.
        """
        until_us = self._now_us + parse_duration(duration, "advance")
        found = self.run_all()
        while (wake_us := self._driver().wake_us) is not None and self._now_us < wake_us <= until_us:
            self._now_us = wake_us
            found += self.run_all()
        self._now_us = until_us
        return found

    def set_time(self, moment: Moment) -> None:
        """Set the wall clock, which never goes back, and run nothing."""
        moment_us = read_moment_us(moment, "set_time")
        if moment_us < self._now_us:
            msg = f"the clock shows {self.now}, and cannot go back to {from_us(moment_us)}; begin with an earlier now="
            raise FlowError(msg)
        self._now_us = moment_us

    # -- what runs -------------------------------------------------------------------------------------------------

    def run(self) -> Batch:
        """Run one batch: over what was added, or one that the flow itself asks for."""
        batch = self._step()
        if batch is None:
            msg = (
                "there is nothing to run: no rows were added, and the flow asks for no batch; tick() runs an empty one"
            )
            if self._run.run.holds:
                msg = (
                    "there is nothing to run: a source waits for another to catch up (align=…); add rows to that one, "
                    "advance() the clock, or drain()"
                )
            raise FlowError(msg)
        return batch

    def run_all(self) -> list[Batch]:
        """Run what was added and whatever the flow asks for, until it is quiet; return the batches."""
        found: list[Batch] = []
        while (batch := self._step()) is not None:
            found.append(batch)
            if len(found) == MOST_BATCHES:
                msg = (
                    f"the flow has asked for {MOST_BATCHES:,} batches at {self.now}: does a processor set timers for a "
                    "moment that is over, again and again?"
                )
                raise FlowError(msg)
        return found

    def tick(self) -> Batch:
        """Run one batch, be there rows or not."""
        batch = self._step(tick=True)
        assert batch is not None, "who asks for a batch gets one"
        return batch

    def drain(self) -> list[Batch]:
        """Run what was added, then end event time, so that what is open fires; return the batches."""
        found = self.run_all()
        # Rows of a source that waits for another one come before the drain.
        while (batch := self._step(drain=True)) is not None:
            found.append(batch)
        return found

    # -- what comes out --------------------------------------------------------------------------------------------

    def results(self, sink: Name | None = None) -> pl.DataFrame:
        """Return what was written to a sink so far, in order of batch and slot; a global store's table, as it is now.

        What one batch wrote is ``run().results()``, or ``last.results()``.
        """
        return self._around.results(sink, None)

    def dead_letters(self) -> pl.DataFrame:
        """Return the rows that could not be used: where they came, why they went no further, and what they held."""
        return self._around.dead_letters(None)

    def late(self, operator: str | None = None) -> pl.DataFrame:
        """Return the rows that came too late for an operator, as the flow writes them to a sink.

        Where it writes them to none, only their number is known: ``late_count``.
        """
        return self._around.results(find_late_output(self._run.run.graph, operator, self.late_count), None)

    @property
    def late_count(self) -> int:
        """How many rows were late in all batches that this tester ran."""
        return sum(progress.late_rows for progress in self.progress)

    def state(self, operator: str | None = None, *, raw: bool = False) -> pl.DataFrame:
        """Return the state of a stateful operator after the last batch, as ``Flow.read_state`` does."""
        program, manifest = self._run.run.program, self._latest()
        if manifest is None:
            return empty_state(program, operator, raw=raw)
        return read_state(program, manifest, operator, raw=raw)

    def timers(self, operator: str | None = None) -> pl.DataFrame:
        """Return the timers that a processor has set: key, ``time``, ``kind`` (*event* or *processing*) and ``tag``."""
        name, spec = find_processor(self._run.run.plan, operator)
        return list_timers(self.state(name, raw=True), spec)

    def watermark(self) -> datetime | None:
        """Return the flow's watermark, in UTC, the slowest if it has several; None before any event."""
        found = load_time(self._run.run.plan, self._latest()).watermark_us
        return None if found is None else watermark_from_us(found)

    @property
    def progress(self) -> list[BatchProgress]:
        """What the batches that this tester ran did, in figures."""
        return [batch.progress for batch in self._batches]

    @property
    def last(self) -> Batch:
        """The last batch that ran."""
        if not self._batches:
            msg = "no batch has run yet; add rows, then run()"
            raise FlowError(msg)
        return self._batches[-1]

    # -- what may happen to it -------------------------------------------------------------------------------------

    def restart(
        self, flow: FlowLike | None = None, *, lookups: Tables | None = None, **settings: Unpack[RunKeywords]
    ) -> None:
        """Stop the flow, and start it from its checkpoint: as it was, or another version of it, on other slots …"""
        self._stop()
        self._flow = self._flow if flow is None else flow
        self._tables = self._tables if lookups is None else lookups
        known = self._settings.model_dump(exclude={"checkpoint", *_NOT_HERE})
        self._settings = _read_settings(self._settings.checkpoint, cast("RunKeywords", {**known, **settings}))
        self._open()

    def kill(self) -> None:
        """Lose the driver with its memory; the next one knows what is in the checkpoint."""
        if self._is_running:
            self._is_running = False
            self._run.abandon()

    def kill_at(self, moment: str, batch: int | None = None) -> None:
        """Let the driver be killed at one of ``MOMENTS``: of the next batch that gets there, or of this one.

        What runs at that moment raises ``Killed``, once; whatever runs next has a new driver.
        """
        if moment not in MOMENTS:
            msg = f"kill_at: no moment {moment!r}; {name_alternatives(moment, MOMENTS)}"
            raise FlowError(msg)
        self._kill = (moment, batch)

    def move(self, key: object, slot: int, operator: str | None = None) -> str:
        """Send a key to a slot, at the end of the next batch; return what will happen."""
        return self.ctl("move", operator, key=_as_text(key), slot=slot)

    def split(self, key: object, slots: Iterable[int], operator: str | None = None) -> str:
        """Share a key's rows out among slots, from the end of the next batch on."""
        return self.ctl("split", operator, key=_as_text(key), slots=list(slots))

    def merge(self, key: object, operator: str | None = None) -> str:
        """Bring a key back to where its bucket is, whole."""
        return self.ctl("merge", operator, key=_as_text(key))

    def ctl(self, action: Action, operator: str | None = None, **arguments: Any) -> str:
        """Tell the flow what ``anabranch ctl`` may tell it, such as ``ctl("slots", count=4)``; return its answer.

        ``FlowError`` is what it says if it refuses.
        """
        if action not in ACTIONS:
            msg = f"ctl: no action {action!r}; {name_alternatives(action, ACTIONS)}"
            raise FlowError(msg)
        problem = find_problem(action, arguments)
        if problem is not None:
            msg = f"ctl: {problem}"
            raise FlowError(msg)
        reply = self._driver().run.submit(Command(secrets.token_hex(8), action, operator, arguments))
        if not reply.ok:
            raise FlowError(reply.text)
        return reply.text

    # -- inside ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        flow: object = self._flow() if callable(self._flow) else self._flow
        if not isinstance(flow, FlowGraph):
            msg = f"FlowTester takes a flow, or a function that returns one, found a {type(flow).__name__}"
            raise FlowError(msg)
        graph = stand_in(flow, self._folder.path, *self._real, self._tables)
        self._run = LocalRun(graph, self._settings, clock=self._read_clock, initial_state=self._initial_state)
        self._is_running = True
        self._around.bind(self._run.run)

    def _driver(self) -> LocalRun:
        if not self._is_running:
            self._open()
        return self._run

    def _stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._run.close()

    def _step(self, *, tick: bool = False, drain: bool = False) -> Batch | None:
        driver = self._driver()
        try:
            with nullcontext() if self._kill is None else killed_at(*self._kill):
                progress = driver.step(tick=tick, drain=drain)
        except Killed:
            self._kill = None
            self.kill()
            raise
        except Exception:
            # A flow ends with its error; who goes on, starts it again.
            self._stop()
            raise
        if progress is None:
            return None
        self._batches.append(Batch(progress, self._around))
        return self._batches[-1]

    def _read_clock(self) -> float:
        seconds = self._now_us / 1e6
        # Microseconds are cut off, not rounded: a timer that is due now must not wait for the next one.
        return seconds if int(seconds * 1e6) == self._now_us else math.nextafter(seconds, math.inf)

    def _latest(self) -> Manifest | None:
        return Checkpoint(open_store(self._settings.checkpoint)).latest()


def _read_settings(place: str, given: RunKeywords) -> RunSettings:
    for name in _NOT_HERE:
        if name in given:
            msg = f"{name}= is for runs on Spark that go by themselves; here, batches run when they are asked for"
            raise FlowError(msg)
    # A driver that was killed has not given its lease back.
    return make_settings(checkpoint=place, takeover=True, **given)


def _find_memory() -> str | None:
    """Return a folder that lies in memory and has room; None if there is none, and the system's own must do."""
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return None
    return str(SHARED_MEMORY) if free >= ROOM_BYTES and os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None


def _as_text(key: object) -> str:
    """Return a key as people type it: several columns with commas between them."""
    if isinstance(key, tuple | list):
        return ",".join(map(_as_text, key))
    return key.decode() if isinstance(key, bytes) else str(key)
