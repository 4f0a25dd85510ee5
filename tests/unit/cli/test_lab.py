"""``anabranch lab`` as people and programs see it; what it does is in tests/lab."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from anabranch.cli.app import app
from anabranch.cli.lab.tables import draw_status
from anabranch.lab.control_groups import CoreUse
from anabranch.lab.errors import LabError
from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from anabranch.lab.status import HostStatus, LabStatus
from anabranch.lab.wires import Traffic, WireLimit

DRIVER = HostStatus(
    name="driver",
    address="10.213.0.3",
    namespace="abl0a1b2ch0",
    there=True,
    worker=None,
    known_to_master=False,
    cut_off=False,
    limit=None,
    cpu=0.4,
    cpu_use=CoreUse(None, 0.0),
    traffic=Traffic(1_000, 2_000, 10, 20),
)
WORKER = replace(
    DRIVER,
    name="h1",
    address="10.213.0.4",
    worker=True,
    known_to_master=True,
    limit=WireLimit(1000, 20),
    cpu_use=CoreUse(12.5, 0.25),
    traffic=Traffic(3_400_000, 56_000_000, 4_321, 56_789),
)
STATUS = LabStatus(
    mark="0a1b2c",
    folder="/tmp/anabranch-lab-0a1b2c",
    gateway="10.213.0.1",
    master_url="spark://10.213.0.1:21000",
    master_pages="http://10.213.0.1:21001",
    master_answers=True,
    applications=("alerts",),
    hosts=(DRIVER, WORKER),
    outside=Traffic(500, 600, 5, 6),
    settings={"spark.master": "spark://10.213.0.1:21000", "spark.driver.host": "10.213.0.1"},
    variables={"SPARK_CONF_DIR": "/tmp/a folder"},
)


def invoke(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["lab", *arguments])


def draw(status: LabStatus, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    for part in draw_status(status):
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def row_of(text: str, *first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[: len(first)] == list(first))


def test_a_host_is_shown_with_its_quota_its_wire_and_what_crossed_it() -> None:
    text = draw(STATUS)
    worker = "h1 10.213.0.4 runs 0.4 12.5 s 250 ms in 1000 Mbit/s, 20 ms 3.4 MB 4,321 56.0 MB 56,789"
    assert row_of(text, "h1") == worker.split()
    driver = "driver 10.213.0.3 – 0.4 – 0 ms in – 1.0 kB 10 2.0 kB 20"
    assert row_of(text, "driver") == driver.split()


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"worker": False, "known_to_master": False}, "ended"),
        ({"known_to_master": False}, "given"),
        ({"there": False, "traffic": None}, "gone"),
    ],
)
def test_a_worker_is_shown_as_it_is(changed: dict[str, object], shown: str) -> None:
    assert row_of(draw(replace(STATUS, hosts=(replace(WORKER, **changed),))), "h1")[2] == shown  # type: ignore[arg-type]


def test_a_wire_that_is_out_is_shown_and_a_master_that_does_not_answer() -> None:
    text = draw(replace(STATUS, hosts=(replace(WORKER, cut_off=True),), master_answers=False))
    assert " cut " in text and "does not answer" in text


def test_what_is_copied_into_a_shell_is_quoted_and_never_broken() -> None:
    text = draw(STATUS, width=40)
    assert "  export SPARK_CONF_DIR='/tmp/a folder'\n" in text
    assert "  spark.driver.host=10.213.0.1\n" in text


def test_in_a_narrow_terminal_wires_have_a_table_of_their_own() -> None:
    text = draw(STATUS, width=80)
    assert max(len(line) for line in text.splitlines() if line.startswith((" h1", " driver", " host"))) <= 80
    assert row_of(text, "h1", "10.213.0.4")[-2:] == ["250", "ms"]
    assert row_of(text, "h1", "in")[-1] == "56,789"


def test_status_is_json_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "status", lambda self: STATUS)
    said = json.loads(invoke("status", "--json").stdout)
    assert said["settings"] == STATUS.settings
    assert said["hosts"][1]["traffic"] == {
        "sent_bytes": 3_400_000,
        "received_bytes": 56_000_000,
        "sent_packets": 4_321,
        "received_packets": 56_789,
    }
    assert said["hosts"][1]["limit"] == {"mbit": 1000, "delay_ms": 20}


def test_up_makes_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[LabPlan] = []

    def up(self: Lab, plan: LabPlan) -> LabStatus:
        plans.append(plan)
        return STATUS

    monkeypatch.setattr(Lab, "up", up)
    done = invoke("up", "--hosts", "4", "--cpu", "0.4", "--mbit", "1000")
    assert done.exit_code == 0 and "spark://10.213.0.1:21000" in done.stdout
    assert plans == [LabPlan(hosts=4, cpu=0.4, mbit=1000)]


def test_a_refusal_ends_the_command_with_1_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Lab) -> LabStatus:
        raise LabError("there is no lab")

    monkeypatch.setattr(Lab, "status", refuse)
    done = invoke("status")
    assert done.exit_code == 1 and "error: there is no lab" in done.stderr


@pytest.mark.parametrize("words", [(), ("--lift", "--mbit", "5")])
def test_a_limit_is_said_or_lifted(words: tuple[str, ...]) -> None:
    done = invoke("limit", "h1", *words)
    assert done.exit_code == 2 and "--lift alone" in done.stderr
