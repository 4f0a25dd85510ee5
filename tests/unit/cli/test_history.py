"""``anabranch history``: what happened, as lines for people and as JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import anabranch as ab
from anabranch.cli import history as command
from anabranch.cli.app import app
from anabranch.model.events import (
    BatchEvent,
    DecisionEvent,
    EffectEvent,
    FailureEvent,
    RecoveryEvent,
    RouteDelta,
    StartEvent,
)
from anabranch.model.moves import PlanCosts
from anabranch.state import open_store
from anabranch.state.event_log import EventLog
from unit.cli.builders import batch

BEGIN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
DECISION = DecisionEvent(
    batch=2,
    operator="per-sensor",
    action="split",
    sender="balancer",
    reason="the busiest slot has 2.000 × its share",
    protocol="state",
    costs=asdict(PlanCosts(0.002, 3, 1_200.0, 400.0)),
    imbalance_before=2.0,
    imbalance_expected=1.02,
    change=RouteDelta(4, 4, split_keys=1),
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two runs of three batches: the first decides, the second has trouble."""
    store = open_store(tmp_path / "state")
    log = EventLog(store, 1, lambda: None)
    log.add([StartEvent("here", 17, "0.1.0")], BEGIN)
    log.add([BatchEvent(batch(0, rows_in=1_000)), BatchEvent(batch(1, rows_in=1_001))], BEGIN + 10)
    log.add([DECISION, replayless(2)], BEGIN + 20)
    log = EventLog(store, 2, lambda: None)
    log.add([StartEvent("here", 18, "0.1.0", 2)], BEGIN + 60)
    log.add(
        [FailureEvent("out of memory\n  and so on", 3, 1), RecoveryEvent("attempts", "try 2 did it", 3)], BEGIN + 70
    )
    log.add([EffectEvent(3, "per-sensor", 3, 1.05, 900), BatchEvent(batch(3))], BEGIN + 80)
    return tmp_path / "state"


def replayless(number: int) -> BatchEvent:
    return BatchEvent(batch(number), {"entry": number - 1}, {"entry": number})


def invoke(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "250", "NO_COLOR": "1"})
    return runner.invoke(app, ["history", *map(str, arguments)])


def test_each_event_is_a_line_with_its_time_batch_and_kind(checkpoint: Path) -> None:
    outcome = invoke(checkpoint)
    assert outcome.exit_code == 0, outcome.output
    header, *lines = outcome.stdout.splitlines()
    assert header.split() == ["when", "batch", "kind", "what"]
    assert [line[35:43].strip() for line in lines] == (
        ["start", "batch", "batch", "decision", "batch", "start", "failure", "recovery", "effect", "batch"]
    )
    assert lines[1].startswith("2026-01-01 00:00:10Z")
    assert "1,000 rows in, 120 out" in lines[1]
    assert "balancer, split: per-sensor: the busiest slot" in lines[3]
    assert "max/mean was 2.000, 1.020 expected; planned in 2.0 ms, 3 table rows, 1,200 bytes to move" in lines[3]
    assert "try 1: out of memory" in lines[6] and "and so on" not in lines[6]
    assert "decision 3 gave max/mean 1.050, 900 bytes of state were handed over" in lines[8]


def test_the_newest_are_shown_unless_a_beginning_is_said(checkpoint: Path) -> None:
    assert len(invoke(checkpoint, "--last", 2).stdout.splitlines()) == 3
    assert len(invoke(checkpoint, "--last", 2, "--since", "2026-01-01T00:01:00").stdout.splitlines()) == 6
    assert len(invoke(checkpoint, "--since", "3").stdout.splitlines()) == 5
    assert invoke(checkpoint, "--since", "1m").exit_code == 1


def test_kinds_are_chosen_and_json_has_all_that_is_known(checkpoint: Path) -> None:
    outcome = invoke(checkpoint, "--kind", "decision", "--kind", "effect", "--json")
    decision, effect = map(json.loads, outcome.stdout.splitlines())
    assert decision["sender"] == "balancer"
    assert decision["costs"] == {"planning_seconds": 0.002, "table_rows": 3, "moved_bytes": 1200.0, "split_load": 400.0}
    assert (effect["decision"], effect["imbalance"]) == (decision["number"], 1.05)


def test_who_follows_sees_what_comes(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            EventLog(open_store(checkpoint), 3, lambda: None).add([BatchEvent(batch(4)), BatchEvent(batch(5))], BEGIN)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    outcome = invoke(checkpoint, "--last", 1, "--follow")
    assert outcome.exit_code == 130
    assert [line.split()[2] for line in outcome.stdout.splitlines()[1:]] == ["3", "4", "5"]


def test_what_is_not_there_is_said(checkpoint: Path, tmp_path: Path) -> None:
    outcome = invoke(tmp_path / "nowhere")
    assert (outcome.exit_code, "there is no checkpoint" in outcome.stderr) == (1, True)
    assert not (tmp_path / "nowhere").exists()
    assert "no kind 'batches'" in invoke(checkpoint, "--kind", "batches").stderr
    assert "no such events" in invoke(checkpoint, "--kind", "stop").stderr
    assert "'10m', or a batch's number" in invoke(checkpoint, "--since", "yesterday").stderr


def test_frames_have_all_that_events_of_a_kind_say(checkpoint: Path) -> None:
    every = ab.history(checkpoint)
    assert every["number"].to_list() == list(range(10))
    assert every.schema["at"] == pl.Datetime("us", "UTC")
    (decision,) = ab.history(checkpoint, kind="decision").rows(named=True)
    assert (decision["imbalance_before"], decision["imbalance_expected"]) == (2.0, 1.02)
    assert (decision["imbalance_after"], decision["carried_out"]) == (1.05, True)
    assert (decision["planning_seconds"], decision["moved_bytes"], decision["split_keys"]) == (0.002, 1_200.0, 1)
    batches = ab.history(checkpoint, kind="batch")
    assert batches["job_seconds"].to_list() == [0.4] * 4
    assert batches["changes"].to_list()[2] == [
        "per-sensor: the busiest slot has 2.000 × its share (by the state protocol)"
    ]
    assert batches["end_offset"].to_list()[2] == '{"entry": 2}'
    assert ab.history(checkpoint, kind="failure", since=4).is_empty()
    assert ab.history(checkpoint, kind="span").columns[:3] == ["number", "epoch", "at"]
    with pytest.raises(ab.FlowError, match="no kind 'batches'"):
        ab.history(checkpoint, kind="batches")  # type: ignore[arg-type]
