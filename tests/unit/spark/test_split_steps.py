"""Which sources bring splits into the next entry of the split log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.engine.batches.outer_rows import refuse_to_hold, refuse_to_limit
from anabranch.engine.batches.split_steps import SplitSteps, StepRequest
from anabranch.errors import FlowError
from anabranch.model import Hold, PlannedSplits
from anabranch.spark.split_source import ControlFolder
from anabranch.state import open_store
from anabranch.state.split_log import LogEntry, SplitLog


@dataclass
class Numbers:
    """Has one split a step, so many times."""

    count: int

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        done = (position or {}).get("done", 0)
        if done == self.count:
            return PlannedSplits((), position or {})
        return PlannedSplits(({"n": done},), {"done": done + 1})

    def bound(self) -> None:
        pass

    def more(self, position: dict[str, Any] | None) -> bool:
        return (position or {}).get("done", 0) < self.count


class Planned:
    """Steps of sources with so many splits each."""

    def __init__(self, folder: Path, *counts: int, drain: bool = False) -> None:
        self.log = SplitLog(open_store(folder))
        self.steps = SplitSteps(
            self.log, {number: Numbers(count) for number, count in enumerate(counts)}, drain_at_end=drain
        )
        self.last = -1

    def step(self, *holds: Hold, now: float = 0.0, **request: Any) -> list[int] | None:
        """Return the sources of the next entry; None if there is none."""
        number = self.steps.next_after(self.last, StepRequest(holds=holds, **request), now)
        if number == self.last:
            return None
        self.last = number
        return [source for source, _ in self.entry.splits]

    @property
    def entry(self) -> LogEntry:
        return self.log.load(self.last)


def hold(source: int, *waits_for: int, until: float = 10.0) -> Hold:
    return Hold(source, waits_for, 1, int(until * 1e6))


def test_a_source_that_is_held_back_brings_nothing_until_its_time_is_over(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 9, 2)
    assert planned.step() == [0, 1]
    assert planned.step(hold(0, 1)) == [1]
    assert planned.entry.positions == {"0": {"done": 1}, "1": {"done": 2}}
    assert planned.step(hold(0, 1), now=9.9) is None
    assert planned.step(hold(0, 1), now=10.0) == [0]
    assert planned.step() == [0]


def test_before_the_end_it_waits_only_as_long_as_the_other_has_something(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 2, 2, drain=True)
    planned.steps.bound()
    assert [planned.step(hold(0, 1), now=99.0) for _ in range(4)] == [[1], [1], [0], [0]]
    assert planned.step(hold(0, 1)) == []
    assert planned.entry.drain


def test_before_a_drain_everything_is_read(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 1, 0)
    assert planned.step(hold(0, 1)) is None
    assert planned.step(hold(0, 1), drain=True) == [0]
    assert planned.step(hold(0, 1), drain=True) == []
    assert planned.entry.drain


def test_a_tick_comes_also_while_all_wait(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 1, 0)
    assert planned.step(hold(0, 1), tick_after=-1) == []


def test_entries_of_every_kind_say_when_they_were_planned(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 1)
    assert planned.step(now=5.0) == [0]
    assert planned.entry.planned_at == 5.0
    assert planned.step(now=7.5, tick_after=0) == []
    assert planned.entry.planned_at == 7.5
    assert planned.step(now=9.0, drain=True) == []
    assert planned.entry.planned_at == 9.0
    # What was planned by an earlier run was planned then.
    planned.last = -1
    planned.step(now=99.0)
    assert planned.entry.planned_at == 5.0


def test_sources_that_wait_for_each_other_do_not_stand_still(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 2, 2)
    planned.steps.bound()
    circle = (hold(1, 0), hold(0, 1))
    assert [planned.step(*circle) for _ in range(5)] == [[1], [1], [0], [0], None]


def test_of_sources_in_a_row_the_slowest_is_let_go_first(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 1, 1, 1)
    planned.steps.bound()
    # The first waits for the second, and that for the third.
    row = (hold(1, 2), hold(0, 1))
    assert [planned.step(*row) for _ in range(4)] == [[2], [1], [0], None]


def test_an_entry_that_was_planned_stands_whoever_waits_now(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 2, 2)
    assert planned.step() == [0, 1]
    planned.last = -1
    assert planned.step(hold(0, 1)) == [0, 1]


def test_splits_are_in_the_order_of_their_sources_whoever_waited(tmp_path: Path) -> None:
    planned = Planned(tmp_path, 1, 1)
    assert planned.step(hold(0, 1), now=10.0) == [0, 1]


@pytest.mark.parametrize("holds", [(), (hold(0, 1, 2), hold(3, 1))])
def test_the_process_that_plans_is_told_who_waits(tmp_path: Path, holds: tuple[Hold, ...]) -> None:
    request = StepRequest(3, drain=True, holds=holds, max_rows=7 if holds else None)
    ControlFolder(str(tmp_path)).ask(request)
    assert ControlFolder(str(tmp_path)).request() == request


@dataclass
class Limited:
    """Has so many rows, and gives as many of them in a step as it may."""

    count: int
    most: int | None = None

    def limit_rows(self, rows: int | None) -> None:
        self.most = rows

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> PlannedSplits:
        done = (position or {}).get("done", 0)
        rows = min(self.count - done, self.count if self.most is None else self.most)
        splits = ({"rows": rows},) if rows else ()
        return PlannedSplits(splits, {"done": done + rows}, rows=rows, left_rows=self.count - done - rows)

    def bound(self) -> None:
        pass

    def more(self, position: dict[str, Any] | None) -> bool:
        return (position or {}).get("done", 0) < self.count


class Shared:
    """Steps of sources that share what is admitted."""

    def __init__(self, folder: Path, *sources: Any) -> None:
        self.log = SplitLog(open_store(folder))
        self.steps = SplitSteps(self.log, dict(enumerate(sources)), drain_at_end=False)
        self.last = -1

    def step(self, rows: int | None, *holds: Hold) -> dict[int, int]:
        """Return the rows of each source in the next entry."""
        self.last = self.steps.next_after(self.last, StepRequest(holds=holds, max_rows=rows), 0.0)
        return {source: split.get("rows", -1) for source, split in self.log.load(self.last).splits}

    @property
    def waiting_rows(self) -> int | None:
        return self.log.load(self.last).waiting_rows


def test_sources_share_what_is_admitted_and_who_has_little_leaves_the_rest_to_others(tmp_path: Path) -> None:
    shared = Shared(tmp_path, Limited(500), Limited(60), Limited(40))
    assert shared.step(120) == {0: 40, 1: 40, 2: 40}
    assert shared.waiting_rows == 460 + 20
    # The last one had none left, so it is asked first, and what it leaves goes to the others.
    assert shared.step(120) == {0: 60, 1: 20}
    assert shared.step(120) == {0: 120}
    assert shared.step(None) == {0: 280}
    assert shared.waiting_rows == 0


def test_a_tick_says_that_nothing_waits_unless_nobody_was_asked(tmp_path: Path) -> None:
    shared = Shared(tmp_path, Limited(5), Limited(0))
    assert shared.step(None) == {0: 5}
    shared.last = shared.steps.next_after(shared.last, StepRequest(shared.last), 0.0)
    assert shared.waiting_rows == 0
    shared.last = shared.steps.next_after(shared.last, StepRequest(shared.last, holds=(hold(0), hold(1))), 0.0)
    assert shared.waiting_rows is None


def test_a_source_that_waits_leaves_its_share_to_others(tmp_path: Path) -> None:
    shared = Shared(tmp_path, Limited(500), Limited(500))
    assert shared.step(100, hold(1, 0)) == {0: 100}


def test_every_source_may_bring_a_row_however_little_is_admitted(tmp_path: Path) -> None:
    shared = Shared(tmp_path, Limited(5), Limited(5), Limited(5))
    assert shared.step(1) == {0: 1, 1: 1, 2: 1}


def test_a_source_that_cannot_be_limited_brings_what_it_has_and_nobody_knows_what_waits(tmp_path: Path) -> None:
    shared = Shared(tmp_path, Numbers(2), Limited(50))
    assert shared.step(20) == {0: -1, 1: 10}
    assert shared.waiting_rows is None


def test_a_flow_of_which_spark_reads_everything_has_no_target_for_latency() -> None:
    sources: Any = {0: Outer(), 1: Outer()}
    with pytest.raises(FlowError, match="Spark alone says how large"):
        refuse_to_limit(sources)
    refuse_to_limit({**sources, 2: Numbers(1)})


@dataclass(frozen=True)
class Outer:
    """A source that Spark reads itself."""

    streaming: bool = True
    label: str = "Spark stream (key)"


def test_what_spark_reads_itself_cannot_be_held_back_and_is_refused() -> None:
    sources: Any = {0: Outer(), 1: Numbers(1)}
    refuse_to_hold(sources, {1})
    with pytest.raises(FlowError, match=r"Spark stream \(key\): align holds a source back .* cannot be held back"):
        refuse_to_hold(sources, {0, 1})
