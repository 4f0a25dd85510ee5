"""What plans splits for Structured Streaming, and how the driver speaks with it.

Planning runs in a process of its own: it learns what to do from a small folder that the driver writes.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from anabranch.connectors.waits import WaitBoard, noted_on
from anabranch.engine.batches.split_steps import SplitSteps, StepRequest
from anabranch.model import Hold, PlannedSplits, Source
from anabranch.model.waits import Wait
from anabranch.spark.split_format import SplitDataSource
from anabranch.state.durable_files import write_whole
from anabranch.state.split_log import BEFORE_FIRST, SplitLog
from anabranch.state.store import open_store


class ControlFolder:
    """A folder on the driver's host through which the driver and the source's process speak."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    @property
    def path(self) -> str:
        return str(self._path)

    def put_sources(self, sources: Mapping[int, Source]) -> None:
        """Leave the sources, by their numbers, for the other process."""
        self._replace("sources.pickle", cloudpickle.dumps(dict(sources)))  # type: ignore[no-untyped-call]

    def sources(self) -> dict[int, Source]:
        """Return the sources that the driver left."""
        found: dict[int, Source] = cloudpickle.loads((self._path / "sources.pickle").read_bytes())
        return found

    def ask(self, request: StepRequest) -> None:
        """Ask the source for a step."""
        self._replace(
            "request.json",
            json.dumps(
                [request.tick_after, request.drain, [hold.to_json() for hold in request.holds], request.max_rows]
            ).encode(),
        )

    def request(self) -> StepRequest:
        """Return what the driver asks for at the moment."""
        try:
            tick_after, drain, holds, max_rows = json.loads((self._path / "request.json").read_bytes())
        except FileNotFoundError:
            return StepRequest()
        return StepRequest(tick_after, drain, tuple(map(Hold.from_json, holds)), max_rows)

    def show_waits(self, who: str, waits: Sequence[Wait]) -> None:
        """Leave what a process waits for now; it goes nowhere if the folder is on another host, or gone."""
        with contextlib.suppress(OSError):
            if waits:
                self._replace(f"waits-{who}.json", json.dumps([asdict(wait) for wait in waits]).encode())
            else:
                (self._path / f"waits-{who}.json").unlink(missing_ok=True)

    def waits(self) -> list[Wait]:
        """Return what other processes wait for at the moment."""
        found: list[Wait] = []
        for path in sorted(self._path.glob("waits-*.json")):
            # One that ends just now is one less.
            with contextlib.suppress(FileNotFoundError):
                found += [Wait(**wait) for wait in json.loads(path.read_bytes())]
        return found

    def forget_waits(self, who: str) -> None:
        """Forget what processes whose names begin so waited for."""
        for path in self._path.glob(f"waits-{who}*.json"):
            path.unlink(missing_ok=True)

    def _replace(self, name: str, content: bytes) -> None:
        # The reader may look at any moment: it must see the old file or the new one, never half of one.
        write_whole(self._path / name, content, durable=False)


class NoSplits:
    """Stands in, in the process that plans splits, for a source that Spark reads itself."""

    def planner(self) -> NoSplits:
        return self

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        return PlannedSplits((), position or {})

    def bound(self) -> None:
        """Spark bounds its own sources."""

    def more(self, position: dict[str, Any] | None) -> bool:
        return False


class SplitPlanning:
    """Plans a flow's splits, step by step, in the process that Spark asks for offsets."""

    before_first = BEFORE_FIRST

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._folder = ControlFolder(options["control"])
        self._board = WaitBoard(lambda waits: self._folder.show_waits("planner", waits))
        self._made: SplitSteps | None = None

    def next_after(self, entry: int) -> int:
        """Return the last entry of the log after the next step; the same entry if there is nothing to do."""
        with noted_on(self._board):
            return self._steps().next_after(entry, self._folder.request(), time.time())

    def bound(self) -> None:
        """Stop where the sources stand now."""
        with noted_on(self._board):
            self._steps().bound()

    def _steps(self) -> SplitSteps:
        if self._made is None:
            most = self._options["most_entries"]
            self._made = SplitSteps(
                SplitLog(open_store(self._options["checkpoint"])),
                {number: source.planner() for number, source in self._folder.sources().items()},
                drain_at_end=self._options["drain"] == "true",
                most_entries=int(most) if most else None,
            )
        return self._made


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(SplitDataSource)
