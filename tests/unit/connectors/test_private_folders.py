from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
import pytest

from anabranch.connectors import memory, to_memory
from anabranch.connectors.private_folders import (
    PROCESS_PREFIX,
    UNLOCKED_FOR_SECONDS,
    PrivateFolder,
    sweep_abandoned,
)
from anabranch.model import StagedFile

FRAME = pl.DataFrame({"k": [1, 2]})

OWNER = """
import sys, time
import polars as pl
from anabranch.connectors import memory, to_memory
source, sink = memory(pl.DataFrame({"k": [1]})), to_memory()
print(source.directory, sink.directory, flush=True)
sys.stdin.readline()
"""


def start_owner(temporary_folder: Path) -> tuple[subprocess.Popen[str], list[Path]]:
    """Start a process that owns two folders until it is spoken to; return them."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "TMPDIR": str(temporary_folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, [Path(path) for path in process.stdout.readline().split()]


def process_folders(temporary_folder: Path) -> list[Path]:
    return list(temporary_folder.glob(f"{PROCESS_PREFIX}*"))


def test_directory_of_a_memory_source_goes_with_the_source() -> None:
    source = memory(FRAME)
    directory = Path(source.directory)
    assert directory.is_dir()
    del source
    gc.collect()
    assert not directory.exists()


def test_results_in_memory_stay_readable_as_long_as_some_copy_of_the_sink_lives(tmp_path: Path) -> None:
    sink = to_memory()
    staged = tmp_path / "staged.arrow"
    staged.write_bytes(sink.encode(FRAME))
    sink.publish(0, [(StagedFile("staged", 2, 1, 0), str(staged))], {"flow": "test", "epoch": 1})
    for kept in (copy.copy(sink), copy.deepcopy(sink)):
        directory = Path(sink.directory)
        del sink
        gc.collect()
        assert kept.frame().equals(FRAME)
        sink = kept
    del sink, kept
    gc.collect()
    assert not directory.exists()


def test_what_travelled_to_another_process_does_not_own_the_directory() -> None:
    source = memory(FRAME)
    travelled = pickle.loads(pickle.dumps(source))
    assert travelled == source and travelled.folder is None
    del travelled
    gc.collect()
    assert Path(source.directory).is_dir()


def test_forked_child_leaves_its_parents_directory_alone() -> None:
    source = memory(FRAME)
    child = os.fork()
    if child == 0:
        del source
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(source.directory).is_dir()


def test_directory_that_the_user_named_stays(tmp_path: Path) -> None:
    memory(FRAME, directory=tmp_path / "in")
    to_memory(tmp_path / "out")
    gc.collect()
    assert (tmp_path / "in").is_dir() and (tmp_path / "out").is_dir()


def test_folder_can_be_removed_before_its_time_and_twice() -> None:
    folder = PrivateFolder("control")
    folder.remove()
    folder.remove()
    assert not Path(folder.path).exists()


def test_process_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    process, folders = start_owner(tmp_path)
    assert all(folder.is_dir() for folder in folders)
    process.communicate("\n")
    assert process_folders(tmp_path) == []


def test_folders_of_a_killed_process_are_swept_by_the_next_one(tmp_path: Path) -> None:
    killed, folders = start_owner(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert all(folder.is_dir() for folder in folders)
    later, _ = start_owner(tmp_path)
    assert not any(folder.exists() for folder in folders)
    later.communicate("\n")


def test_folders_of_a_living_process_are_not_swept(tmp_path: Path) -> None:
    living, folders = start_owner(tmp_path)
    assert sweep_abandoned(str(tmp_path), time.time() + 2 * UNLOCKED_FOR_SECONDS) == []
    assert all(folder.is_dir() for folder in folders)
    living.communicate("\n")


def test_folder_that_is_just_being_made_is_not_swept_until_it_is_old(tmp_path: Path) -> None:
    unlocked = Path(tempfile.mkdtemp(prefix=PROCESS_PREFIX, dir=tmp_path))
    assert sweep_abandoned(str(tmp_path), time.time()) == []
    assert sweep_abandoned(str(tmp_path), time.time() + 2 * UNLOCKED_FOR_SECONDS) == [str(unlocked)]


@pytest.mark.parametrize("name", ["someone-elses", "anabranch-bench"])
def test_other_folders_are_not_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert sweep_abandoned(str(tmp_path), time.time() + 2 * UNLOCKED_FOR_SECONDS) == []
