"""Hosts of a lab are cut off and healed and executors killed, also while slots move; answers are right in the end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import psutil
import pytest

import anabranch as ab
from anabranch.lab.lab import Lab
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile
from lab.drivers import DriverProcess, driver
from lab.hosts import find_what_is_missing
from quick_jvm import QUICK_JVM, SPARK_ENVIRONMENT
from soak.amounts import LAB_SEEDS, SEED
from soak.disturbed_hosts_under_test import ENERGY, HOSTS, KEYS

SCRIPT = Path(__file__).with_name("disturbed_hosts_under_test.py")
WORKERS = [f"h{number}" for number in range(1, HOSTS + 1)]
DISTURBANCES = 6
LOW, HIGH = 40, 1_500
"""Rows of a file."""
REALLOCATION_SECONDS = 40.0
PATIENCE_SECONDS = 240.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    missing = find_what_is_missing()
    if missing:
        pytest.skip(missing)
    made = Lab(RecordFile(tmp_path_factory.mktemp("disturbed") / "lab"))
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("SPARK_DAEMON_JAVA_OPTS", QUICK_JVM)
            made.up(LabPlan(hosts=HOSTS, memory_mb=600))
        yield made
    finally:
        made.down()


@dataclass
class Disturber:
    """Feeds a flow, and does to its hosts what chance says; at least as many hosts stay as are to stay awake."""

    folder: Path
    lab: Lab
    process: DriverProcess
    chance: random.Random
    files: int = 0
    rows: int = 0
    size: int = LOW
    cut: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def feed(self, files: int = 1) -> None:
        for _ in range(files):
            lines = [{"key": (self.rows + row) % KEYS, "value": self.rows + row} for row in range(self.size)]
            path = self.folder / "in" / f"{self.files:05d}.json"
            hidden = path.with_name(f".{path.name}")
            hidden.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            os.utime(hidden, (1_700_000_000 + self.files,) * 2)
            hidden.rename(path)
            self.files += 1
            self.rows += self.size

    def flow_on(self, batches: int) -> None:
        """Feed until so many batches more are over."""
        wanted, deadline = self.process.batches + batches, time.monotonic() + PATIENCE_SECONDS
        while self.process.batches < wanted:
            assert self.process.process.poll() is None, self.process.lines[-5:]
            assert time.monotonic() < deadline, f"{self.done}: {self.process.lines[-5:]}"
            self.feed()
            time.sleep(0.5)

    def disturb(self) -> None:
        chosen = self.chance.choice([self.cut_host, self.heal_host, self.kill_executor, self.kill_while_slots_move])
        self.done.append(chosen.__name__)
        chosen()

    def cut_host(self) -> None:
        whole = [name for name in WORKERS if name not in self.cut]
        if len(whole) > ENERGY.min_hosts:
            host = self.chance.choice(whole)
            self.lab.cut(host)
            self.cut.append(host)

    def heal_host(self) -> None:
        if self.cut:
            self.lab.heal(self.cut.pop(self.chance.randrange(len(self.cut))))

    def kill_executor(self) -> None:
        addresses = {host.address for host in self.lab.status().hosts if host.name in WORKERS}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in command and addresses & set(command):
                    found.append((command[command.index("--executor-id") + 1], process))
        if found:
            with contextlib.suppress(psutil.Error):
                self.chance.choice(sorted(found, key=lambda one: one[0]))[1].send_signal(signal.SIGKILL)

    def kill_while_slots_move(self) -> None:
        """Let load change until slots are told to go elsewhere, and kill an executor that moment."""
        known = self.count_moves()
        self.size = HIGH if self.size == LOW else LOW
        deadline = time.monotonic() + REALLOCATION_SECONDS
        while self.count_moves() == known and time.monotonic() < deadline:
            self.feed()
            time.sleep(0.3)
        self.done.append(f"after {self.count_moves() - known} moves")
        self.kill_executor()

    def count_moves(self) -> int:
        told = ab.history(str(self.folder / "state"), kind="decision")
        return told.filter(pl.col("action").is_in(["offload", "hold", "release", "provision", "keep"])).height

    def end(self) -> None:
        for host in self.cut:
            self.lab.heal(host)
        (self.folder / "end").write_text(str(self.rows))
        assert self.process.wait(PATIENCE_SECONDS) == 0, f"{self.done}: {self.process.lines[-5:]}"


@pytest.mark.parametrize("number", range(LAB_SEEDS))
def test_answers_are_right_whatever_becomes_of_hosts(lab: Lab, tmp_path: Path, number: int) -> None:
    seed = f"{SEED} {number}"
    (tmp_path / "in").mkdir()
    prefix, variables = lab.place("driver", [])
    with driver(tmp_path, script=SCRIPT, prefix=prefix, environment={**variables, **SPARK_ENVIRONMENT}) as process:
        assert process.wait_for("ready"), process.lines[-5:]
        stage = Disturber(tmp_path, lab, process, random.Random(seed))
        try:
            stage.flow_on(3)
            for _ in range(DISTURBANCES):
                stage.disturb()
                stage.flow_on(stage.chance.randint(1, 4))
            stage.end()
        finally:
            print(f"ANABRANCH_SOAK_SEED={SEED}, number {number}: {stage.done}")
            for host in stage.cut:
                lab.heal(host)
    told = pl.DataFrame({"key": [row % KEYS for row in range(stage.rows)], "value": range(stage.rows)})
    expected = told.group_by("key").agg(rows=pl.len().cast(pl.Int64), total=pl.col("value").sum()).sort("key")
    written = pl.read_parquet(tmp_path / "out" / "part-*")
    totals = written.group_by("key").agg(pl.col("rows", "total").max()).sort("key")
    assert totals.equals(expected.select(totals.columns))
    # A batch whose results were published twice, or by two, would have a key's count twice.
    assert written.select("key", "rows").is_unique().all()
