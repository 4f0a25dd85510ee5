"""Server programs as processes: found, started in a folder of their own, paused, stopped, started again."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil

from anabranch.errors import AnabranchError
from anabranch.lab.ports import LOOPBACK, find_free_port
from benchmarks.servers.jars import ServerMissing

STOP_SECONDS = 20.0
_PAUSE_SECONDS = 0.02


class ServerError(AnabranchError):
    """A server of one's own does not do what it was asked for."""


def find_program(names: Sequence[str], folders: Sequence[str], package: str) -> str:
    """Return the path of a program by one of its names; raise ``ServerMissing`` if there is none."""
    for name in names:
        found = shutil.which(name) or next(
            (str(path) for folder in folders for path in sorted(Path("/").glob(f"{folder[1:]}/{name}"), reverse=True)),
            None,
        )
        if found is not None:
            return found
    msg = (
        f"{names[0]} is not installed: `make test` installs it as root on Debian, "
        f"elsewhere install it by hand (Debian's package is {package})"
    )
    raise ServerMissing(msg)


@dataclass
class ServerProcess:
    """A server on loopback that can be stopped, killed, paused, and started again at the same port with its data."""

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    start_seconds: ClassVar[float] = 180.0

    place: Path | None = None
    """A folder of the caller's, which stays; without one the server makes its own, and ``close`` takes it away."""
    port: int = field(default_factory=find_free_port, kw_only=True)
    process: subprocess.Popen[bytes] | None = field(default=None, kw_only=True, repr=False)
    _own_folder: Path | None = field(default=None, kw_only=True, repr=False)
    _prepared: bool = field(default=False, kw_only=True, repr=False)

    def command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Make the folder ready before the first start."""

    def settle(self) -> None:
        """Do what is to be done after the first start: users, databases."""

    def answers(self) -> bool:
        """Say whether the server takes requests."""
        with socket.socket() as client:
            return client.connect_ex((LOOPBACK, self.port)) == 0

    def child_options(self) -> dict[str, Any]:
        """Return what its processes are started with, besides their commands."""
        return {}

    @property
    def folder(self) -> Path:
        """The server's folder, made when it is first asked for."""
        if self.place is not None:
            self.place.mkdir(parents=True, exist_ok=True)
            return self.place
        if self._own_folder is None:
            self._own_folder = self.make_folder()
        return self._own_folder

    def make_folder(self) -> Path:
        """Make a folder for this server alone."""
        # Paths of Unix sockets may have no more than about 100 letters, so those of temporary folders must be short.
        return Path(tempfile.mkdtemp(prefix="anabranch-", dir="/tmp"))

    @property
    def log(self) -> str:
        """What the server printed."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it and wait until it answers; raise ``ServerMissing`` if there is no such program here."""
        if self.process is not None:
            msg = "the server runs already"
            raise ServerError(msg)
        first = not self._prepared
        command = self.command()
        if first:
            self.prepare()
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self.child_options()
            )
        deadline = time.monotonic() + self.start_seconds
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                msg = f"{command[0]} does not answer; it printed:\n{self.log[-4000:]}"
                raise ServerError(msg)
            time.sleep(_PAUSE_SECONDS)
        if first:
            self.settle()
            self._prepared = True

    def stop(self) -> None:
        """End it in order; at once if that takes too long."""
        if self.process is not None:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            everyone = self._everyone()
            for process in everyone:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait()
            psutil.wait_procs(everyone, STOP_SECONDS)
            self.process = None

    def pause(self) -> None:
        """Stop its clock: connections stay open, nothing answers."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._send(signal.SIGCONT)

    def close(self) -> None:
        """End it, and take away the folder that it made."""
        self.kill()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = None
            self._prepared = False

    def run(self, *command: str) -> None:
        """Run a program of the server's to its end, as the server is run."""
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False, **self.child_options()
        )
        if done.returncode != 0:
            msg = f"{command[0]} failed:\n{done.stdout}{done.stderr}"
            raise ServerError(msg)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, sent: signal.Signals) -> None:
        self._running()
        for process in self._everyone():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(sent)

    def _everyone(self) -> list[psutil.Process]:
        """Return its process and those that it started: PostgreSQL's outlive the first one for a while."""
        running = self._running()
        # One that ended by itself has no process any more once it was asked for its exit code.
        try:
            first = psutil.Process(running.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            msg = "the server does not run"
            raise ServerError(msg)
        return self.process
