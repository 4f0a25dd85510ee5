"""Drivers as processes: start them, wait for what they say, kill what belongs to them, compare what they wrote."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import psutil

import anabranch as ab
from anabranch.state import Checkpoint, Manifest, open_store
from oracle import assert_same_rows
from quick_jvm import QUICK_JVM

SCRIPT = Path(__file__).with_name("flow_under_test.py")
PATIENCE_SECONDS = 400.0
SINKS = ("totals", "windows", "groups", "visits", "own", "timed", "held", "merged")
START = datetime(2026, 1, 1)
DRIVER_ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "UNDER_TEST_JVM": QUICK_JVM,
    # A script finds what it shares with others as tests do: pytest's own path is not that of a process.
    "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1])))),
}


def write_input(folder: Path, files: int, rows: int, seed: int) -> None:
    """Write files of disordered readings: whole numbers, dyadic floats, some rows late, some keys hot."""
    chance = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        lines = []
        for _ in range(rows):
            seconds = number * 6 + chance.randrange(-64, 64) / 8
            reading = {
                "key": min(chance.randrange(30), chance.randrange(30)),
                "ts": (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds"),
                "whole": chance.randrange(-1000, 1000),
                "real": chance.randrange(-4096, 4096) / 64,
            }
            lines.append(json.dumps(reading))
        path = folder / "in" / f"{number:05d}.json"
        path.write_text("\n".join(lines) + "\n")
        set_age(path, number)


def set_age(path: Path, number: int) -> None:
    """Files are read oldest first: a made-up time fixes the order, and with it what each batch reads."""
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def add_file(folder: Path, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add a file to the input of a flow that runs: it is there at once, and whole."""
    path = folder / "in" / f"{number:05d}.json"
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    set_age(hidden, number)
    hidden.rename(path)


class DriverProcess:
    """One run of the flow under test."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log: str = "driver",
        script: Path = SCRIPT,
        prefix: Sequence[str] = (),
    ) -> None:
        """``prefix`` is what the command is put behind, such as what runs it on a host of a lab."""
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._errors = (folder / f"{log}.stderr").open("ab")
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(script), str(folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **DRIVER_ENVIRONMENT, **(environment or {})},
        )
        self._family = [psutil.Process(self.process.pid)]
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def batches(self) -> int:
        """The number of batches that were reported."""
        return sum(line.startswith("batch ") for line in self.lines)

    def wait_for(self, what: str, count: int = 1) -> bool:
        """Wait until so many lines begin with a word, or the process ended; say whether the lines are there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while True:
                if sum(line.startswith(what) for line in self.lines) >= count:
                    return True
                if self.lines[-1:] == ["(end)"]:
                    return False
                remaining = deadline - time.monotonic()
                assert remaining > 0, f"waited {PATIENCE_SECONDS} s for {what!r}; it said {self.lines[-5:]}"
                self._changed.wait(min(remaining, 0.5))

    def wait(self, patience_seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the end and return how it ended."""
        code = self.process.wait(patience_seconds)
        self._errors.close()
        return code

    def family(self) -> list[psutil.Process]:
        """Return the driver and all processes below it."""
        found = self._family[:1]
        with contextlib.suppress(psutil.NoSuchProcess):
            found += self._family[0].children(recursive=True)
        self._family = found
        return found

    def jvm(self) -> psutil.Process | None:
        """Return the driver's JVM."""
        return next((member for member in self.family() if _command(member).startswith("java")), None)

    def kill(self, victim: str = "driver") -> None:
        """Kill with SIGKILL: the Python ``driver``, its ``jvm``, or ``everything``."""
        family = self.family()
        java = self.jvm()
        if victim == "driver":
            _kill(family[:1])
        elif victim == "jvm" and java is not None:
            _kill([java])
        else:
            _kill(family)

    def end(self) -> None:
        """Kill whatever is still there; for the end of a test."""
        _kill(self.family())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self._errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self.lines.append("(end)")
            self._changed.notify_all()


@contextlib.contextmanager
def driver(folder: Path, *arguments: str, **more: Any) -> Iterator[DriverProcess]:
    """Start a driver, and end it and all its processes with the block."""
    process = DriverProcess(folder, *arguments, **more)
    try:
        yield process
    finally:
        process.end()


def see(
    script: Path, folder: Path, *arguments: str, patience_seconds: float, environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """Run a script to its end; return what it has seen, and what it printed before."""
    outcome = subprocess.run(
        [sys.executable, str(script), str(folder), *arguments],
        env={**os.environ, **DRIVER_ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=patience_seconds,
        check=False,
    )
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("seen ")]
    assert lines, f"{outcome.stdout[-4000:]}\n{outcome.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(lines[0].removeprefix("seen "))
    return found, outcome.stdout.partition("seen ")[0]


def finish(
    folder: Path,
    *arguments: str,
    patience_seconds: float = PATIENCE_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the flow to its end, which must be a good one."""
    with driver(folder, *arguments, environment=environment) as process:
        code = process.wait(patience_seconds)
        assert code == 0, f"the driver ended with {code}: {process.lines[-3:]}"


def results(folder: Path) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Return sink → batch → rows of everything that is visible."""
    files = {sink: _parts(folder / "out" / sink) for sink in SINKS if sink != "merged"}
    return files | {"merged": _stored_windows(folder / "out" / "merged.sqlite")}


def assert_same_results(got: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Fail unless all sinks have the same rows in the same batches."""
    for sink in SINKS:
        assert sorted(got[sink]) == sorted(expected[sink]), f"{sink}: other batches have output"
        for batch, rows in expected[sink].items():
            assert_same_rows(got[sink][batch], rows, f"{sink}, batch {batch}")


def assert_totals_of(rows: pl.DataFrame, written: pl.DataFrame) -> None:
    """Fail unless what was written last for every key counts its rows and adds up their values."""
    expected = rows.group_by("key").agg(rows=pl.len().cast(pl.Int64), total=pl.col("value").sum()).sort("key")
    totals = written.group_by("key").agg(pl.col("rows", "total").max()).sort("key")
    assert totals.equals(expected.select(totals.columns))


def committed(folder: Path) -> list[int]:
    """Return the numbers of the batches that were committed and are kept."""
    return sorted(int(path.stem) for path in (folder / "checkpoint" / "commits").glob("*.json"))


def manifests(folder: Path) -> dict[int, Manifest]:
    """Return the batches that were committed and are kept."""
    checkpoint = Checkpoint(open_store(folder / "checkpoint"))
    return {batch: checkpoint.load(batch) for batch in checkpoint.batches()}


def _parts(folder: Path) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("part-*")):
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path)
        found.setdefault(int(path.name.split("-")[1]), []).extend(frame.to_dicts())
    return found


def _stored_windows(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of a global store by the second in which their window starts: it knows no batches."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in ab.read_global_store(path, "windows").to_dicts() if path.exists() else ():
        found.setdefault(int((row["window_start"] - START).total_seconds()), []).append(row)
    return found


def _kill(victims: Sequence[psutil.Process]) -> None:
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)


def _command(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
