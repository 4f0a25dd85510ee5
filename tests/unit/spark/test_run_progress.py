"""A run of any length takes the memory of its window, and knows of every batch."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

import pytest

from anabranch.engine.progress import WINDOW_BATCHES, RunProgress
from anabranch.state import open_store
from unit.cli.builders import batch

MANY = 10_000
SOME = 2 * WINDOW_BATCHES


@pytest.fixture(params=["local", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunProgress:
    store = open_store(tmp_path / "c" if request.param == "local" else f"memory://{tmp_path}/c")
    return RunProgress(store, epoch=4, kept_records=MANY, wall_clock=lambda: 1_000.0)


def measure(run: RunProgress) -> tuple[int, int]:
    """Return how many objects can be reached from a run, and their bytes; code and classes are not its own."""
    seen: dict[int, object] = {}
    found: list[object] = [run]
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType | FunctionType | BuiltinFunctionType):
            seen[id(one)] = one
            found += gc.get_referents(one)
    return len(seen), sum(map(sys.getsizeof, seen.values()))


def test_memory_does_not_grow_with_the_batches_of_a_run(run: RunProgress) -> None:
    seen = []
    for number in range(MANY):
        run.add(batch(number, problems=(f"problem of batch {number:05}",), phase_seconds={"job": number / 7}))
        if number + 1 in (SOME, MANY):
            run.flush()
            seen.append(measure(run))
    (some, some_bytes), (many, many_bytes) = seen
    assert WINDOW_BATCHES < many <= some + 200, "a file of records has a name"
    assert many_bytes < 1.1 * some_bytes


def test_every_batch_is_in_the_totals_and_can_be_read_again(run: RunProgress) -> None:
    batches = [batch(number, rows_in=number, slot_rows=(1, number)) for number in range(SOME)]
    for progress in batches:
        run.add(progress)
    assert run.window == batches[-WINDOW_BATCHES:]
    assert run.latest == batches[-1]
    assert (run.totals.batches, run.totals.rows_in) == (SOME, sum(range(SOME)))
    assert run.totals.slot_rows == (SOME, sum(range(SOME)))
    assert run.read() == batches
    assert [record.progress for record in run.read_records()] == batches


def test_what_earlier_runs_did_is_history_but_not_the_progress_of_this_one(tmp_path: Path) -> None:
    earlier, later = (RunProgress(open_store(tmp_path), epoch, MANY, lambda: 5.0) for epoch in (1, 2))
    for number in range(WINDOW_BATCHES + 1):
        earlier.add(batch(number))
    later.add(batch(WINDOW_BATCHES + 1))
    assert [progress.batch for progress in later.read()] == [WINDOW_BATCHES + 1]
    assert [progress.batch for progress in earlier.read()] == list(range(WINDOW_BATCHES + 1))
    assert len(list(later.read_records())) == WINDOW_BATCHES + 2
