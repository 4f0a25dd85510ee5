"""Hosts that lose their wires while a flow runs on them: it goes on with the others, and answers are right."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anabranch.lab.lab import Lab
from lab.drivers import DriverProcess, add_file, assert_totals_of
from lab.hosts import driver_on, lab_of
from lab.hosts_under_test import DETECTION_SECONDS, HOSTS, LOOK_SECONDS

pytestmark = pytest.mark.xdist_group("lab")
SCRIPT = Path(__file__).with_name("hosts_under_test.py")
KEYS = 40
ROWS = 400
COPYING_SECONDS = 3.0
SLACK_SECONDS = 10.0
"""On a machine that other tests keep busy."""


def lab_of_four() -> AbstractContextManager[Lab]:
    """A lab that is the same in every run of tests: one that was killed may have left it."""
    return lab_of(HOSTS, Path(tempfile.gettempdir()) / f"anabranch-cut-tests-{os.geteuid()}")


@dataclass
class Stage:
    """The flow on its hosts, and what a test does to them."""

    folder: Path
    lab: Lab
    process: DriverProcess
    fed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    reads: dict[str, list[str]] = field(default_factory=dict)

    def write(self) -> None:
        rows = [{"key": (self.fed + row) % KEYS, "value": self.fed * ROWS + row} for row in range(ROWS)]
        add_file(self.folder, self.fed, rows)
        self.fed += 1

    def feed(self, name: str) -> None:
        """Give the flow one batch more, and note how long it took and which hosts it ran on."""
        self.write()
        self.wait(name)

    def wait(self, name: str) -> None:
        began = time.monotonic()
        assert self.process.wait_for("batch ", self.fed), self.process.lines[-3:]
        self.seconds[name] = time.monotonic() - began
        words = [line for line in self.process.lines if line.startswith("batch ")][-1].split(" ")
        self.places[name], self.reads[name] = words[3].split(","), words[4].split(",")

    def check_totals(self) -> None:
        """Fail unless every row that was fed is in the totals once."""
        rows = pl.concat([pl.read_ndjson(path) for path in sorted((self.folder / "in").glob("*.json"))])
        written = pl.read_parquet(self.folder / "out" / "totals" / "part-*")
        assert_totals_of(rows, written)
        # Every batch has every key once: a batch whose results were published twice would show.
        assert written.height == self.fed * KEYS

    def address(self, host: str) -> str:
        return next(each.address for each in self.lab.status().hosts if each.name == host)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What one flow went through: a lab and its executors take longer to start than all the rest."""
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "in").mkdir()
    with lab_of_four() as lab, driver_on(lab, folder, SCRIPT) as process:
        assert process.wait_for("ready"), process.lines
        stage = Stage(folder, lab, process)
        for number in range(3):
            stage.feed(f"steady {number}")
        # Replicas of the last batch are copied after it.
        time.sleep(COPYING_SECONDS)
        lab.cut("h4")
        stage.feed("one cut off")
        stage.feed("one gone")
        lab.cut("h3")
        lab.cut("h2")
        stage.feed("two cut off")
        stage.feed("two gone")
        for host in ("h2", "h3", "h4"):
            lab.heal(host)
        stage.feed("healed")
        lab.cut("driver")
        stage.write()
        time.sleep(DETECTION_SECONDS / 2)
        lab.heal("driver")
        stage.wait("driver healed")
        (folder / "end").write_text(str(stage.fed * ROWS))
        code = process.wait(120.0)
        addresses = {host: stage.address(host) for host in ("h1", "h2", "h3", "h4")}
    print("seconds", stage.seconds)
    yield {"stage": stage, "code": code, "addresses": addresses, "folder": folder}


def detected_within(stage: Stage, name: str) -> None:
    usual = max(stage.seconds[f"steady {number}"] for number in (1, 2))
    assert stage.seconds[name] < DETECTION_SECONDS + LOOK_SECONDS + 2 * usual + SLACK_SECONDS, stage.seconds


def test_all_hosts_have_slots_at_first(seen: dict[str, Any]) -> None:
    assert set(seen["stage"].places["steady 2"]) == set(seen["addresses"].values())


def test_a_flow_goes_on_without_a_host_that_was_cut_off(seen: dict[str, Any]) -> None:
    stage, addresses = seen["stage"], seen["addresses"]
    detected_within(stage, "one cut off")
    assert addresses["h4"] not in stage.places["one gone"]
    assert set(stage.places["one gone"]) == {addresses[host] for host in ("h1", "h2", "h3")}


def test_slots_of_a_host_that_is_cut_off_go_on_where_their_replicas_are(seen: dict[str, Any]) -> None:
    reads = seen["stage"].reads
    # The checkpoint is in a folder that all hosts have: slots that are at home read it where it lies.
    assert reads["steady 2"] == ["store"]
    assert "replica" in reads["one cut off"], "the batch was under way: Spark ran its slots where anchors said"


def test_a_flow_goes_on_when_two_more_hosts_are_cut_off_at_once(seen: dict[str, Any]) -> None:
    stage, addresses = seen["stage"], seen["addresses"]
    detected_within(stage, "two cut off")
    assert stage.places["two gone"] == [addresses["h1"]]


def test_a_flow_goes_on_when_the_host_of_its_driver_was_cut_off_and_healed(seen: dict[str, Any]) -> None:
    assert "driver healed" in seen["stage"].seconds
    assert seen["code"] == 0


def test_answers_are_those_of_all_rows_whatever_was_cut_off(seen: dict[str, Any]) -> None:
    stage, folder = seen["stage"], seen["folder"]
    stage.check_totals()
    groups = pl.read_parquet(folder / "out" / "groups" / "part-*").group_by("group").agg(pl.col("seen").max())
    assert groups["seen"].unique().to_list() == [stage.fed * KEYS // 5]
