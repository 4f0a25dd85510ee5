"""Server programs as processes: found, started in a folder of their own, paused, stopped, started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from anabranch.bench.servers.jars import ServerMissing

START_SECONDS = 60.0
STOP_SECONDS = 20.0


def skip_or_fail(missing: Exception) -> None:
    """Skip the test for want of a server; fail it where all servers must be there."""
    if os.environ.get("ANABRANCH_REQUIRE_SERVERS"):
        pytest.fail(str(missing))
    pytest.skip(str(missing))


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


def free_port() -> int:
    """Return a port that nobody listens to at the moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def unprivileged_user() -> dict[str, Any]:
    """Return what makes a child process run as another user: some servers refuse to run as root."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


@dataclass
class ServerProcess:
    """A server on loopback that can be stopped, killed, paused, and started again at the same port with its data."""

    as_user: ClassVar[Callable[[], dict[str, Any]]] = dict
    """What a child process is started with, besides its command."""

    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _folder: Path | None = field(default=None, repr=False)
    _prepared: bool = field(default=False, repr=False)

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
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def folder(self) -> Path:
        """The server's own folder, made when it is first asked for."""
        if self._folder is None:
            # Paths of Unix sockets may have no more than about 100 letters, so pytest's own folders will not do.
            self._folder = Path(tempfile.mkdtemp(prefix="anabranch-", dir="/tmp"))
            user = self.as_user().get("user")
            if user is not None:
                shutil.chown(self._folder, user, self.as_user()["group"])
        return self._folder

    @property
    def log(self) -> str:
        """What the server printed."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it and wait until it answers; skip the test, or fail it, if there is no such program here."""
        assert self.process is None, "the server runs already"
        first = not self._prepared
        try:
            command = self.command()
            if first:
                self.prepare()
        except ServerMissing as missing:
            self.close()
            skip_or_fail(missing)
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self.as_user()
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{command[0]} does not answer; it printed:\n{self.log[-4000:]}")
            time.sleep(0.02)
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

    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop its clock: connections stay open, nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and take its folder away."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._prepared = False

    def run(self, *command: str) -> None:
        """Run a program of the server's to its end, as the server's user."""
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False, **self.as_user()
        )
        assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}{done.stderr}"

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
