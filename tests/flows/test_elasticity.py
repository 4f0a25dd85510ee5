"""A flow whose executors follow its load: asked for, given slots, freed of them, let go; answers stay as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.control.rebalancer import Rebalancer
from anabranch.engine.batches import cluster_readings
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.errors import AnabranchError, EngineError, FlowError
from anabranch.model import BatchProgress
from anabranch.model.cluster import Cluster, Executor, ReleaseWait
from anabranch.model.measures import BatchMeasures, TaskMeasure
from anabranch.placement.elasticity import ClusterReading, read_cluster
from flows import played_executors
from flows.played_executors import PlayedExecutors
from property_tests import tries

SECONDS = 30.0
"""Between batches, by the clock of the test."""
RATE = 1_000
"""Rows a second that come whatever happens."""
ROWS = 60
"""That keep one core of the two that an executor has busy."""
QUICK = ab.Elasticity(max_executors=4, samples_down=3, seconds_down=60.0, cool_down_seconds=60.0)
LOADS = (1, 1, 1, *[4] * 10, *[1] * 12)
FIRST_HIGH, FIRST_LOW = 3, 13
SCHEMA: dict[str, pl.DataType] = {"key": pl.Int64(), "value": pl.Int64()}


def _read_played(tasks: Any, executors: Sequence[Executor], *, rows: int, **given: Any) -> ClusterReading:
    """Read a cluster on which a row takes as long as the test says, the same part of it on every executor."""
    cpu_seconds = rows * SECONDS / ROWS / len(executors)
    played = [TaskMeasure(1, slot, one.id, one.host, cpu_seconds, 0.0, 0) for slot, one in enumerate(executors)]
    # All frames are there from the beginning, so the source says that nothing comes and much waits.
    coming = {"offered_rows_per_second": rows / SECONDS, "waiting_rows": 0}
    return read_cluster(played, executors, rows=rows, **given | coming)


@dataclass
class Stage:
    """A flow of two levels, a batch at a time, under a load and by a clock that a test plays."""

    folder: Path
    loads: Sequence[int] = LOADS
    executors: PlayedExecutors = field(default_factory=lambda: PlayedExecutors(1))
    now: float = 1_000.0
    slots: list[tuple[int, ...]] = field(default_factory=list)
    """By batch, those of both levels."""
    homes: list[set[str]] = field(default_factory=list)
    """By batch, the executors on which slots were to run."""

    def open(self, elasticity: Any = QUICK, **settings: Any) -> LocalRun:
        frames = [
            pl.DataFrame({"key": [row % 23 for row in range(ROWS * load)], "value": range(ROWS * load)})
            for load in self.loads
        ]
        self.sink = ab.to_memory(self.folder / "results")
        flow = ab.Flow("elastic")
        rows = flow.read(ab.memory(*frames, schema=SCHEMA, max_frames=1)).key_by("key")
        sums = rows.agg(total=ab.sum("value"), name="first").with_columns(group=pl.col("key") % 5)
        sums.key_by("group").agg(seen=ab.count(), most=ab.max("total"), name="second").write(self.sink)
        checked = make_settings(checkpoint=str(self.folder / "state"), elasticity=elasticity, **settings)
        return LocalRun(flow, checked, clock=lambda: self.now, executors=self.executors)

    def step(self, run: LocalRun) -> None:
        self.now += SECONDS
        run.step()
        latest = run.run.checkpoint.latest()
        assert latest is not None
        self.slots.append(tuple(len(level.runs) for level in latest.levels))
        self.homes.append(set(latest.engine.homes.executors.values()))

    def run(self, **settings: Any) -> None:
        run = self.open(**settings)
        for _ in self.loads:
            self.step(run)
        self.shown = run.run.submit(Command("1", "show")).data["elasticity"]
        run.close()

    def decisions(self, *actions: str) -> list[tuple[int, str, str]]:
        told = ab.history(str(self.folder / "state"), kind="decision").filter(pl.col("action").is_in(actions))
        return told.select("batch", "action", "sender").unique(maintain_order=True).rows()

    def answers(self) -> pl.DataFrame:
        return self.sink.frame().sort(pl.all())


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(cluster_readings, "read_cluster", _read_played)
    return Stage(tmp_path)


def test_executors_and_slots_follow_the_load_in_one_step_each_way(stage: Stage) -> None:
    stage.run()
    assert stage.executors.asked == ["request 4", "decommission 1 2 3"]
    (provisioned, offloaded, released) = stage.decisions("provision", "offload", "release", "keep")
    assert provisioned[1:] == ("provision", "elasticity") and provisioned[0] <= FIRST_HIGH + 2
    assert offloaded[1:] == ("offload", "elasticity") and offloaded[0] > FIRST_LOW
    assert released == (offloaded[0] + 1, "release", "elasticity")
    resized = stage.decisions("resize")
    assert [sender for _, _, sender in resized] == ["elasticity", "elasticity"]
    assert stage.slots[FIRST_HIGH] == (2, 2) and stage.slots[FIRST_LOW] == (8, 8) and stage.slots[-1] == (2, 2)
    assert stage.homes[FIRST_LOW] == {"0", "1", "2", "3"}
    # Slots leave before the executors do.
    assert stage.homes[offloaded[0]] == {"0", "1", "2", "3"} and stage.homes[released[0]] == {"0"}
    assert stage.shown["wanted"] == 1 and stage.shown["reconfigurations"] == 2
    assert stage.shown["utilisation"] == pytest.approx(0.5)


def test_executors_that_are_not_wanted_any_more_before_they_came_are_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(played_executors, "LOOKS_TO_COME", 1_000)
    stage.loads = (1, 1, *[4] * 3, *[1] * 8)
    stage.run()
    assert stage.executors.asked == ["request 4", "request 1"]
    told = ab.history(str(stage.folder / "state"), kind="decision").filter(pl.col("operator") == "executors")
    assert told.select("action", "sender", "executors", "carried_out").rows() == [
        ("provision", "elasticity", 4, True),
        ("request", "elasticity", 1, True),
    ]
    assert told["reason"][1].startswith("1 in all: ") and "less than 40% for long" in told["reason"][1]
    # Those that were asked for never had slots, so that nothing can be said of them; of the one that stayed, it can.
    assert told["utilisation_after"].to_list() == [None, pytest.approx(0.5)]


def test_decisions_about_executors_are_told_with_how_busy_these_were_before_and_after(stage: Stage) -> None:
    stage.run()
    state = str(stage.folder / "state")
    told = ab.history(state, kind="decision").filter(pl.col("operator") == "executors")
    columns = ("action", "executors", "utilisation_before", "utilisation_after")
    assert told.select(columns).rows() == [
        ("provision", 4, pytest.approx(2.0), pytest.approx(0.5)),
        ("offload", 1, pytest.approx(0.125), pytest.approx(0.5)),
        ("release", 1, pytest.approx(0.5), pytest.approx(0.5)),
    ]
    # What executors are good for is seen once they have slots: they come two batches later, and warm up.
    effects = ab.history(state, kind="effect").filter(pl.col("operator") == "executors")
    ((provisioned, _, _),) = stage.decisions("provision")
    assert effects["batch"][0] > provisioned + played_executors.LOOKS_TO_COME
    assert stage.homes[effects["batch"][0]] == {"0", "1", "2", "3"}
    lines = ab.history(state)["text"].to_list()
    assert any(line.endswith("made executors 50% busy, from 200%") for line in lines)
    # A run that goes on knows of them, and awaits nothing.
    stage.open(takeover=True).close()
    assert ab.history(state, kind="effect").filter(pl.col("operator") == "executors").height == 3


def test_homes_are_told_with_the_state_that_moves(stage: Stage) -> None:
    stage.run()
    told = ab.history(str(stage.folder / "state"), kind="decision").filter(pl.col("action") == "home")
    (offloaded, *_) = (batch for batch, _, _ in stage.decisions("offload"))
    moved = dict(told.group_by("batch").agg(pl.col("moved_bytes").sum()).rows())
    assert moved[0] == 0, "slots that had no home yet take no state along"
    assert moved[offloaded + 1] > 0
    # The state of a slot is told once, though two operators may share it.
    assert all(value is not None for value in told["moved_bytes"])


def test_slots_grow_once_all_executors_are_there(stage: Stage) -> None:
    stage.run()
    ((resized, _, _), _) = stage.decisions("resize")
    ((provisioned, _, _),) = stage.decisions("provision")
    assert resized > provisioned + 2
    assert stage.homes[resized] >= {"0", "1"}


def test_answers_are_those_of_a_flow_that_never_changes(stage: Stage, tmp_path: Path) -> None:
    stage.run()
    still = Stage(tmp_path / "still")
    still.run(elasticity=None)
    assert stage.answers().equals(still.answers())
    assert still.executors.asked == [] and still.shown is None
    assert set(still.slots) == {(2, 2)}
    assert still.decisions("provision", "offload", "release", "resize") == []


def test_load_that_comes_back_keeps_executors_that_were_to_go(stage: Stage) -> None:
    stage.loads = (1, 1, 1, *[4] * 8, *[1] * 3, *[4] * 6)
    stage.run()
    assert "keep" in [action for _, action, _ in stage.decisions("offload", "keep", "release")]
    assert "release" not in [action for _, action, _ in stage.decisions("release")]
    assert stage.executors.asked == ["request 4"]
    assert stage.homes[-1] == {"0", "1", "2", "3"} and stage.slots[-1] == (8, 8)


def test_a_cluster_that_refuses_is_asked_again_after_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(total: int) -> None:
        asked.append(total)
        msg = "no room"
        raise EngineError(msg)

    monkeypatch.setattr(stage.executors, "request", refuse)
    stage.loads = (1, 1, *[4] * 12)
    stage.run()
    assert len(asked) >= 2 and set(asked) == {4}
    assert set(stage.slots) == {(2, 2)}


def test_a_restart_begins_anew_from_the_executors_that_are_there(stage: Stage) -> None:
    run = stage.open()
    for _ in range(FIRST_LOW):
        stage.step(run)
    run.close()
    run = stage.open(takeover=True)
    shown = run.run.submit(Command("1", "show")).data["elasticity"]
    assert shown["wanted"] is None
    stage.step(run)
    assert stage.slots[-1] == (8, 8)
    run.close()


@pytest.mark.parametrize("obstacle", ["spark.dynamicAllocation.enabled is true; set it to false", "local mode"])
def test_a_cluster_that_cannot_change_is_refused_at_the_start_with_the_reason(stage: Stage, obstacle: str) -> None:
    stage.executors.describe = lambda: Cluster("played", obstacles=(obstacle,))  # type: ignore[method-assign]
    with pytest.raises(AnabranchError, match=f"neither added nor released: {obstacle}"):
        stage.open()
    # The checkpoint is free again.
    stage.open(elasticity=None).close()


def test_read_tasks_follow_executors_where_a_number_is_said_for_each(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.engine import flow_run

    pack, tasks = flow_run.pack, []

    def spy(entries: Any, count: int, levels: Any) -> Any:
        tasks.append(count)
        return pack(entries, count, levels)

    monkeypatch.setattr(flow_run, "pack", spy)
    stage.loads = (1, 1)
    stage.executors = PlayedExecutors(3)
    stage.run(elasticity=ab.Elasticity(max_executors=4, slots_per_executor=5))
    assert tasks == [15, 15]


def _progress(rows: int, waiting_rows: int | None = None, **others: Any) -> BatchProgress:
    plain = dict.fromkeys(("batch", "rows_out", "late_rows", "dead_rows", "state_rows", "state_bytes"), 0)
    told: dict[str, Any] = {"watermark_us": None, "slot_rows": (), "slot_seconds": (), "exchanged_bytes": 0}
    given = {"rows_in": rows, "batch_seconds": 1.0, "waiting_rows": waiting_rows, "measures": BatchMeasures()}
    return BatchProgress(**{**plain, **told, **given, **others})


@pytest.mark.parametrize(("waiting", "rate"), [((None, None), 20.0), ((100, 400), 50.0)])
def test_what_comes_is_told_by_sources_or_by_what_was_read_between_two_triggers(
    waiting: tuple[int | None, int | None], rate: float
) -> None:
    readings = cluster_readings.ClusterReadings()
    told = {"measures": (), "held_bytes": 7, "now_seconds": 99.0, "wait": ReleaseWait()}
    assert readings.read(_progress(50, waiting[0]), (), planned_at=0.0, **told) is None, "its processes start"
    reading = readings.read(_progress(200, waiting[1]), (), planned_at=10.0, **told)
    assert reading is not None
    assert reading.offered_rows_per_second == rate
    assert (reading.waiting_rows, reading.held_bytes, reading.now_seconds) == (waiting[1] or 0, 7, 99.0)


@pytest.mark.parametrize("others", [{"replayed": True, "measures": None}, {"drained": True}])
def test_batches_that_say_nothing_of_the_load_are_no_reading(others: dict[str, Any]) -> None:
    readings = cluster_readings.ClusterReadings()
    told = {"measures": (), "held_bytes": 0, "now_seconds": 0.0, "wait": ReleaseWait()}
    readings.read(_progress(50), (), planned_at=0.0, **told)
    assert readings.read(_progress(50, **others), (), planned_at=10.0, **told) is None
    assert readings.read(_progress(50), (), planned_at=20.0, **told) is not None


class LatePlanner:
    """Plans of a source that take their time, once it has been asked what there is."""

    def __init__(self, planner: Any, take_time: Callable[[], None]) -> None:
        self._planner, self._take_time = planner, take_time

    def plan(self, position: dict[str, Any] | None, now_seconds: float) -> Any:
        planned = self._planner.plan(position, now_seconds)
        self._take_time()
        return planned


@tries(12)
@given(
    gaps=st.lists(st.floats(0.5, 20.0), min_size=3, max_size=6),
    delays=st.lists(st.floats(0.0, 7.0), min_size=6, max_size=6),
    most=st.sampled_from([500, 3_000, 1_000_000]),
)
@example(gaps=[3.0] * 6, delays=[7.0, 0.0] * 3, most=1_000_000)
def test_what_comes_is_told_right_however_late_batches_are_planned(
    gaps: list[float], delays: list[float], most: int
) -> None:
    now, late, seen = 1_000.0, list(delays), []

    def take_time() -> None:
        nonlocal now
        now += late.pop(0)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patches:
        patches.setattr(Rebalancer, "see_cluster", lambda _, reading: seen.append(reading))
        flow = ab.Flow("late")
        rows = flow.read(ab.generate(RATE, keys=3, max_rows=most)).key_by("key")
        rows.agg(rows=ab.count()).write(ab.to_memory(f"{folder}/results"))
        settings = make_settings(checkpoint=f"{folder}/state", elasticity=QUICK, slots=1, read_tasks=1)
        run = LocalRun(flow, settings, clock=lambda: now, executors=PlayedExecutors(1))
        run._steps._planners[0] = LatePlanner(run._steps._planners[0], take_time)  # type: ignore[assignment]
        for gap in gaps:
            now += gap
            run.step()
        run.close()
    assert len(seen) == len(gaps) - 1, "the first batch says nothing"
    for reading in seen:
        assert reading.offered_rows_per_second == pytest.approx(RATE, rel=0.02)


def test_settings_come_by_name_as_files_give_them() -> None:
    given = make_settings(checkpoint="state", elasticity={"min_executors": 2, "max_executors": "4", "target": "0.5"})
    assert given.elasticity == ab.Elasticity(min_executors=2, max_executors=4, target=0.5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_executor": 4}, "there is no setting 'max_executor'; .*max_executors"),
        ({"max_executors": 4.5}, "max_executors is 4.5; give a whole number"),
        ({"target": "much"}, "target is 'much'; give a number"),
        ({"min_executors": 3, "max_executors": 2}, "min_executors is 3 and max_executors 2"),
        (4, "elasticity: "),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_to_give(given: Any, words: str) -> None:
    with pytest.raises(FlowError, match=words):
        make_settings(checkpoint="state", elasticity=given)


def test_slots_that_run_anywhere_cannot_leave_an_executor() -> None:
    with pytest.raises(FlowError, match="anchors=False lets them run anywhere"):
        make_settings(checkpoint="state", elasticity=ab.Elasticity(), anchors=False)


def test_a_flow_whose_source_falls_silent_gives_its_executors_back(stage: Stage) -> None:
    stage.loads = (1, 1, *[4] * 6)
    run = stage.open()
    for _ in stage.loads:
        stage.step(run)
    assert stage.homes[-1] == {"0", "1", "2", "3"}
    silent = 0
    while stage.executors.asked[-1] != "decommission 1 2 3":
        wake_us = run.wake_us
        assert wake_us is not None, "a batch is wanted though nothing comes"
        stage.now = max(stage.now, wake_us / 1e6)
        assert run.step() is not None
        silent += 1
        assert silent < 10
    # Who has no more than it must has nothing to look for.
    assert run.step(tick=True) is not None
    assert run.wake_us is None and run.step() is None
    run.close()
