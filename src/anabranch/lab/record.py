"""The record of a lab: a file that is there as long as anything of the lab may be, and a lock for who changes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from anabranch.errors import name_alternatives
from anabranch.lab.control_groups import ControlGroup
from anabranch.lab.errors import LabError
from anabranch.lab.namespaces import HostNetwork, NetworkHost
from anabranch.lab.plan import DRIVER, LabPlan, number_of
from anabranch.lab.standalone import Daemon, Master
from anabranch.lab.wires import WireLimit

_LOCK_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host of a lab, by the name that commands know it by."""

    name: str
    worker: Daemon | None = None
    """None for the driver's host."""
    limit: WireLimit | None = None


@dataclass(frozen=True, slots=True)
class LabRecord:
    """All that a later command must know of a lab."""

    mark: str
    """What everything that belongs to it is known by."""
    folder: str
    """Logs, work folders and shuffle files."""
    gateway: str
    plan: LabPlan
    boot: str
    """Which start of the machine it was made after: none of it outlives one."""
    hosts: tuple[LabHost, ...] = ()
    master: Master | None = None
    group: ControlGroup | None = None
    complete: bool = False
    """Whether it was made to the end."""
    format: Literal[1] = 1

    @property
    def network(self) -> HostNetwork:
        """Its network, with the hosts that the record knows."""
        network = HostNetwork(f"abl{self.mark}", self.gateway, ())
        return replace(network, hosts=tuple(network.name_host(number_of(host.name)) for host in self.hosts))

    @property
    def workers(self) -> tuple[LabHost, ...]:
        """The hosts that have workers."""
        return tuple(host for host in self.hosts if host.name != DRIVER)

    def place_of(self, name: str) -> NetworkHost:
        """Return a host's namespace and wire."""
        return self.network.name_host(number_of(name))

    def group_of(self, name: str) -> ControlGroup | None:
        """Return the control group of a host; None if hosts have no quotas."""
        return None if self.group is None else self.group.inner(name)

    def find(self, name: str) -> LabHost:
        """Return the host of this name or address; raise with those that there are."""
        for host in self.hosts:
            if name in (host.name, self.place_of(host.name).address):
                return host
        names = [host.name for host in self.hosts]
        msg = f"the lab has no host {name!r}; {name_alternatives(name, names)}"
        raise LabError(msg)

    def with_host(self, host: LabHost) -> LabRecord:
        """Return the record with this host in place of one of its name, or as another one."""
        others = [each for each in self.hosts if each.name != host.name]
        return replace(self, hosts=tuple(sorted([*others, host], key=lambda each: number_of(each.name))))


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Where the record of a user's lab lies."""

    folder: Path

    @property
    def path(self) -> Path:
        """The record itself."""
        return self.folder / "lab.json"

    def read(self) -> LabRecord | None:
        """Return the record; None if there is no lab."""
        try:
            return _ADAPTER.validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            msg = (
                f"{self.path} is no record of a lab that this version understands: take the lab down with the version "
                f"that made it, or remove what `ip netns list` shows as abl… and then this file"
            )
            raise LabError(msg) from error

    def write(self, record: LabRecord) -> LabRecord:
        """Replace the record as a whole, and return it."""
        beside = self.path.with_suffix(".new")
        beside.write_bytes(_ADAPTER.dump_json(record, indent=1))
        beside.replace(self.path)
        return record

    def remove(self) -> None:
        """Forget the lab."""
        self.path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other command change the lab meanwhile; wait for one that does."""
        self._make_folder()
        deadline = time.monotonic() + _LOCK_SECONDS
        with (self.folder / "lab.lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        msg = f"another command has been changing the lab for {_LOCK_SECONDS:.0f} s; see `ps`"
                        raise LabError(msg) from None
                    time.sleep(0.1)
            yield

    def _make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self.folder.stat().st_uid
        # What the record says is done as this user: nobody else may have written it.
        if owner != os.geteuid() or self.folder.stat().st_mode & 0o022:
            msg = f"{self.folder} must be a folder that only user {os.geteuid()} writes in, and is of user {owner}"
            raise LabError(msg)


def find_record_file(environment: Mapping[str, str] = os.environ, user: int | None = None) -> RecordFile:
    """Return where this user's lab is written down: where the system keeps what ends with it, if it has a place."""
    user = os.geteuid() if user is None else user
    if environment.get("XDG_RUNTIME_DIR"):
        return RecordFile(Path(environment["XDG_RUNTIME_DIR"]) / "anabranch")
    if user == 0:
        return RecordFile(Path("/run/anabranch"))
    return RecordFile(Path(tempfile.gettempdir()) / f"anabranch-run-{user}")


def read_boot() -> str:
    """Return what tells one start of this machine from another."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


_ADAPTER = TypeAdapter(LabRecord)
