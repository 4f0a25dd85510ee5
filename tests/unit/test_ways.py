"""docs/architecture.md tells the ways of a row and of a decision, and what runs in this process must say the same.

The document is for people: where it differs from what was traced, the failure shows what to write there.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import CellType, FrameType, FunctionType
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.control.decisions import Decision
from anabranch.control.facts import OperatorFacts
from anabranch.engine.batches.jobs import BatchInput
from anabranch.engine.batches.reports import BatchReport
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.engine.tasks.blocks import Block
from anabranch.model import Fired, ReadOutcome, RunRef, StagedFile
from anabranch.model.balance import Balance
from anabranch.query.streams import Stream
from anabranch.routing import KeyBatch, KeySample
from anabranch.routing.phases import PhasedRoutes
from anabranch.routing.routes import Routes
from anabranch.routing.strategies.scores import Scores
from anabranch.state.manifest import Manifest
from rooms import read_rooms

PACKAGE = Path(ab.__file__).resolve().parent
DOCUMENT = PACKAGE.parents[1] / "docs" / "architecture.md"
START = datetime(2026, 1, 1)
SCHEMA = {"sensor": pl.Int64(), "ts": pl.Datetime("us"), "volts": pl.Float64()}


@dataclass(frozen=True, slots=True)
class Step:
    """The first function of a module on a way."""

    module: str
    function: str

    def __str__(self) -> str:
        return f"`{self.module}` `{self.function}`"


class Cargo(ABC):
    """What goes a way, in whatever form: a function that is given it, or gives it back, is on the way."""

    @abstractmethod
    def is_thing(self, kind: type) -> bool:
        """Say whether a class is a form of it: what it says of itself is no step of the way."""

    def is_held_by(self, value: object, depth: int = 0) -> bool:
        """Say whether a value is cargo, or has some in it."""
        if self.is_thing(type(value)):
            return True
        inside: Sequence[object] = ()
        if isinstance(value, list | tuple):
            inside = value[:3]
        elif isinstance(value, dict):
            inside = list(value.values())[:3]
        elif isinstance(value, FunctionType):
            inside = [found for cell in value.__closure__ or () for found in _contents(cell)]
        return depth < 2 and any(self.is_held_by(one, depth + 1) for one in inside)


def _contents(cell: CellType) -> Iterator[object]:
    try:
        yield cell.cell_contents
    except ValueError:  # not filled yet
        return


class Trace:
    """Follows cargo through the package's functions, in the order in which they are entered."""

    def __init__(self, cargo: Cargo, begin: str, end: str, beside: Sequence[str] = ()) -> None:
        """It is followed from where ``begin`` is first called to where ``end`` last returned.

        ``beside``: functions that are on the way, too, though it has no form of its own there.
        """
        self._cargo = cargo
        self._begin, self._end, self._beside = begin, end, beside
        self._calls: list[Step] = []
        self._on_the_way: list[bool] = []
        self._open: dict[FrameType, int | None] = {}
        self._last = 0

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def steps(self) -> Iterator[Step]:
        """Yield all steps, in the order of time."""
        calls = zip(self._calls[: self._last], self._on_the_way, strict=False)
        return (step for step, on_the_way in calls if on_the_way)

    def _note(self, frame: FrameType, event: str, given_back: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(f"{PACKAGE}/") or code.co_name.startswith(("<", "__")):
            return
        if event == "call" and frame not in self._open:
            self._open[frame] = self._enter(frame)
        elif event == "return" and frame in self._open:
            call = self._open[frame]
            if call is not None:
                self._on_the_way[call] = self._on_the_way[call] or self._cargo.is_held_by(given_back)
            if not code.co_flags & inspect.CO_GENERATOR:
                del self._open[frame]
            if code.co_qualname == self._end:
                self._last = len(self._calls)

    def _enter(self, frame: FrameType) -> int | None:
        """Note a call; None for one that is of no interest."""
        code = frame.f_code
        if not self._calls and code.co_qualname != self._begin:
            return None
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [frame.f_locals.get(name) for name in names]
        if names[:1] in (("self",), ("cls",)):
            owner = given[0] if isinstance(given[0], type) else type(given[0])
            if self._cargo.is_thing(owner):
                return None
        self._calls.append(Step(Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname))
        is_beside = code.co_qualname in self._beside
        self._on_the_way.append(is_beside or any(self._cargo.is_held_by(value) for value in given))
        return len(self._calls) - 1


class Rows(Cargo):
    """Rows, or what stands for them: splits, blocks, runs, reports, staged files and the manifest that names them."""

    _forms = (
        *(pl.DataFrame, pl.LazyFrame, pl.Series, pa.Table, pa.RecordBatch, bytes, memoryview),
        *(BatchInput, ReadOutcome, Block, Fired, RunRef, BatchReport, StagedFile),
    )

    def is_thing(self, kind: type) -> bool:
        return issubclass(kind, self._forms)

    def is_held_by(self, value: object, depth: int = 0) -> bool:
        return isinstance(value, Manifest) or super().is_held_by(value, depth)


class Decisions(Cargo):
    """What is seen of loads, what is made of it, and routes that are not those to begin with."""

    _rooms = ("anabranch.control.", "anabranch.balancing.", "anabranch.model.loads", "anabranch.model.moves")

    def __init__(self, first: Routes) -> None:
        self._first = first

    def is_thing(self, kind: type) -> bool:
        if kind in (Routes, PhasedRoutes, KeySample, Scores):
            return True
        parameters = getattr(kind, "__dataclass_params__", None)
        is_data = parameters is not None and parameters.frozen and kind is not OperatorFacts
        return is_data and kind.__module__.startswith(self._rooms)

    def is_held_by(self, value: object, depth: int = 0) -> bool:
        match value:
            case Routes():
                return value != self._first
            case PhasedRoutes():
                return value.routes != self._first
            case Decision():
                return bool(value.routes)
        return super().is_held_by(value, depth)


class Sensors:
    """A flow from JSON files to Parquet, in this process: count and lowest of windows, by sensor."""

    def __init__(self, folder: Path, slots: int, **key_by: Any) -> None:
        self._folder = folder
        self._files = 0
        self._seconds = 0.0
        (folder / "in").mkdir()
        flow = ab.Flow("sensors")
        stream: Stream = flow.read(ab.files(str(folder / "in"), format="json", schema=SCHEMA))
        windows = stream.filter(pl.col("volts") >= 0).key_by("sensor", **key_by).watermark("ts").window("10s")
        windows.agg(readings=ab.count(), lowest=ab.min("volts")).write(ab.parquet(str(folder / "out")))
        settings = make_settings(checkpoint=str(folder / "state"), slots=slots, read_tasks=1)
        self._run = LocalRun(flow, settings, clock=self._now)

    def step(self, second: int, sensors: Sequence[int]) -> ab.BatchProgress:
        """Run a batch of one file with a row of each of these sensors, in this second."""
        row = {"ts": (START + timedelta(seconds=second)).isoformat(), "volts": 230.5}
        lines = [json.dumps({"sensor": sensor, **row}) for sensor in sensors]
        (self._folder / "in" / f"{self._files}.json").write_text("\n".join(lines) + "\n")
        self._files += 1
        progress = self._run.step()
        assert progress is not None
        return progress

    def _now(self) -> float:
        """Say that another second is over, so that the source looks for files again."""
        self._seconds += 1
        return START.timestamp() + self._seconds


def test_the_way_of_a_row_is_as_the_document_tells(tmp_path: Path) -> None:
    flow = Sensors(tmp_path, 1, balance=None)
    flow.step(1, range(30))
    trace = Trace(Rows(), "FlowRun.run_batch", "BatchRunner.publish")
    with trace:
        progress = flow.step(30, range(30))
    assert progress.rows_out == 30
    check_way("a row", list(trace.steps()))


def test_the_way_of_a_decision_is_as_the_document_tells(tmp_path: Path) -> None:
    first = Routes.even(2)
    some = range(200)
    slots = first.home_slots(KeyBatch.of(pl.DataFrame({"sensor": pl.Series(some, dtype=pl.Int64)}), ["sensor"]))
    by_slot = [[sensor for sensor in some if slots[sensor] == slot][:60] for slot in range(2)]
    sensors = by_slot[0] * 10 + by_slot[1] * 3
    flow = Sensors(tmp_path, 2, balance=Balance(fewest_rows_a_slot=10), exchange="routed")
    # What slots see is bytes until the driver reads it; state that moves is rows.
    cargo = Decisions(first)
    seen = Trace(cargo, "watch_rows", "Rebalancer.observe", ["measure_state", "merge_reports", "Rebalancer.observe"])
    with seen:
        assert flow.step(1, sensors).moved_bytes == 0
    done = Trace(
        Decisions(first), "Rebalancer.decide", "Checkpoint.commit", ["SlotTask._hand_off", "Checkpoint.commit"]
    )
    with done:
        assert flow.step(2, sensors).moved_bytes > 0
    check_way("a decision", [*seen.steps(), *done.steps()])
    assert flow.step(3, sensors).slot_rows[0] < 450


def check_way(whose: str, every: Sequence[Step]) -> None:
    """Fail unless the document's section has the first step in every module, and counts modules and changes of room."""
    traced = first_steps(every)
    section = read_section(DOCUMENT.read_text(encoding="utf-8"), f"The way of {whose}")
    told = [Step(*found) for found in re.findall(r"^\| \d+ \| `([\w/]+\.py)` `([\w.]+)` \|", section, re.MULTILINE)]
    lines = "\n".join(f"| {number} | {step} |" for number, step in enumerate(traced, start=1))
    assert told == traced, f"docs/architecture.md, the way of {whose}: write\n{lines}"
    words = f"{len(traced)} modules and changes rooms {count_crossings(traced)} times"
    assert words in " ".join(section.split()), f"docs/architecture.md, the way of {whose}: it passes {words}"


def first_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the first step in every module, in the order of time."""
    found: dict[str, Step] = {}
    for step in steps:
        found.setdefault(step.module, step)
    return list(found.values())


def read_section(text: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/architecture.md has no section '## {title}'"
    return found[1]


def count_crossings(steps: Sequence[Step]) -> int:
    """Return how often the room changes from step to step; ``compiled/`` is in the room of whoever calls it."""
    table = read_rooms(DOCUMENT.read_text(encoding="utf-8"))
    rooms = [table.find(step.module.split("/")[:-1]) for step in steps]
    passed = [room for room in rooms if room != "compiled"]
    return sum(one != other for one, other in pairwise(passed))


@pytest.mark.parametrize(("whose", "most"), [("a row", 25), ("a decision", 10)])
def test_ways_do_not_go_to_and_fro(whose: str, most: int) -> None:
    section = read_section(DOCUMENT.read_text(encoding="utf-8"), f"The way of {whose}")
    told = re.search(r"changes rooms (\d+) times", " ".join(section.split()))
    assert told, f"the way of {whose} does not say how often rooms change"
    assert int(told[1]) <= most


def test_a_room_counts_again_when_the_way_comes_back_to_it() -> None:
    modules = ("engine/a.py", "state/b.py", "compiled/c.py", "state/d.py", "engine/e.py")
    assert count_crossings([Step(module, "run") for module in modules]) == 2


def test_a_folder_that_is_a_room_of_its_own_counts_as_one() -> None:
    modules = (
        "eventtime/lateness.py",
        "eventtime/flow/flow_time.py",
        "engine/tasks/spec.py",
        "engine/batches/batch.py",
    )
    assert count_crossings([Step(module, "run") for module in modules]) == 2
