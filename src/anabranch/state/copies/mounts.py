"""Whether a folder of this host lies on a file system that other hosts serve."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "afs",
        "beegfs",
        "beegfs_nodev",
        "ceph",
        "cifs",
        "coda",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "wekafs",
    }
)
_FUSE = "fuse."
LOCAL_FUSE = frozenset(
    {
        "bindfs",
        "cryfs",
        "encfs",
        "exfat",
        "fuse-overlayfs",
        "gocryptfs",
        "lxcfs",
        "mergerfs",
        "ntfs-3g",
        "overlayfs",
        "portal",
        "unionfs",
        "zfs",
    }
)
"""What users' processes serve from disks of their own host; whatever else they serve is taken to come from others."""


def lies_on_network(folder: Path) -> bool:
    """Say whether a folder, which need not be there yet, is on a network file system, as far as its mount tells.

    The host that serves it to others has it on a disk, and is told so: there it is near.
    """
    mounts = [(one.mountpoint, one.fstype) for one in psutil.disk_partitions(all=True)]
    return is_network(find_type(folder.resolve(), mounts))


def find_type(folder: Path, mounts: Iterable[tuple[str, str]]) -> str:
    """Return the type of the file system that holds a folder, of mount points and types in their order."""
    found, depth = "", -1
    for point, kind in mounts:
        # Of two mounts in one place, the later one hides the other.
        if folder.is_relative_to(point) and len(Path(point).parts) >= depth:
            found, depth = kind, len(Path(point).parts)
    return found


def is_network(kind: str) -> bool:
    """Say whether a type of file system is one whose files other hosts serve."""
    name = kind.lower()
    if name.startswith(_FUSE):
        return name.removeprefix(_FUSE) not in LOCAL_FUSE
    return name in NETWORK_FILE_SYSTEMS
