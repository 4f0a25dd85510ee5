"""The history of a flow tells every batch and every decision once, whatever becomes of its drivers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import anabranch as ab
from anabranch.control.commands import Command
from anabranch.engine.batches.jobs import JobFailed
from anabranch.engine.batches.local_jobs import LocalJobs
from anabranch.engine.faults import MOMENTS, Killed
from anabranch.engine.local_run import LocalRun
from anabranch.engine.settings import make_settings
from anabranch.model.events import BatchEvent, DecisionEvent, StartEvent
from anabranch.state import open_store
from anabranch.state.event_files import read_history
from anabranch.testing import FlowTester
from flows.random_flows import SCHEMA, make_random_flow
from flows.running import LocalBench, frames_of
from flows.test_alignment import TwoSpeeds
from flows.test_fault_points import SEED, Runs

HOT, OTHERS = 7, 40


def carried_out(checkpoint: Path) -> list[Any]:
    """Return the decisions about routes that took effect, in their order."""
    records = list(read_history(open_store(checkpoint)))
    undone = {number for one in records if isinstance(one.event, StartEvent) for number in one.event.undone}
    return [
        (one.event.batch, one.event.operator, one.event.action, one.event.change)
        for one in records
        if isinstance(one.event, DecisionEvent) and one.event.protocol and one.number not in undone
    ]


def count_batches(checkpoint: Path) -> Counter[int]:
    records = read_history(open_store(checkpoint))
    return Counter(one.event.batch for one in records if isinstance(one.event, BatchEvent))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    case = make_random_flow("running", SEED)
    runs = Runs(
        case, ab.memory(*frames_of(case.batches(), SCHEMA), max_frames=1), tmp_path_factory.mktemp("undisturbed")
    )
    runs.finish()
    assert len(carried_out(runs.folder / "state")) > 2
    return runs


@pytest.mark.parametrize("moment", MOMENTS)
def test_drivers_killed_in_every_batch_tell_each_batch_and_each_decision_once(
    undisturbed: Runs, moment: str, tmp_path: Path
) -> None:
    expected, batches = carried_out(undisturbed.folder / "state"), count_batches(undisturbed.folder / "state")
    runs = replace(undisturbed, folder=tmp_path)
    for batch in sorted(batches):
        runs.kill(moment, batch)
    runs.finish()
    assert carried_out(tmp_path / "state") == expected
    assert count_batches(tmp_path / "state") == batches == dict.fromkeys(batches, 1)
    restarts = ab.history(tmp_path / "state", kind="recovery").filter(pl.col("action") == "restart")
    assert restarts.height == len(batches)


def make_flow() -> ab.Flow:
    flow = ab.Flow("skewed")
    rows = flow.read(ab.memory(pl.DataFrame({"key": [1]})))
    rows.key_by("key", balance=ab.Balance(fewest_rows_a_slot=1)).agg(rows=ab.count(), name="count").write(
        ab.to_memory()
    )
    return flow


def skewed(rows: int = 400) -> pl.DataFrame:
    """Return rows of which half are of one key."""
    return pl.DataFrame({"key": [HOT if number % 2 else number % OTHERS for number in range(rows)]})


def test_a_decision_is_told_with_its_sender_reason_costs_and_effect(tmp_path: Path) -> None:
    with FlowTester(make_flow, checkpoint=tmp_path, slots=4, local_merge=False) as tester:
        for _ in range(4):
            tester.add(skewed()).run()
    (decision, *_) = ab.history(tmp_path, kind="decision").rows(named=True)
    assert (decision["sender"], decision["operator"], decision["action"]) == ("balancer", "count", "split")
    assert "above" in decision["reason"] and decision["protocol"] == "state"
    assert decision["imbalance_before"] > 1.9
    assert decision["imbalance_expected"] == pytest.approx(decision["imbalance_after"], abs=0.05)
    assert decision["imbalance_after"] < 1.1
    assert decision["planning_seconds"] > 0
    assert decision["table_rows"] >= 2 and decision["split_load"] == 200 and decision["split_keys"] == 1


def test_a_restart_goes_on_waiting_for_what_came_of_a_decision(tmp_path: Path) -> None:
    with FlowTester(make_flow, checkpoint=tmp_path, slots=4, local_merge=False) as tester:
        tester.add(skewed()).run()
        tester.kill_at("after-manifest")
        with pytest.raises(Killed):
            tester.add(skewed()).run()
        tester.add(skewed()).run_all()
        tester.add(skewed()).run()
    (decision, *_) = ab.history(tmp_path, kind="decision").rows(named=True)
    assert (decision["batch"], decision["carried_out"]) == (1, True)
    assert decision["imbalance_after"] < 1.1
    assert ab.history(tmp_path, kind="recovery")["action"].to_list() == ["restart", "publish"]


def test_a_decision_whose_batch_was_not_committed_came_to_nothing(tmp_path: Path) -> None:
    with FlowTester(make_flow, checkpoint=tmp_path, slots=4) as tester:
        tester.add(skewed()).run()
        tester.move(3, 1)
        tester.kill_at("before-manifest")
        with pytest.raises(Killed):
            tester.add(skewed()).run()
        # What was wished for died with the driver.
        tester.run_all()
    told = ab.history(tmp_path, kind="decision")
    assert told.filter(pl.col("sender") == "ctl")["carried_out"].to_list() == [False]


def test_commands_of_people_and_settings_have_senders_of_their_own(tmp_path: Path) -> None:
    with FlowTester(make_flow, checkpoint=tmp_path, slots=2) as tester:
        tester.add(skewed()).run()
        tester.ctl("set", balance="off")
        tester.split(HOT, [0, 1])
        tester.add(skewed()).run()
        tester.merge(HOT)
        tester.tick()
        tester.ctl("slots", count=3)
        tester.tick()
    with FlowTester(make_flow, checkpoint=tmp_path, slots=5) as tester:
        tester.tick()
    told = ab.history(tmp_path, kind="decision")
    assert told.select("sender", "action").rows() == [
        ("ctl", "set"),
        ("ctl", "split"),
        ("ctl", "merge"),
        ("ctl", "resize"),
        ("resize", "resize"),
    ]
    assert told["slots_after"].to_list() == [None, 2, 2, 3, 5]
    assert told["moved_bytes"][1] is not None and told["planning_seconds"][1] is None


def test_sources_that_wait_for_others_are_told_when_they_begin_and_when_they_end(tmp_path: Path) -> None:
    bench = LocalBench(tmp_path)
    got = TwoSpeeds(60).run(bench, "2s", checkpoint=str(tmp_path / "state"))
    told = ab.history(tmp_path / "state", kind="decision").filter(pl.col("sender") == "alignment")
    held = [set(progress.held_back) for progress in got.progress]
    turns = [
        (progress.batch, source, "hold" if source in after else "release")
        for progress, before, after in zip(got.progress, [set[str](), *held], held, strict=False)
        for source in sorted(after ^ before)
    ]
    assert turns
    assert sorted(told.select("batch", "operator", "action").rows()) == sorted(turns)


def test_tries_of_a_job_and_what_ends_a_run_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([True, True, False, False, True, True, True])
    run = LocalJobs.run

    def fail_sometimes(self: LocalJobs, given: Any, spec: Any) -> Any:
        if next(failures, False):
            raise JobFailed("an executor was lost")
        return run(self, given, spec)

    monkeypatch.setattr(LocalJobs, "run", fail_sometimes)
    with FlowTester(make_flow, checkpoint=tmp_path, slots=2) as tester:
        tester.add(skewed()).run()
        tester.add(skewed()).run()
        with pytest.raises(ab.EngineError, match="failed 3 times"):
            tester.add(skewed()).run()
    failed = ab.history(tmp_path, kind="failure")
    assert failed.select("batch", "attempt", "ends_run").rows() == [
        (0, 1, False),
        (0, 2, False),
        (2, 1, False),
        (2, 2, False),
        (2, 3, False),
        (2, None, True),
    ]
    assert failed["reason"][0] == "an executor was lost"
    recovered = ab.history(tmp_path, kind="recovery")
    assert recovered.select("batch", "action", "reason").rows() == [(0, "attempts", "its job succeeded at try 3")]
    assert ab.history(tmp_path)["kind"].to_list()[-2:] == ["failure", "stop"]


def test_what_a_replaced_driver_does_is_no_part_of_the_history(tmp_path: Path) -> None:
    settings = make_settings(checkpoint=str(tmp_path / "state"), takeover=True)
    source = ab.memory(*[skewed(20)] * 4, max_frames=1)

    def open_run() -> LocalRun:
        flow = ab.Flow("replaced")
        flow.read(source).key_by("key").agg(rows=ab.count()).write(ab.to_memory())
        return LocalRun(flow, settings)

    old = open_run()
    old.step()
    new = open_run()
    before = ab.history(tmp_path / "state")
    with pytest.raises(ab.Fenced):
        old.step()
    old.close()
    assert ab.history(tmp_path / "state").equals(before)
    new.step()
    new.close()
    assert ab.history(tmp_path / "state", kind="batch").select("epoch", "batch").rows() == [(1, 0), (2, 1)]


def test_show_has_the_last_decisions_of_all_runs_with_what_came_of_them(tmp_path: Path) -> None:
    settings = make_settings(checkpoint=str(tmp_path / "state"), takeover=True, slots=4, local_merge=False)
    for _ in range(2):
        flow = ab.Flow("shown")
        rows = flow.read(ab.memory(*[skewed()] * 8, max_frames=1))
        rows.key_by("key", balance=ab.Balance(fewest_rows_a_slot=1)).agg(rows=ab.count()).write(ab.to_memory())
        run = LocalRun(flow, settings)
        for _ in range(4):
            run.step()
        shown = run.run.submit(Command("1", "show")).data["decisions"]
        run.close()
    assert shown[0]["epoch"] == 1
    assert shown[0]["imbalance_before"] > 1.9
    assert shown[0]["imbalance_after"] < 1.1
    assert [one["number"] for one in shown] == ab.history(tmp_path / "state", kind="decision")["number"].to_list()
