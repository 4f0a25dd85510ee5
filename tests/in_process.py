"""Flows of the tests' own in this process, batch by batch; drivers can be lost between any two batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.engine.spec import FlowProgram
from anabranch.model import BatchProgress
from anabranch.query.streams import Stream
from anabranch.state import Checkpoint, open_store
from anabranch.state.inspect import find_level
from anabranch.state.runs import RunFiles, WriteName


class FlowHere:
    """A flow, its checkpoint, and whoever drives it at the moment."""

    def __init__(self, make_flow: Callable[[], ab.Flow], checkpoint: Path, **settings: Any) -> None:
        """``make_flow`` is called for every driver: a driver that was lost leaves nothing in memory."""
        self._make_flow = make_flow
        self._settings = make_settings(checkpoint=str(checkpoint), takeover=True, **settings)
        self._run: LocalRun | None = None
        self.progress: list[BatchProgress] = []

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(open_store(self._settings.checkpoint))

    @property
    def program(self) -> FlowProgram:
        return self._driver().run.program

    def step(self, *, drain: bool = False) -> BatchProgress:
        """Run a batch, be it one without data."""
        progress = self._driver().step(tick=True, drain=drain)
        assert progress is not None
        self.progress.append(progress)
        return progress

    def lose_driver(self) -> None:
        """Forget what the driver knows; the next batch has another."""
        self._run = None

    def keys_by_slot(self, operator: str, key: str = "key") -> list[list[Any]]:
        """Return the keys whose state lies on each slot of an operator after the last batch."""
        checkpoint = self.checkpoint
        manifest = checkpoint.latest()
        assert manifest is not None
        files = RunFiles(checkpoint.store, "state", WriteName(0, manifest.batch, 0, "test"))
        runs = find_level(manifest, operator).runs
        return [sorted({value for ref in refs for value in files.read(ref)[key].to_list()}) for refs in runs]

    def _driver(self) -> LocalRun:
        if self._run is None:
            self._run = LocalRun(self._make_flow(), self._settings)
        return self._run


class StreamHere(FlowHere):
    """One stream over frames that are added as it goes, into one sink."""

    def __init__(self, build: Callable[[Stream], Stream], folder: Path, schema: dict[str, pl.DataType]) -> None:
        self.source = ab.memory(schema=schema, max_frames=None)
        self.sink = ab.to_memory(folder / "results")

        def make_flow() -> ab.Flow:
            flow = ab.Flow("test")
            build(flow.read(self.source)).write(self.sink)
            return flow

        super().__init__(make_flow, folder / "checkpoint", slots=2, buckets=64, read_tasks=3)

    def run(self, frames: Sequence[pl.DataFrame], drain: bool = False) -> BatchProgress:
        """Run a batch over frames, each of a partition of its own, or over none."""
        for number, frame in enumerate(frames):
            if frame.height:
                self.source.add(frame, f"p{number}")
        return self.step(drain=drain)

    def rows(self) -> list[dict[str, Any]]:
        """Return all results so far."""
        return [row for _, frame in self.sink.batches() for row in frame.to_dicts()]
