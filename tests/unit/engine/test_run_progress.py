"""A run of any length takes the memory of its window, and knows of every batch."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from anabranch.control.effects import SlotsSeen
from anabranch.engine.progress import WINDOW_BATCHES, RunProgress
from anabranch.engine.run_events import RunEvents
from anabranch.model import BatchProgress
from anabranch.model.events import BatchEvent, DecisionEvent, RouteDelta, with_company
from anabranch.state import Store, open_store
from anabranch.state.event_files import read_history
from anabranch.state.event_log import EventLog
from unit.cli.builders import batch

MANY = 20_000
SOME = 4_000
KEPT = 2_000
"""So many events are kept as they are; what is older is summed up."""


class Run:
    """What the driver keeps of a run, fed without jobs."""

    def __init__(self, store: Store, epoch: int = 4, kept_records: int = KEPT) -> None:
        self.store = store
        self.progress = RunProgress(store, epoch, 1_000.0)
        log = EventLog(store, epoch, lambda: None, kept_records, kept_summary_bytes=100_000)
        self.events = RunEvents(log, lambda: 1_000.0, None, was_killed=False)

    def add(self, progress: BatchProgress) -> None:
        """Take in a batch, with a decision, a failure and an effect now and then."""
        number = progress.batch
        if number % 10 == 0:
            self.events.decide(
                [DecisionEvent(number, "agg", "move", "balancer", "x", "state", change=RouteDelta(2, 2))]
            )
        if number % 50 == 0:
            self.events.fail(f"out of memory in batch {number}", number, 1)
            self.events.recover("attempts", "try 2", number)
        self.events.see_slots(number, {"agg": SlotsSeen(progress.slot_rows, is_settled=True)})
        self.events.end_batch(progress, {"entry": number - 1}, {"entry": number})
        self.progress.add(progress, 1_000.0)

    def read_batches(self) -> list[BatchProgress]:
        self.events.flush()
        told = with_company(read_history(self.store))
        return [record.event.progress for record in told if isinstance(record.event, BatchEvent)]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(tmp_path / "c" if request.param == "local" else f"memory://{tmp_path}/c")


def measure(*kept: object) -> tuple[int, int]:
    """Return how many objects can be reached from what is kept, and their bytes; code and classes are nobody's own."""
    seen: dict[int, object] = {}
    found: list[object] = [*kept]
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType | BuiltinFunctionType):
            seen[id(one)] = one
            found += gc.get_referents(one)
    return len(seen), sum(map(sys.getsizeof, seen.values()))


def test_neither_memory_nor_open_files_nor_the_history_grow_with_the_batches_of_a_run(store: Store) -> None:
    run, seen, files, sizes = Run(store), [], [], []
    for number in range(MANY):
        run.add(batch(number, problems=(f"problem of batch {number:05}",), phase_seconds={"job": number / 7}))
        if number + 1 in (SOME, MANY):
            run.events.flush()
            seen.append(measure(run.progress, run.events))
            files.append(len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0)
            sizes.append(sum(entry.bytes for entry in store.list("history")))
    (some, some_bytes), (many, many_bytes) = seen
    assert WINDOW_BATCHES < many <= some + 200, "a file of the history has a name"
    assert many_bytes < 1.1 * some_bytes
    assert files[0] == files[1]
    assert max(sizes) < 2.5e6, "of 2,000 events, and a file of 256 kB that is not old enough as a whole"


def test_every_batch_is_in_the_totals_and_can_be_read_again(store: Store) -> None:
    run = Run(store, kept_records=MANY)
    batches = [batch(number, rows_in=number, slot_rows=(1, number + 1)) for number in range(1, SOME)]
    for progress in batches:
        run.add(progress)
    assert run.progress.window == batches[-WINDOW_BATCHES:]
    assert run.progress.latest == batches[-1]
    assert (run.progress.totals.batches, run.progress.totals.rows_in) == (SOME - 1, sum(range(SOME)))
    read = run.progress.read()
    assert [one.batch for one in read] == list(range(1, SOME))
    assert read[10].changes == ()
    assert read[9].changes == ("agg: x (by the state protocol)",)
    assert len(run.read_batches()) == SOME - 1


def test_what_earlier_runs_did_is_history_but_not_the_progress_of_this_one(tmp_path: Path) -> None:
    earlier = Run(open_store(tmp_path), 1)
    for number in range(WINDOW_BATCHES + 1):
        earlier.add(batch(number))
    later = Run(open_store(tmp_path), 2)
    later.add(batch(WINDOW_BATCHES + 1))
    assert [progress.batch for progress in later.progress.read()] == [WINDOW_BATCHES + 1]
    assert [progress.batch for progress in earlier.progress.read()] == list(range(WINDOW_BATCHES + 1))
    assert len(later.read_batches()) == WINDOW_BATCHES + 2
