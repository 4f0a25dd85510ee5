"""Hosts of a lab are cut off and healed and executors killed, also while slots move; answers are right in the end."""

from __future__ import annotations

import contextlib
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
from lab.drivers import DriverProcess, add_file, assert_totals_of
from lab.hosts import driver_on, lab_of
from lab.hosts_under_test import HOSTS
from soak.amounts import LAB_SEEDS, SEED
from soak.disturbed_hosts_under_test import ENERGY, KEYS

SCRIPT = Path(__file__).with_name("disturbed_hosts_under_test.py")
WORKERS = [f"h{number}" for number in range(1, HOSTS + 1)]
DISTURBANCES = 6
LOW, HIGH = 40, 1_500
"""Rows of a file."""
REALLOCATION_SECONDS = 40.0
PATIENCE_SECONDS = 240.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_of(HOSTS, tmp_path_factory.mktemp("disturbed") / "lab") as made:
        yield made


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
            add_file(self.folder, self.files, lines)
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
    with driver_on(lab, tmp_path, SCRIPT) as process:
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
    written = pl.read_parquet(tmp_path / "out" / "part-*")
    assert_totals_of(told, written)
    # A batch whose results were published twice, or by two, would have a key's count twice.
    assert written.select("key", "rows").is_unique().all()
