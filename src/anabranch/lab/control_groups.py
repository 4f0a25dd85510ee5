"""Control groups: so much of the machine's cores for some processes, and what they used, in both versions of Linux."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anabranch.lab.errors import LabError

MOUNTS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_FEWEST_CORES = 0.01
_END_SECONDS = 10.0
# The group is entered before anything else of the command runs, so nothing of it runs outside.
_ENTER = 'own=$$; while [ "$1" != -- ]; do echo "$own" > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class CoreUse:
    """What the processes of a group have used of cores, and how long they had to wait because of their quota."""

    seconds: float | None
    """None where the kernel does not count it."""
    throttled_seconds: float


class GroupVersion(Protocol):
    """How one version of control groups is found, told a quota, and asked what was used."""

    def find_roots(self, mounts: Path) -> tuple[Path, ...]:
        """Return the folders below which groups are made; none where this version does not limit cores."""
        ...

    def open_to_children(self, folder: Path) -> None:
        """Let groups below this one have quotas."""
        ...

    def limit(self, folders: tuple[Path, ...], cores: float | None) -> None:
        """Let the processes of a group have so much of the cores; None: as much as there is."""
        ...

    def read_use(self, folders: tuple[Path, ...]) -> CoreUse:
        """Return what the processes of a group and of those below it have used since it was made."""
        ...


class _VersionOne:
    """A tree of groups for each resource: one limits cores, another may be the one that counts them."""

    def find_roots(self, mounts: Path) -> tuple[Path, ...]:
        limiting = self._find(mounts, "cpu", "cpu.cfs_quota_us")
        counting = self._find(mounts, "cpuacct", "cpuacct.usage")
        if limiting is None:
            return ()
        return (limiting,) if counting is None or self._counts(limiting) else (limiting, counting)

    def open_to_children(self, folder: Path) -> None:
        pass

    def limit(self, folders: tuple[Path, ...], cores: float | None) -> None:
        quota_us = -1 if cores is None else round(_PERIOD_US * cores)
        (folders[0] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (folders[0] / "cpu.cfs_quota_us").write_text(str(quota_us))

    def read_use(self, folders: tuple[Path, ...]) -> CoreUse:
        used_ns = int((folders[-1] / "cpuacct.usage").read_text()) if self._counts(folders[-1]) else None
        throttled_ns = _read_numbers(folders[0] / "cpu.stat")["throttled_time"]
        return CoreUse(None if used_ns is None else used_ns / 1e9, throttled_ns / 1e9)

    @staticmethod
    def _find(mounts: Path, controller: str, file: str) -> Path | None:
        roots = (mounts / name for name in (controller, "cpu,cpuacct", "cpuacct,cpu"))
        return next((root for root in roots if (root / file).exists()), None)

    @staticmethod
    def _counts(folder: Path) -> bool:
        return (folder / "cpuacct.usage").exists()


class _VersionTwo:
    """One tree of groups for all resources."""

    def find_roots(self, mounts: Path) -> tuple[Path, ...]:
        controllers = mounts / "cgroup.controllers"
        return (mounts,) if controllers.exists() and "cpu" in controllers.read_text().split() else ()

    def open_to_children(self, folder: Path) -> None:
        opened = folder / "cgroup.subtree_control"
        if not opened.exists() or "cpu" not in opened.read_text().split():
            opened.write_text("+cpu")

    def limit(self, folders: tuple[Path, ...], cores: float | None) -> None:
        quota = "max" if cores is None else str(round(_PERIOD_US * cores))
        (folders[0] / "cpu.max").write_text(f"{quota} {_PERIOD_US}")

    def read_use(self, folders: tuple[Path, ...]) -> CoreUse:
        numbers = _read_numbers(folders[0] / "cpu.stat")
        return CoreUse(numbers["usage_usec"] / 1e6, numbers["throttled_usec"] / 1e6)


_VERSIONS: dict[int, GroupVersion] = {1: _VersionOne(), 2: _VersionTwo()}


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group, by its folders: data that may be stored, or sent to another process."""

    version: int
    folders: tuple[str, ...]
    """One in each tree of groups that it is in; the first one is where cores are limited."""

    @property
    def exists(self) -> bool:
        """Say whether the group is there, at least in part."""
        return any(folder.exists() for folder in self._paths)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a command is put behind to run in the group, with all that it starts."""
        return ("sh", "-c", _ENTER, "sh", *self.folders, "--")

    def inner(self, name: str) -> ControlGroup:
        """Return the group of this name inside this one, be it made or not."""
        return ControlGroup(self.version, tuple(str(folder / name) for folder in self._paths))

    def make(self, *, for_groups: bool = False) -> None:
        """Make the group; one that is for groups, and not for processes, lets them have quotas."""
        try:
            for folder in self._paths:
                if for_groups:
                    self._kernel.open_to_children(folder.parent)
                folder.mkdir(exist_ok=True)
                if for_groups:
                    self._kernel.open_to_children(folder)
        except OSError as error:
            msg = (
                f"no control group can be made at {self.folders[0]}: {error.strerror}; "
                "it takes root, and a container that lets it"
            )
            raise LabError(msg) from error

    def limit(self, cores: float | None) -> None:
        """Let the processes of the group together have so much of the cores; None: as much as there is."""
        if cores is not None and cores < _FEWEST_CORES:
            msg = f"{cores:g} of a core is too little to run anything; give {_FEWEST_CORES:g} or more"
            raise LabError(msg)
        self._kernel.limit(self._paths, cores)

    def enter(self, pid: int) -> None:
        """Put a process into the group; what it starts from now on is in it, too."""
        for folder in self._paths:
            (folder / "cgroup.procs").write_text(str(pid))

    def read_use(self) -> CoreUse:
        """Return what the processes in the group have used since it was made."""
        return self._kernel.read_use(self._paths)

    def remove(self) -> None:
        """Remove the group and those inside once their processes have ended; wait some seconds for these."""
        deadline = time.monotonic() + _END_SECONDS
        while self.exists and time.monotonic() < deadline:
            for folder in self._paths:
                for each in (*folder.glob("*/"), folder):
                    with contextlib.suppress(OSError):
                        each.rmdir()
            if self.exists:
                time.sleep(0.1)

    @property
    def _paths(self) -> tuple[Path, ...]:
        return tuple(Path(folder) for folder in self.folders)

    @property
    def _kernel(self) -> GroupVersion:
        return _VERSIONS[self.version]


def plan_group(name: str, mounts: Path = MOUNTS) -> ControlGroup:
    """Return a group for groups with quotas, at the top, without making it; raise where the kernel has no quotas."""
    for version, kernel in _VERSIONS.items():
        roots = kernel.find_roots(mounts)
        if roots:
            return ControlGroup(version, tuple(str(root / name) for root in roots))
    msg = f"cores cannot be shared out here: no control groups of version 1 or 2 limit them at {mounts}"
    raise LabError(msg)


def _read_numbers(path: Path) -> dict[str, int]:
    return {name: int(number) for name, number in (line.split() for line in path.read_text().splitlines())}
