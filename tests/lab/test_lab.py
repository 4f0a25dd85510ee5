"""A lab as a whole: made, limited, broken, mended and taken away by commands, with a flow on it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import psutil
import pytest

from anabranch.lab.errors import LabError
from anabranch.lab.lab import Lab
from anabranch.lab.namespaces import sweep_leftovers
from anabranch.lab.plan import LabPlan
from anabranch.lab.record import RecordFile
from anabranch.lab.status import HostStatus
from anabranch.lab.wires import WireLimit
from lab.hosts import find_what_is_missing
from quick_jvm import QUICK_JVM, SPARK_ENVIRONMENT

# All of them share one lab.
pytestmark = pytest.mark.xdist_group("lab")
PATIENCE_SECONDS = 120.0
MBIT = 400.0
# Two hosts and the driver's leave room for one host more, and for no other.
CPU = len(os.sched_getaffinity(0)) / 4
FLOW = """\
import json, sys, time
import polars as pl
import anabranch as ab
from anabranch.spark.executors import list_executors

spark = ab.local_session(memory="600m")
while len(list_executors(spark)) < 2:
    time.sleep(0.1)
rows = pl.DataFrame({"sensor": [n % 7 for n in range(7000)], "volts": [n / 4 for n in range(7000)]})
flow, totals = ab.Flow("totals"), ab.to_memory()
stream = flow.read(ab.memory(rows, rows))
stream.key_by("sensor").agg(readings=ab.count(), volts=ab.sum("volts"), name="totals").write(totals)
flow.run(sys.argv[1], spark=spark, trigger="available-now", drain=True, slots=4)
places = sorted(executor.host for executor in list_executors(spark))
found = totals.frame().group_by("sensor").agg(pl.col("readings").max(), pl.col("volts").max()).sort("sensor")
print("found", json.dumps({"places": places, "totals": found.rows()}))
"""


class Commands:
    """The lab of this test run, by the command and by Python."""

    def __init__(self, runtime: Path) -> None:
        quick = {**SPARK_ENVIRONMENT, "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
        self.environment = {**os.environ, **quick, "XDG_RUNTIME_DIR": str(runtime), "NO_COLOR": "1"}
        self.file = RecordFile(runtime / "anabranch")
        self.lab = Lab(self.file)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "anabranch", "lab", *words],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> str:
        process = self.start(*words)
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, errors
        return output

    def host(self, name: str) -> HostStatus:
        return next(host for host in self.lab.status().hosts if host.name == name)

    def wait_for(self, name: str, *, known_to_master: bool) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.host(name).known_to_master != known_to_master:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Path]:
    """Folders that are the same in every run: one that was killed may have left labs, and this one takes them away."""
    folder = Path(tempfile.gettempdir()) / f"anabranch-lab-tests-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="module")
def commands(runtime: Path) -> Iterator[Commands]:
    missing = find_what_is_missing()
    if missing:
        pytest.skip(missing)
    made = Commands(runtime / "whole")
    made.lab.down()
    try:
        made.run("up", "--hosts", "2", "--cpu", str(CPU), "--mbit", str(MBIT), "--memory", "600")
        yield made
    finally:
        made.lab.down()


def test_every_host_has_a_worker_a_quota_and_a_limited_wire(commands: Commands) -> None:
    status = json.loads(commands.run("status", "--json"))
    assert [host["name"] for host in status["hosts"]] == ["driver", "h1", "h2"]
    for host in status["hosts"]:
        assert host["limit"]["mbit"] == MBIT and host["cpu"] == CPU
        assert host["there"] and not host["cut_off"] and host["cpu_use"] is not None
    for host in status["hosts"][1:]:
        assert host["worker"] and host["known_to_master"]
        assert host["traffic"]["sent_bytes"] > host["traffic"]["sent_packets"] > 0


def test_a_flow_whose_driver_knows_only_what_status_says_runs_on_the_hosts(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FLOW)
    status = commands.lab.status()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "job.py"), str(tmp_path / "state")],
        env={**commands.environment, **status.variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.partition("found ")[2])
    workers = [host for host in status.hosts if host.worker]
    assert found["places"] == sorted(host.address for host in workers)
    assert found["totals"] == [[key, 2000, 2 * sum(n / 4 for n in range(key, 7000, 7))] for key in range(7)]
    for before in workers:
        after = commands.host(before.name)
        assert before.traffic is not None and after.traffic is not None
        crossed = after.traffic - before.traffic
        # The blocks of each host's slots, and what drivers and executors tell each other.
        assert crossed.sent_bytes > 10_000 and crossed.received_bytes > 10_000
        assert after.cpu_use is not None and before.cpu_use is not None
        assert (after.cpu_use.seconds or 0.0) > (before.cpu_use.seconds or -1.0)


def test_a_program_on_a_host_has_its_address_and_finds_the_lab(commands: Commands) -> None:
    ask = "import os; print(os.environ['ANABRANCH_MASTER']); print(open('/proc/self/cgroup').read())"
    said = commands.run("exec", "driver", sys.executable, "-S", "-c", ask)
    status = commands.lab.status()
    assert said.startswith(f"{status.master_url}\n")
    assert f"/anabranch-lab-{status.mark}/driver" in said
    assert commands.host("driver").address in commands.run("exec", "driver", "ip", "-br", "addr")


def test_a_host_that_is_cut_off_is_given_up_and_comes_back_when_healed(commands: Commands) -> None:
    commands.run("cut", "h2")
    assert commands.host("h2").cut_off and commands.host("h2").worker
    commands.wait_for("h2", known_to_master=False)
    commands.run("heal", "h2")
    assert not commands.host("h2").cut_off
    commands.wait_for("h2", known_to_master=True)


def test_what_runs_on_a_host_can_be_killed_and_started_again(commands: Commands) -> None:
    before = commands.host("h2").traffic
    commands.run("kill", "h2")
    assert commands.host("h2").worker is False
    # The wire is in, so the master is told by the kernel and does not wait for a heartbeat.
    commands.wait_for("h2", known_to_master=False)
    with pytest.raises(LabError, match="its worker runs"):
        commands.lab.add("h1")
    commands.run("add", "h2")
    again = commands.host("h2")
    assert again.worker and again.known_to_master
    # It is the same host: its wire goes on counting.
    assert before is not None and again.traffic is not None and again.traffic.sent_bytes > before.sent_bytes


def test_hosts_are_added_until_all_cores_are_given_away(commands: Commands) -> None:
    assert commands.lab.add() == "h3"
    added = commands.host("h3")
    assert added.worker and added.known_to_master and added.limit == WireLimit(MBIT) and added.cpu == CPU
    with pytest.raises(LabError, match="or have fewer hosts"):
        commands.lab.add()
    assert len(commands.lab.status().hosts) == 4


def test_commands_at_the_same_time_are_done_one_after_the_other(commands: Commands) -> None:
    wanted = {"driver": 11.0, "h1": 12.0, "h2": 13.0}
    started = [commands.start("limit", name, "--mbit", str(mbit)) for name, mbit in wanted.items()]
    for process in started:
        assert process.communicate(timeout=PATIENCE_SECONDS) and process.returncode == 0
    assert {name: commands.host(name).limit for name in wanted} == {
        name: WireLimit(mbit) for name, mbit in wanted.items()
    }
    commands.lab.limit("h1", None)
    assert commands.host("h1").limit is None


def test_a_delay_is_there_or_refused_with_the_reason_and_the_limit_stays(commands: Commands) -> None:
    before = commands.host("h2").limit
    try:
        commands.lab.limit("h2", WireLimit(mbit=50, delay_ms=5))
    except LabError as error:
        assert "no netem" in str(error)
        assert commands.host("h2").limit == before
    else:
        assert commands.host("h2").limit == WireLimit(50, 5)


def test_benches_do_not_sweep_a_lab_and_there_is_one_of_it(commands: Commands) -> None:
    sweep_leftovers()
    assert all(host.there for host in commands.lab.status().hosts)
    with pytest.raises(LabError, match="there is a lab already"):
        commands.lab.up(LabPlan(hosts=1))


def test_what_a_killed_command_left_half_made_is_taken_away(commands: Commands, runtime: Path) -> None:
    other = Commands(runtime / "half-made")
    other.lab.down()
    making = other.start("up", "--hosts", "1")
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        # The log is made before the master: only once it has said something, there is something to be left.
        while (record := other.file.read()) is None or not _says_something(Path(record.folder) / "master.log"):
            assert making.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        making.send_signal(SIGKILL)
        making.communicate()
    assert find_marked(record.mark)
    with pytest.raises(LabError, match="half made"):
        other.lab.status()
    other.run("down")
    assert find_marked(record.mark) == []
    assert not Path(record.folder).exists() and not other.file.path.exists()
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert record.mark not in left and commands.lab.status().mark in left
    other.run("down")


def _says_something(log: Path) -> bool:
    return log.exists() and log.stat().st_size > 0


def find_marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("ANABRANCH_LAB") == mark:
                found.append(process)
    return found
