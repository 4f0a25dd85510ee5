"""At 80 columns, nothing that commands print has a broken word; at 200, they use the room."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from rich.console import Console, RenderableType
from rich.text import Text
from typer.testing import CliRunner

from anabranch.cli.app import app
from anabranch.cli.ctl.tables import draw_balance
from anabranch.cli.doctor.command import Finding, tabulate_findings
from anabranch.cli.explain import wrap_drawing
from anabranch.cli.reporting import say
from anabranch.cli.state.tables import SlotTable, StoredRows
from anabranch.metrics.cluster_load import LoadBook
from anabranch.model.replicas import ReplicaProgress
from unit.cli.test_commands import COMMANDS
from unit.cli.test_ctl import SHOWN
from unit.metrics.measured import EXECUTORS, reader, slot

LONG_NAME = "lowest-voltage-per-country-and-sensor"
LONG_KEY = "https://shop.example/some/long/path/to/a/page/that/is/hot"


def words_of(text: str) -> set[str]:
    return set(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def run(command: str, width: int) -> str:
    outcome = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1"}).invoke(app, command.split())
    return outcome.stdout + outcome.stderr


def print_at(width: int, *parts: RenderableType, terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, highlight=False)
    for part in parts:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("command", [*(f"{command} --help" for command in COMMANDS), "--help", "state --help", "bench"])
def test_help_at_80_columns_breaks_no_word(command: str) -> None:
    narrow = run(command, 80)
    assert words_of(narrow) - words_of(run(command, 400)) == set()
    assert max(len(line) for line in narrow.splitlines()) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_paragraphs_of_help_are_as_wide_as_the_terminal(command: str) -> None:
    text, narrow = run(f"{command} --help", 80).partition("╭")[0], 30
    for before, after in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        if before.strip() and after.strip():  # two lines of one paragraph
            first = after.split()[0]
            assert len(before.rstrip()) + len(first) > 78 - narrow * before.startswith("   "), (before, after)


def shown_balance() -> list[RenderableType]:
    hot = {"key": LONG_KEY, "share": 0.4, "slots": [[slot, 0.2] for slot in range(5)]}
    described: dict[str, Any] = SHOWN["operators"][0] | {"operator": LONG_NAME, "hot_keys": [hot]}
    described["last_decision"] = (
        "mnrt moves 3 parts of keys from slot 1, which is 92 % above its share, to slots 0 and 2"
    )
    decisions = [{**one, "operator": LONG_NAME, "reason": described["last_decision"]} for one in SHOWN["decisions"]]
    operators = {LONG_NAME: 0.2, "totals": 0.1}
    tasks = [reader(), replace(slot(0, "1"), operator_cpu_seconds=operators), slot(123, "2")]
    measures = LoadBook().add([replace(task, latency_seconds={"b": 0.001}) for task in tasks], EXECUTORS, 1.0).to_json()
    replicas = ReplicaProgress(
        16, 15, 14, 2, 3, 5_000_000, problem=f"executor-{LONG_NAME} has no room for it"
    ).to_json()
    shown = {"operators": [described], "decisions": decisions, "measures": measures, "replicas": replicas}
    return list(draw_balance({"batch": 41, **shown}))


def slots_of(operator: str) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "operator": [operator, operator, "totals"],
            "slot": [0, 1, 0],
            "buckets": [256, 256, 512],
            "runs": [3, 4, 1],
            "rows": [123_456_789, 2_345_678, 5],
            "bytes": [12_345_678_901, 5, 3],
            "oldest_batch": [123_456, 2, 3],
            "newest_batch": [123_499, 4, 5],
        }
    )


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("shown", ["balance", "slots", "rows", "findings"])
def test_tables_break_no_word_and_are_no_wider_than_the_terminal(shown: str, width: int) -> None:
    parts: list[RenderableType] = {
        "balance": shown_balance(),
        "slots": [SlotTable(slots_of(LONG_NAME))],
        "rows": [StoredRows(pl.DataFrame({"page": [LONG_KEY], "shop": [LONG_NAME], "views": [12]}))],
        "findings": [tabulate_findings([Finding("temporary files", "poor", "/tmp, 1 GB free", "make room " * 20)])],
    }[shown]
    drawn = print_at(width, *parts)
    # What stands in another form below a name has words of its own, all of them short.
    broken = words_of(drawn) - words_of(print_at(400, *parts))
    assert broken <= {"hot", "keys", "%,", "slots", "all:", "runs,", "rows,"}
    assert max(len(line) for line in drawn.splitlines()) <= width


def test_slots_of_operators_with_long_names_stand_below_them() -> None:
    assert f"{LONG_NAME}\n" in print_at(80, SlotTable(slots_of(LONG_NAME)))
    assert f"{LONG_NAME}\n" not in print_at(200, SlotTable(slots_of(LONG_NAME)))
    assert "8 runs, 125.8 M rows, 12.3 GB" in print_at(80, SlotTable(slots_of(LONG_NAME)))


def test_sentences_are_broken_between_words_in_terminals_and_not_at_all_elsewhere() -> None:
    path = "/a/very/long/path/" + "folder/" * 12
    sentence = (
        f"the checkpoint {path} holds no committed batch; give the folder that the flow was run with [not markup]"
    )
    for terminal, lines in ((True, 4), (False, 1)):
        console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
        say(console, Text(sentence))
        printed: str = console.file.getvalue()  # type: ignore[attr-defined]
        assert printed.split() == sentence.split()
        assert len(printed.splitlines()) == lines


def test_drawings_of_flows_are_broken_between_words_and_their_rails_go_on() -> None:
    drawing = (
        "╭─ subquery 1 · 8 slots\n"
        "│  ├─ ⇒ exchange by sensor · fan-out 8 · local merge (its results merge: one row a key and window leaves it)\n"
        "│  │  ○ filter volts > 0\n"
        "│  └─ ■ parquet /a/very/long/path/" + "folder/" * 12 + "\n"
        "╰─\n"
    )
    narrow = wrap_drawing(drawing, 80)
    assert [word for word in narrow.split() if word != "│"] == [word for word in drawing.split() if word != "│"]
    lines = narrow.splitlines()
    assert lines[2].startswith("│  │      ") and lines[3] == "│  │  ○ filter volts > 0"
    assert lines[5].startswith("│         /a/very/long/path/folder/")
    assert all(len(line) <= 80 for line in lines if "folder/" not in line)
    assert wrap_drawing(drawing, 200) == drawing
