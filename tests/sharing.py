"""What is dear to make, or to keep running, is there once for all processes of a test run."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from benchmarks.servers.processes import STOP_SECONDS, ServerProcess

Server = TypeVar("Server", bound=ServerProcess)


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    # Each process of a run has a folder of its own inside the run's.
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first process to ask fills; the others wait for it."""
    shared = _shared_folder(tmp_path_factory)
    folder, done = shared / name, shared / f"{name}.done"
    with _locked(shared / f"{name}.lock"):
        if not done.exists():
            # What a process left that failed half way.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@contextmanager
def shared_server(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[], Server]) -> Iterator[Server]:
    """Give a server that the first process to ask starts, and that the last one to leave ends: leave it running."""
    shared = _shared_folder(tmp_path_factory)
    lock, running, users = (shared / f"{name}.{part}" for part in ("lock", "running", "users"))
    user = users / str(os.getpid())
    with _locked(lock):
        if running.exists():
            server: Server = pickle.loads(running.read_bytes())[0]
        else:
            server = make()
            server.start()
            assert server.process is not None
            users.mkdir(exist_ok=True)
            # The others know its ports and its folder; which process it is, they need for its end alone.
            known = copy(server)
            known.process = None
            running.write_bytes(pickle.dumps((known, server.process.pid)))
        user.touch()
    try:
        yield server
    finally:
        with _locked(lock):
            user.unlink()
            if not any(users.iterdir()):
                server, process_id = pickle.loads(running.read_bytes())
                running.unlink()
                _end(process_id)
                server.close()


def _end(process_id: int) -> None:
    """Kill a process that may be another's child: nobody waits for one that is dead already."""
    os.kill(process_id, signal.SIGKILL)
    deadline = time.monotonic() + STOP_SECONDS
    while psutil.pid_exists(process_id) and psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {process_id} was killed and does not end"
        time.sleep(0.02)
