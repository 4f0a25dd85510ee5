"""Whether a checkpoint's folder is on a disk of this host or on one that others serve."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from anabranch.state.copies.mounts import find_type, is_network, lies_on_network

MOUNTS = [
    ("/", "ext4"),
    ("/shared", "nfs4"),
    ("/shared/scratch", "xfs"),
    ("/mnt/twice", "ext4"),
    ("/mnt/twice", "cifs"),
]


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/state", "ext4"),
        ("/shared", "nfs4"),
        ("/shared/flows/state", "nfs4"),
        ("/shared2/state", "ext4"),
        ("/shared/scratch/state", "xfs"),
        ("/mnt/twice/state", "cifs"),
    ],
)
def test_a_folder_is_on_the_innermost_mount_that_was_made_last(folder: str, kind: str) -> None:
    assert find_type(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize(
    "kind",
    ["nfs", "nfs4", "cifs", "smb3", "lustre", "glusterfs", "ceph", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.s3fs"],
)
def test_what_other_hosts_serve_is_a_network(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "tmpfs", "overlay", "9p", "apfs", "fuseblk", "fuse.fuse-overlayfs", ""]
)
def test_disks_and_memory_of_this_host_are_none(kind: str) -> None:
    assert not is_network(kind)


def test_the_mounts_of_this_host_are_asked_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "served")
    served = str((tmp_path / "served").resolve())
    assert not lies_on_network(tmp_path / "link/state")
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4"), SimpleNamespace(mountpoint=served, fstype="nfs4")]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    assert lies_on_network(tmp_path / "link/state")
    assert not lies_on_network(tmp_path / "state")
