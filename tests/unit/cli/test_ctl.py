"""``anabranch ctl`` against a flow that is played by the test."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from anabranch.cli import choices
from anabranch.cli.ctl.words import BadWords, read_words
from anabranch.connectors.control_channels.checkpoint_files import FileChannel
from anabranch.control.command_texts import find_problem
from anabranch.control.commands import Action
from anabranch.state import Owner, open_store, take_epoch
from unit.cli.flows import write_flow
from unit.cli.played_flow import SHOWN, PlayedFlow, invoke, plain


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def flow(state: Path) -> Iterator[PlayedFlow]:
    store = open_store(state)
    played = PlayedFlow(FileChannel(store, take_epoch(store, Owner.this_process(), time.time).epoch, time.time()))
    yield played
    played.end()


@pytest.mark.parametrize(
    ("words", "action", "arguments"),
    [
        (["move", "sensor-17", "3"], "move", {"key": "sensor-17", "slot": 3}),
        (["split", "sensor-17", "0,3,5"], "split", {"key": "sensor-17", "slots": [0, 3, 5]}),
        (["merge", "a=1,b=x"], "merge", {"key": "a=1,b=x"}),
        (["slots", "12"], "slots", {"count": 12}),
        (["strategy", "least-count"], "strategy", {"name": "least-count"}),
        (["home", "3", "host-2"], "home", {"slot": 3, "place": "host-2"}),
        (["home", "3", "--clear"], "home", {"slot": 3}),
        (
            ["strategy", "least-key", "sticky=true", "powers=2,1.5"],
            "strategy",
            {"name": "least-key", "options": {"sticky": True, "powers": [2, 1.5]}},
        ),
        (
            ["strategy", "weight-hash", "weights=[50, 30, 20]"],
            "strategy",
            {"name": "weight-hash", "options": {"weights": [50, 30, 20]}},
        ),
        (
            ["set", "tolerance=0.1", "sample_rate=0.05", "protocol=window", "trigger=null"],
            "set",
            {"tolerance": 0.1, "sample_rate": 0.05, "protocol": "window", "trigger": None},
        ),
    ],
)
def test_every_action_reaches_the_flow(
    flow: PlayedFlow, state: Path, words: list[str], action: str, arguments: dict[str, Any]
) -> None:
    outcome = invoke(state, *words, "--operator", "per-sensor")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout == f"✓ {action}: takes effect after batch 42\n"
    (command,) = flow.heard
    assert (command.action, command.operator, command.arguments) == (action, "per-sensor", arguments)


def test_a_key_may_begin_with_a_dash_behind_two_dashes(flow: PlayedFlow, state: Path) -> None:
    assert invoke(state, "move", "--", "-17", "3").exit_code == 0
    assert flow.heard[0].arguments == {"key": "-17", "slot": 3}


def test_a_refused_command_ends_with_2_and_prints_the_reason(flow: PlayedFlow, state: Path) -> None:
    outcome = invoke(state, "move", "sensor-17", "9")
    assert outcome.exit_code == 2
    assert outcome.stderr == "error: refused: there is no slot 9; the flow has slots 0 to 7\n"
    assert outcome.stdout == ""


def test_show_draws_slots_hot_keys_and_scores(flow: PlayedFlow, state: Path) -> None:
    outcome = invoke(state, "show")
    assert outcome.exit_code == 0, outcome.output
    lines = [line.split() for line in outcome.stdout.splitlines() if line.strip()]
    assert lines[0] == ["after", "batch", "41"]
    assert (
        "per-sensor · 3 slots · strategy auto, now ranges · max/mean 1.923 · balance 0.160 · extra time 92.3 %"
        in outcome.stdout
    )
    assert ["keys", "2", "moved,", "1", "split"] in lines
    bars = {line[0]: line for line in lines if "█" in line[-2]}
    assert [bars[slot][1] for slot in "012"] == ["100,000", "250,000", "40,000"]
    assert len(bars["1"][2]) > len(bars["0"][2]) > len(bars["2"][2])
    assert bars["1"][3] == "1.92"
    assert ["sensor-[17]", "40.0", "%", "0", "(50", "%),", "2", "(50", "%)"] in lines
    assert ["sensor-4", "10.0", "%", "1"] in lines
    assert ["sensor-5", "5.0", "%", "home"] in lines
    names = [line[0] for line in lines]
    assert names.index("pkg") < names.index("plan") < names.index("hash")
    assert ["plan", "1.100", "0.900", "10.0", "%", "1,234"] in lines
    assert ["pkg", "1.020", "0.970", "2.0", "%", "keys", "stay", "whole"] in lines
    assert ["settings", "tolerance=0.05", "protocol=auto"] in lines
    assert "last decision slot 1 is 92 % above its share" in plain(outcome.stdout)
    assert "next mnrt moves 3 parts of keys" in plain(outcome.stdout)
    assert "totals · strategy auto" in outcome.stdout


def test_show_says_how_rows_come_to_slots_what_each_way_costs_and_what_is_next(flow: PlayedFlow, state: Path) -> None:
    shown = plain(invoke(state, "show").stdout)
    assert (
        "exchange merged first, 95 % of 100,000 rows sent, 456.8 kB processor time: merge 20 ms · send 10 ms" in shown
    )
    assert "plain next: 95.0% of the rows are left after the merge" in shown
    assert "s a million rows plain 0.250 merged 0.360" in shown


def test_show_has_the_last_decisions_with_who_wanted_them_and_what_came_of_them(flow: PlayedFlow, state: Path) -> None:
    lines = [plain(line).strip() for line in invoke(state, "show").stdout.splitlines()]
    assert "37 balancer 1.900 → 1.020 split: the busiest slot has 1.900 × its share" in lines
    assert lines.count("40 ctl set: tolerance is 0.05") == 2, "it is about both operators"


def test_show_as_json_is_what_the_flow_says(flow: PlayedFlow, state: Path) -> None:
    assert json.loads(invoke(state, "show", "--json").stdout) == SHOWN


def test_show_of_one_operator_leaves_the_others_out(flow: PlayedFlow, state: Path) -> None:
    shown = json.loads(invoke(state, "show", "--json", "--operator", "totals").stdout)
    assert [described["operator"] for described in shown["operators"]] == ["totals"]
    outcome = invoke(state, "show", "--operator", "total")
    assert outcome.exit_code == 2
    assert "refused: no operator 'total'; the flow has per-sensor, totals" in outcome.stderr


def test_a_flow_file_leads_to_its_checkpoint(flow: PlayedFlow, state: Path) -> None:
    file = write_flow(state.parent, "{checkpoint: state}")
    assert invoke(file, "slots", "12").exit_code == 0
    assert flow.heard[0].arguments == {"count": 12}


def test_a_flow_file_without_a_checkpoint_is_looked_for_where_run_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write_flow(tmp_path)
    outcome = invoke(file, "show")
    assert outcome.exit_code == 1
    assert "does not say where its checkpoint is, and there is no state/low-voltage here" in outcome.stderr
    Path("state/low-voltage").mkdir(parents=True)
    assert "no flow runs on" in invoke(file, "show").stderr


def test_a_checkpoint_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    outcome = invoke(tmp_path / "stat", "show")
    assert outcome.exit_code == 1 and "there is no checkpoint" in outcome.stderr
    assert not (tmp_path / "stat").exists()


def test_a_checkpoint_on_which_nothing_runs_ends_with_1(tmp_path: Path) -> None:
    outcome = invoke(tmp_path, "show")
    assert outcome.exit_code == 1 and "no flow runs on" in outcome.stderr


def test_no_answer_in_time_ends_with_1(state: Path) -> None:
    take_epoch(open_store(state), Owner.this_process(), time.time)
    outcome = invoke(state, "show", "--timeout", "0.2")
    assert outcome.exit_code == 1 and "no answer within 0.2 s" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["move", "sensor-17"], "got 1 word (sensor-17); write: move KEY SLOT"),
        (["move", "sensor-17", "x"], "'x' is no whole number from 0 on; write: move KEY SLOT"),
        (["split", "sensor-17", "0,,3"], "'' is no whole number"),
        (["show", "all"], "got 1 word (all); write: show"),
        (["slots"], "got nothing; write: slots N"),
        (["set"], "got no setting; write: set NAME=VALUE ..."),
        (["set", "tolerance"], "'tolerance' is no setting"),
        (["drop"], "'drop' is not one of"),
        (["slots", "3", "--json"], "only what show prints"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(tmp_path: Path, words: list[str], wanted: str) -> None:
    outcome = invoke(tmp_path, *words)
    assert outcome.exit_code == 2
    assert wanted in plain(outcome.stderr)


def test_what_is_read_from_the_command_line_is_well_formed() -> None:
    typed: dict[choices.Action, list[str]] = {
        "show": [],
        "set": ["a=1"],
        "move": ["k", "1"],
        "split": ["k", "1,2"],
        "merge": ["k"],
        "slots": ["2"],
        "strategy": ["hash"],
        "home": ["2", "host-2"],
    }
    assert set(typed) == set(get_args(Action)) == set(get_args(choices.Action))
    for action, words in typed.items():
        assert find_problem(action, read_words(action, words)) is None
    with pytest.raises(BadWords):
        read_words("move", ["k", "-1"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["home", "3"], "got 1 word (3); write: home SLOT EXECUTOR|HOST, or home SLOT --clear"),
        (["home", "3", "host-2", "--clear"], "got 2 words (3 host-2) and --clear; write: home SLOT"),
        (["merge", "k", "--clear"], "only a home can be cleared"),
    ],
)
def test_a_home_is_given_or_cleared(tmp_path: Path, words: list[str], why: str) -> None:
    outcome = invoke(tmp_path, *words)
    assert outcome.exit_code == 2
    assert why in plain(outcome.stderr)
