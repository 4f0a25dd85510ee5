"""Control groups: both versions by their files, and whichever this kernel has by what it does."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.lab.control_groups import ControlGroup, CoreUse, plan_group
from anabranch.lab.core_shares import CoreShares
from anabranch.lab.errors import LabError

PATIENCE_SECONDS = 30.0


def make_version_one(mounts: Path, *, apart: bool) -> None:
    """Leave what a kernel with groups of version 1 shows, with one tree for limits and counts, or two."""
    limits = mounts / ("cpu" if apart else "cpu,cpuacct")
    counts = mounts / "cpuacct" if apart else limits
    for folder, files in ((limits, ("cpu.cfs_quota_us", "cpu.cfs_period_us")), (counts, ("cpuacct.usage",))):
        folder.mkdir(exist_ok=True)
        for file in files:
            (folder / file).write_text("0")


def make_version_two(mounts: Path) -> None:
    (mounts / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    (mounts / "cgroup.subtree_control").write_text("memory\n")


def test_version_one_has_a_folder_where_cores_are_limited_and_one_where_they_are_counted(tmp_path: Path) -> None:
    make_version_one(tmp_path, apart=True)
    group = plan_group("lab", tmp_path)
    assert group == ControlGroup(1, (str(tmp_path / "cpu" / "lab"), str(tmp_path / "cpuacct" / "lab")))
    group.make(for_groups=True)
    host = group.inner("h1")
    host.make()
    host.limit(0.4)
    limits, counts = (Path(folder) for folder in host.folders)
    assert (limits / "cpu.cfs_quota_us").read_text() == "40000"
    assert (limits / "cpu.cfs_period_us").read_text() == "100000"
    host.limit(None)
    assert (limits / "cpu.cfs_quota_us").read_text() == "-1"
    host.enter(4711)
    assert (limits / "cgroup.procs").read_text() == (counts / "cgroup.procs").read_text() == "4711"
    (limits / "cpu.stat").write_text("nr_periods 3\nnr_throttled 1\nthrottled_time 250000000\n")
    assert host.read_use() == CoreUse(None, 0.25)
    (counts / "cpuacct.usage").write_text("1500000000\n")
    assert host.read_use() == CoreUse(1.5, 0.25)


def test_version_one_may_have_both_in_one_folder(tmp_path: Path) -> None:
    make_version_one(tmp_path, apart=False)
    assert plan_group("lab", tmp_path).folders == (str(tmp_path / "cpu,cpuacct" / "lab"),)


def test_version_two_opens_the_groups_above_and_has_one_folder(tmp_path: Path) -> None:
    make_version_two(tmp_path)
    group = plan_group("lab", tmp_path)
    assert group == ControlGroup(2, (str(tmp_path / "lab"),))
    assert not group.exists
    group.make(for_groups=True)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "lab" / "cgroup.subtree_control").read_text() == "+cpu"
    host = group.inner("h1")
    host.make()
    host.limit(1.25)
    assert (tmp_path / "lab" / "h1" / "cpu.max").read_text() == "125000 100000"
    host.limit(None)
    assert (tmp_path / "lab" / "h1" / "cpu.max").read_text() == "max 100000"
    # A group for processes is not opened: it could not hold any.
    assert not (tmp_path / "lab" / "h1" / "cgroup.subtree_control").exists()
    (tmp_path / "lab" / "h1" / "cpu.stat").write_text("usage_usec 2500000\nthrottled_usec 500000\n")
    assert host.read_use() == CoreUse(2.5, 0.5)


def test_a_tree_of_version_two_that_does_not_limit_cores_is_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(LabError, match="cannot be shared out here"):
        plan_group("lab", tmp_path)


def test_a_quota_of_nothing_is_refused(tmp_path: Path) -> None:
    make_version_two(tmp_path)
    with pytest.raises(LabError, match="too little"):
        plan_group("lab", tmp_path).limit(0.001)


def test_a_group_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="No such file or directory; it takes root"):
        ControlGroup(1, (str(tmp_path / "missing" / "lab"),)).make()


@pytest.fixture
def group() -> Iterator[ControlGroup]:
    """A group of this kernel's, whichever version it has."""
    try:
        made = plan_group(f"anabranch-test-{uuid.uuid4().hex[:8]}")
        made.make(for_groups=True)
    except LabError as error:
        pytest.skip(str(error))
    try:
        yield made
    finally:
        made.remove()
        assert not made.exists


def test_processes_are_held_to_their_quota_by_this_kernel(group: ControlGroup) -> None:
    host = group.inner("h1")
    host.make()
    # So little that it is used up in every period, however busy the machine is.
    host.limit(0.02)
    command = [*host.prefix, sys.executable, "-S", "-c", "while True: pass"]
    busy = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while host.read_use().throttled_seconds == 0:
            assert busy.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        for folder in host.folders:
            assert str(busy.pid) in (Path(folder) / "cgroup.procs").read_text().split()
    finally:
        busy.kill()
        busy.wait()


def test_a_process_that_asks_for_a_share_gets_a_group_of_its_own_once(group: ControlGroup) -> None:
    shares = CoreShares(group, 0.5)
    take = "import os, pickle, sys; it = pickle.load(sys.stdin.buffer); it.take(); it.take(); print(os.getpid())"
    asked = subprocess.run([sys.executable, "-c", take], input=pickle.dumps(shares), capture_output=True, check=True)
    own = group.inner(asked.stdout.decode().strip())
    assert own.exists
    shares.close()
    assert not own.exists and not group.exists
